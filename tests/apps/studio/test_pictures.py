"""The docs' screenshots are up to date with the studio's pages."""

import json

import pytest
from pages import ROOT, fingerprint, pictures_of_the_docs

IMAGES = ROOT / "docs/images"
MADE = json.loads((IMAGES / "studio.json").read_text("utf-8"))


@pytest.mark.parametrize("name", sorted(pictures_of_the_docs()))
def test_a_screenshot_is_not_older_than_its_page(name: str) -> None:
    """If this fails, take the screenshots again as CONTRIBUTING.md describes, and look at each."""
    assert (IMAGES / name).is_file()
    assert MADE[name]["source"] == fingerprint(MADE[name]["page"])


def test_every_screenshot_is_shown_in_the_docs() -> None:
    there = {file.name for file in IMAGES.glob("studio-*.png")}
    assert there == pictures_of_the_docs() == set(MADE)
