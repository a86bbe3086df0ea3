"""The studio on the demonstrations of an unknown arm, in a real browser."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from foreign import HOSTILE, dataset, demonstrations, pool
from opened import OpenedExplorer
from pages import AUDIT, open_page, take_picture
from playwright.sync_api import Browser, expect
from test_changes import lifted, usage

from recap.pool.store import Pool
from recap.types import QUARANTINE
from recap_apps.studio.explore import Extras

FIRST, SECOND = demonstrations()[0].id, demonstrations()[1].id
SIZES = [(1440, 900, "light"), (390, 844, "dark")]


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedExplorer]:
    with OpenedExplorer(dataset(tmp_path_factory.mktemp("foreign") / "arm")) as opened:
        yield opened


def test_a_demonstration_can_be_searched_scrubbed_and_linked(
    browser: Browser, studio: OpenedExplorer
) -> None:
    watched = open_page(browser, studio.url, 1440, 900)
    page = watched.page
    expect(page.locator(".entry")).to_have_count(6)
    expect(page.get_by_role("heading", level=1)).to_have_text(FIRST)
    for film in page.locator("video").all():
        expect(film).to_have_js_property("readyState", 4)
    assert page.locator("video").count() == 2
    expect(page.locator(".series-chart")).to_have_count(3)

    # One slider moves all videos and charts, and its step is in the URL.
    slider = page.get_by_label("Step", exact=True)
    slider.fill("20")
    hz = demonstrations()[0].fps
    expect(page.locator(".scrub output")).to_contain_text("step 20 of")
    for film in page.locator("video").all():
        assert int(film.evaluate("film => film.currentTime") * hz) == 20
    expect(page).to_have_url(re.compile(r"id=one_arm%2Flift%2F0%2Fgripper&t=20$"))
    assert page.locator(".needle").first.get_attribute("x1") != page.locator(
        ".line-chart .grid"
    ).first.get_attribute("x1")

    # The same URL shows the same view.
    again = open_page(browser, page.url, 1440, 900)
    expect(again.page.locator(".scrub output")).to_contain_text("step 20 of")
    again.page.context.close()

    # By keyboard: steps, play, next demonstration, help, search.
    page.locator("#main").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".scrub output")).to_contain_text("step 21 of")
    page.keyboard.press("End")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.locator(".scrub output")).to_contain_text(re.compile(r"step [1-9]\d? of"))
    page.keyboard.press("j")
    expect(page.get_by_role("heading", level=1)).to_have_text(SECOND)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("play or pause")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("press")
    expect(page.locator(".entry")).to_have_count(3)
    assert watched.errors == []
    page.context.close()


def test_retrieval_at_a_frame_is_shown_with_costs_that_add_up(
    browser: Browser, studio: OpenedExplorer
) -> None:
    watched = open_page(browser, f"{studio.url}#demonstrations?id={FIRST}&t=12", 1440, 900)
    page = watched.page
    page.get_by_role("link", name="What is retrieved here?").click()
    expect(page).to_have_url(re.compile(r"#retrieval\?id=.*t=12"))
    expect(page.locator(".match.now")).to_contain_text("step 12 of")
    n = page.locator(".match:not(.now)").count()
    assert n >= 2
    expect(page.locator(".stack")).to_have_count(n)
    parts = (
        page.locator(".stack")
        .last.locator(".part")
        .evaluate_all("parts => parts.map(part => part.getBoundingClientRect().width)")
    )
    whole = page.locator(".stack").last.bounding_box()
    assert whole is not None
    assert abs(sum(parts) - whole["width"]) < 2  # the bar of the farthest match is full
    page.get_by_label("Step", exact=True).fill("20")
    expect(page.locator(".match.now")).to_contain_text("step 20 of")
    page.locator(".match:not(.now) a").first.click()
    expect(page.locator(".scrub output")).to_contain_text("step")
    page.get_by_role("link", name="Coverage", exact=True).click()
    expect(page.locator(".starts-map a")).to_have_count(6)
    page.get_by_label("Map by").select_option("scene")
    expect(page.locator(".starts-body")).to_contain_text("the two axes explain")
    expect(page).to_have_url(re.compile("by=scene"))
    assert watched.errors == []
    page.context.close()


def test_hostile_text_is_shown_as_text_and_damage_is_reported(browser: Browser, tmp_path: Path) -> None:
    first, second, third = demonstrations()[:3]
    bad = replace(first, id=HOSTILE, task=HOSTILE, attributes={HOSTILE: HOSTILE})
    still = replace(second, id="still", proprio=np.zeros_like(second.proprio))
    place = pool(tmp_path / "pool", [bad, still, third])
    with OpenedExplorer(place) as opened:
        for film in (place / "blobs").rglob("*"):
            if film.is_file():
                film.write_bytes(b"no film")
        watched = open_page(browser, opened.url, 1440, 900)
        page = watched.page
        expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
        expect(page.locator(".series-chart").first).to_be_visible()
        expect(page.locator("figcaption", has_text="cannot be read").first).to_be_visible()
        page.locator(".entry", has_text="still").click()
        expect(page.locator(".findings")).to_contain_text("proprio")
        assert page.evaluate("window.broken") is None
        assert page.locator('img[src="x"]').count() == 0
        page.context.close()


@pytest.mark.parametrize(("width", "height", "scheme"), SIZES)
def test_every_view_fits_the_window_and_is_readable(
    browser: Browser, studio: OpenedExplorer, width: int, height: int, scheme: Literal["light", "dark"]
) -> None:
    watched = open_page(browser, f"{studio.url}#demonstrations?id={FIRST}", width, height, scheme)
    page = watched.page
    for view in [link.get_attribute("data-view") for link in page.locator("nav a").all()]:
        page.goto(f"{studio.url}#{view}?id={FIRST}")
        expect(page.locator("nav [aria-current]")).to_have_attribute("data-view", str(view))
        page.wait_for_load_state("networkidle")
        expect(page.locator(".skeleton")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        assert page.evaluate("views.scrollWidth <= views.clientWidth"), "a view's name is cut off"
        assert page.evaluate(AUDIT) == {"faint": [], "nameless": []}, view
    assert watched.errors == []
    page.context.close()


@pytest.mark.parametrize(("width", "height", "scheme"), SIZES)
def test_an_empty_pool_shows_the_command_that_fills_it(
    browser: Browser, tmp_path: Path, width: int, height: int, scheme: Literal["light", "dark"]
) -> None:
    place = tmp_path / "none"
    Pool.create(place)
    with OpenedExplorer(place) as opened:
        watched = open_page(browser, f"{opened.url}#coverage", width, height, scheme)
        page = watched.page
        expect(page.get_by_role("heading", level=1)).to_have_text("There are no demonstrations yet")
        expect(page.locator("main code")).to_have_text(f"recap pool add {place} DATASET")
        expect(page.locator("nav a")).to_have_count(0)
        expect(page.locator("#notice")).to_be_hidden()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("play or pause")
        page.keyboard.press("Escape")
        page.keyboard.press("j")  # a key of a view that does not exist now
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(AUDIT) == {"faint": [], "nameless": []}
        Pool.open(place).add(list(demonstrations()[:1]))
        page.reload()
        expect(page.locator("nav a")).to_have_count(3)
        assert watched.errors == []
        page.context.close()


def test_a_hand_video_is_reviewed_and_accepted_into_the_pool(browser: Browser, tmp_path: Path) -> None:
    place = tmp_path / "hand"
    lifted(place / "0", slice(40, 50))
    Pool.create(tmp_path / "pool")
    with OpenedExplorer(place, Extras(into=str(tmp_path / "pool"))) as opened:
        watched = open_page(browser, f"{opened.url}#hands?name=hand/0&t=20", 390, 844)
        page = watched.page
        expect(page.locator(".overlay .bone")).to_have_count(5)
        expect(page.locator(".overlay .way")).to_have_count(1)
        assert page.evaluate("new Set([...views.children].map(link => link.offsetTop)).size") == 1, "one line"
        page.get_by_label("Step", exact=True).fill("45")
        expect(page.locator(".lost")).to_be_visible()
        expect(page.locator(".overlay .bone")).to_have_count(0)
        expect(page.locator(".strip .gap")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate(AUDIT) == {"faint": [], "nameless": []}
        page.get_by_role("button", name="Accept").click()
        expect(page.locator("#toast")).to_contain_text("Added 2 to")
        assert Pool.open(tmp_path / "pool").ids() == ("hand/0/0", "hand/0/1")
        assert watched.errors == []
        page.context.close()


def test_a_demonstration_is_quarantined_and_restored(browser: Browser, tmp_path: Path) -> None:
    place, log = pool(tmp_path / "pool"), usage(tmp_path / "use.jsonl", SECOND)
    with OpenedExplorer(place, Extras(writable=True, logs=(log,))) as opened:
        watched = open_page(browser, f"{opened.url}#blame", 1440, 900)
        page = watched.page
        accused = page.locator("tbody tr", has_text="accused")
        expect(accused).to_have_count(1)
        accused.get_by_role("button").click()
        expect(page.locator("tbody tr", has_text="Use it again")).to_contain_text(SECOND)
        assert Pool.open(place).get(SECOND).attributes[QUARANTINE] is True
        page.get_by_role("link", name=SECOND).click()
        expect(page.locator(".held")).to_contain_text("In quarantine")
        page.get_by_role("button", name="Use it again").click()
        expect(page.get_by_role("button", name="Quarantine")).to_be_visible()
        assert QUARANTINE not in Pool.open(place).get(SECOND).attributes
        assert page.evaluate(AUDIT) == {"faint": [], "nameless": []}
        assert watched.errors == []
        page.context.close()


PICTURES = {
    "demonstrations": "id=one_arm/slide/100001/other_arm&t=30",
    "retrieval": "id=one_arm/slide/100001/other_arm&t=30",
    "coverage": "",
}


@pytest.mark.skipif(
    "RECAP_SCREENSHOT_HANDS" not in os.environ, reason="pictures for the docs are made on demand"
)
def test_screenshot_of_hand_videos_for_the_docs(browser: Browser, tmp_path: Path) -> None:
    """RECAP_SCREENSHOT_HANDS is the folder that recap lift wrote for tests/hands/data/hand.mp4."""
    Pool.create(tmp_path / "pool")
    place = Path(os.environ["RECAP_SCREENSHOT_HANDS"])
    with OpenedExplorer(place, Extras(into=str(tmp_path / "pool"))) as opened:
        watched = open_page(browser, f"{opened.url}#hands?name=hand/1&t=330", 1440, 900)
        expect(watched.page.locator(".overlay .bone").first).to_be_visible()
        expect(watched.page.locator(".waiting")).to_have_count(0)
        watched.page.wait_for_timeout(500)
        take_picture(watched.page, "studio-hands")
        watched.page.context.close()


@pytest.mark.skipif(
    "RECAP_SCREENSHOT_POOL" not in os.environ, reason="pictures for the docs are made on demand"
)
@pytest.mark.parametrize("view", PICTURES)
def test_screenshots_for_the_docs(browser: Browser, view: str) -> None:
    """RECAP_SCREENSHOT_POOL is the pool of both tasks that examples/one_arm/README.md makes."""
    with OpenedExplorer(Path(os.environ["RECAP_SCREENSHOT_POOL"])) as opened:
        for width, height, suffix in ((1440, 900, ""), (390, 844, "-phone")):
            watched = open_page(browser, f"{opened.url}#{view}?{PICTURES[view]}", width, height)
            watched.page.wait_for_load_state("networkidle")
            expect(watched.page.locator(".skeleton, .waiting")).to_have_count(0)
            take_picture(watched.page, f"studio-{view}{suffix}")
            assert watched.errors == []
            watched.page.context.close()
