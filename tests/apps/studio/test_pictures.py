"""The screenshots of the docs show the pages as they are."""

import json

import pytest
from pages import ROOT, fingerprint, pictures_of_the_docs

IMAGES = ROOT / "docs/images"
MADE = json.loads((IMAGES / "studio.json").read_text("utf-8"))


@pytest.mark.parametrize("name", sorted(pictures_of_the_docs()))
def test_a_screenshot_was_made_of_the_page_as_it_is(name: str) -> None:
    """Else make them anew as CONTRIBUTING.md says, and look at each."""
    assert (IMAGES / name).is_file()
    assert MADE[name]["source"] == fingerprint(MADE[name]["page"])


def test_no_screenshot_is_left_that_no_page_shows() -> None:
    there = {file.name for file in IMAGES.glob("studio-*.png")}
    assert there == pictures_of_the_docs() == set(MADE)
