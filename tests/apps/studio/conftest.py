"""The browser for the studio's tests."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import PATIENCE_MS
from playwright.sync_api import Browser, expect, sync_playwright

CHROMIUM = os.environ.get("RECAP_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    if not Path(CHROMIUM).exists():
        why = "browser tests need Debian's package chromium: run make system as root"
        if os.environ.get("CI") == "true":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()
