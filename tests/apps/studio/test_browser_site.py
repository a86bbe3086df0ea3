"""The documentation built by `make docs`, opened from the disk."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

SITE = Path(__file__).parents[3] / "site"

pytestmark = pytest.mark.long


@pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="no site/: make docs builds it")
def test_the_documentation_search_works_without_a_server(browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((SITE / "index.html").as_uri())
    page.click(".md-search__input")
    page.type(".md-search__input", "quarantine", delay=20)
    expect(page.locator(".md-search-result__item").first).to_contain_text("quarantine")
    assert errors == []
    page.close()
