"""The Push-T studio in a real browser with real websockets."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from opened import Opened
from pages import AUDIT, drag_as_expert, hold_key, open_page, tab_to, take_picture
from playwright.sync_api import Browser, expect

from recap.pool.store import Pool
from recap_worlds.pusht.collecting import CollectSpec, demonstrate

TASK = "block=tee&angle=30&start=151"  # the disc needs about 50 steps for it


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Past evaluations: from RECAP_SCREENSHOT_RUNS, or small ones made here."""
    if "RECAP_SCREENSHOT_RUNS" in os.environ:
        return Path(os.environ["RECAP_SCREENSHOT_RUNS"])
    from recap.assembly import AgentConfig
    from recap.evaluation.runner import evaluate
    from recap.evaluation.spec import EvalSpec

    folder = tmp_path_factory.mktemp("runs")
    for pusher in ("disc", "triangle"):
        spec = EvalSpec(
            AgentConfig("hold"),
            "pusht",
            {"pusher": pusher},
            tasks=("-30", "30"),
            seeds=(500, 501),
            max_steps=20,
        )
        evaluate(spec, folder / f"hold-{pusher}", workers=1)
    return folder


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory, runs: Path) -> Iterator[Opened]:
    """A studio with a shipped policy on a live pool."""
    place = tmp_path_factory.mktemp("studio") / "pool"
    Pool.create(place)
    with Opened(place, "pusht-nano", runs) as opened:
        yield opened


@pytest.fixture(autouse=True)
def emptied(request: pytest.FixtureRequest) -> None:
    """Empties the pool before each test."""
    if "studio" in request.fixturenames:
        store = request.getfixturevalue("studio").service.store
        store.remove(store.ids())


def test_teach_add_watch_and_delete_a_demonstration(browser: Browser, studio: Opened) -> None:
    empty = studio.service.store.version
    watched = open_page(browser, f"{studio.url}#run?{TASK}&before=none")
    page = watched.page

    # With an empty pool the triangle holds, and the page says so.
    expect(page.locator(".badge").first).to_have_text("Holding: nothing to retrieve")
    triangle = page.locator("#run-lanes .pusher").first
    before = triangle.get_attribute("transform")
    page.get_by_role("button", name="Play", exact=True).click()
    expect(page.locator("#run-transport .time")).to_contain_text(re.compile(r"step ([6-9]|\d\d) of"))
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    assert triangle.get_attribute("transform") == before

    # Teach a demonstration with the mouse.
    page.get_by_role("link", name="Teach", exact=True).click()
    expect(page.locator("#teach-hint")).to_contain_text("Drag the disc")
    drag_as_expert(watched, "tee")
    expect(page.locator("#teach-review")).to_be_visible()
    last = watched.last("moment")
    assert last is not None
    assert last["over"] == "solved"
    take_picture(page, "studio-teach")
    page.get_by_label("Name", exact=True).fill("my first")
    page.get_by_role("button", name="Add to pool").click()
    expect(page.locator("#teach-added")).to_contain_text(f"my first is in the pool, as version {empty + 1}")
    assert studio.service.store.ids() == ("studio/my first",)
    take_picture(page, "studio-added")

    # The same start before and after the addition: one run holds, the other uses the demonstration.
    page.get_by_role("link", name="Watch the triangle use it").click()
    expect(page.locator("#run-lanes .lane")).to_have_count(2)
    page.get_by_label("Speed").select_option("40")
    page.get_by_role("button", name="Play", exact=True).click()
    now = page.locator("#run-lanes .lane").nth(1)
    expect(page.locator("#run-transport .time")).to_contain_text(
        re.compile(r"step (4[0-9]|[5-9]\d|\d{3}) of")
    )
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    expect(page.locator("#run-lanes .badge").first).to_have_text("Holding: nothing to retrieve")
    expect(now.locator(".from")).to_contain_text("From my first")
    assert now.locator(".pusher").get_attribute("transform") != before
    assert page.locator("#run-lanes .pusher").first.get_attribute("transform") == before
    take_picture(page, "studio-run")

    # The retrieved frames are the demonstration's, byte for byte.
    where = now.locator("a.source").get_attribute("href") or ""
    assert where.startswith("#pool/studio%2Fmy%20first?t=")
    t = int(where.split("t=")[1])
    shown = now.locator("a.source img").first.get_attribute("src") or ""
    kept = page.evaluate(
        """async (t) => {
            const answer = await fetch(`/api/pool/studio%2Fmy%20first/thumbnail?t=${t}`);
            const bytes = new Uint8Array(await answer.arrayBuffer());
            return btoa(String.fromCharCode(...bytes));
        }""",
        t,
    )
    assert shown == f"data:image/png;base64,{kept}"

    # Step forward and scrub back.
    count = page.locator("#run-transport .time")
    was = int((count.text_content() or "").split()[1])
    page.get_by_role("button", name="Step forward").click()
    expect(count).to_contain_text(f"step {was + 1} of {was + 1}")
    page.get_by_label("Step", exact=True).fill("0")
    expect(count).to_contain_text(f"step 0 of {was + 1}")
    expect(now.locator(".pusher")).to_have_attribute("transform", before or "")

    # The retrieved frame links to the demonstration. Delete it, undo, and roll back instead.
    now.locator("a.source").click()
    expect(page.get_by_role("dialog")).to_contain_text("my first")
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("#toast")).to_contain_text("Deleted my first")
    expect(page.locator("#pool-grid")).to_contain_text("The pool is empty")
    assert len(studio.service.store) == 0
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#pool-grid .demo")).to_have_count(1)
    assert studio.service.store.ids() == ("studio/my first",)
    page.get_by_role("button", name=f"Roll back to version {empty}", exact=True).click()
    expect(page.locator("#pool-grid")).to_contain_text("The pool is empty")
    assert len(studio.service.store) == 0
    assert watched.errors == []
    page.context.close()


def test_a_takeover_by_mouse_or_keys_adds_a_correction_to_the_pool(browser: Browser, studio: Opened) -> None:
    watched = open_page(browser, f"{studio.url}#run?{TASK}&before=none")
    page = watched.page
    badge = page.locator("#run-lanes .badge").first
    expect(badge).to_have_text("Holding: nothing to retrieve")
    pusher = page.locator("#run-lanes .pusher").first
    before = pusher.get_attribute("transform")

    # A press beside the triangle does nothing. A press on it takes over, and it follows the mouse.
    pusher.scroll_into_view_if_needed()
    board = page.locator("#run-lanes svg.board").first.bounding_box()
    box = pusher.bounding_box()
    assert board is not None
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(board["x"] + 8, board["y"] + 8)
    page.mouse.down()
    page.mouse.up()
    expect(badge).to_have_text("Holding: nothing to retrieve")
    page.mouse.move(x, y)
    page.mouse.down()
    away = 1 if x < board["x"] + board["width"] / 2 else -1
    page.mouse.move(x + away * 90, y, steps=5)
    expect(badge).to_have_text("You drive; release to hand control back")
    expect(page.locator("#run-transport .time")).to_contain_text(
        re.compile(r"step (1[2-9]|[2-9]\d|\d{3}) of")
    )
    take_picture(page, "studio-takeover")
    page.mouse.up()
    expect(page.locator("#toast")).to_contain_text("Added tee")
    (name,) = studio.service.store.ids()
    assert name == "studio/tee +30° start 151, correction"
    assert pusher.get_attribute("transform") != before
    expect(page.locator("#run-lanes .from").first).to_contain_text("correction")  # at the next step
    page.get_by_role("button", name="Pause", exact=True).click()

    # The arrow keys take over as well.
    page.locator("#run-lanes svg.board").first.focus()
    hold_key(page, "ArrowLeft" if away > 0 else "ArrowRight", 1.6)
    expect(page.locator("#toast")).to_contain_text("correction 2")
    page.get_by_role("button", name="Pause", exact=True).click()
    assert len(studio.service.store) == 2

    page.get_by_role("link", name="Pool", exact=True).click()
    expect(page.locator("#pool-grid .pill", has_text="correction")).to_have_count(2)
    page.locator("#pool-grid .demo").first.click()
    expect(page.get_by_role("dialog")).to_contain_text(re.compile(r"used from step [1-8] on"))
    assert watched.errors == []
    page.context.close()


def test_the_studio_works_by_keyboard_and_shows_names_as_text(browser: Browser, studio: Opened) -> None:
    hostile = '<img src=x onerror="window.broken=1"><b>&amp;'
    watched = open_page(browser, f"{studio.url}#teach?{TASK}")
    page = watched.page
    expect(page.locator("#teach-hint")).to_contain_text("Drag the disc")
    page.goto(f"{studio.url}#results")
    expect(page.locator("#results")).to_be_visible()
    # After a jump within the page the start of Tab depends on the browser, so focus the link directly.
    page.locator(".skip").focus()
    page.keyboard.press("Enter")  # skips the page header and stays in the view
    expect(page.locator("#main")).to_be_focused()
    expect(page.locator("#results")).to_be_visible()
    page.goto(f"{studio.url}#teach?{TASK}")
    tab_to(page, "#teach-board svg")
    ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert ring == "solid"
    hold_key(page, "ArrowRight", 1.0)
    hold_key(page, "ArrowDown", 0.4)
    page.keyboard.press("Enter")
    expect(page.locator("#teach-review")).to_be_visible()
    moved = watched.last("moment")
    scene = watched.last("scene")
    assert moved is not None
    assert scene is not None
    assert moved["pusher"][0] > scene["pusher"][0] + 40
    expect(page.locator("#teach-task")).to_have_js_property(
        "inert", True
    )  # the task cannot be changed during the review
    tab_to(page, "#teach-review .name input")
    page.keyboard.press("Control+a")
    page.keyboard.type(" ")
    page.keyboard.press("Enter")
    expect(page.locator("#teach-problem")).to_contain_text("needs a name")
    page.keyboard.press("Control+a")
    page.keyboard.type(hostile)
    page.keyboard.press("Enter")
    expect(page.locator("#teach-added")).to_contain_text(hostile)
    assert studio.service.store.ids() == (f"studio/{hostile}",)
    assert page.evaluate("document.activeElement.textContent") == "Watch the triangle use it"

    # The dial is a slider.
    page.get_by_role("button", name="Teach another").focus()
    page.keyboard.press("Enter")
    dial = page.locator("#teach [role=slider]")
    dial.focus()
    page.keyboard.press("ArrowRight")
    expect(dial).to_have_attribute("aria-valuenow", "31")
    page.keyboard.press("PageUp")
    expect(dial).to_have_attribute("aria-valuetext", "+46°")

    # Every view shows the name as text.
    page.goto(f"{studio.url}#pool")
    expect(page.locator("#pool-grid .title")).to_have_text(hostile)
    page.locator("#pool-grid .demo").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").locator("h2")).to_have_text(hostile)
    expect(page.locator("dialog video")).to_have_js_property("readyState", 4)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name=re.compile("What changed in version")).first.click()
    expect(page.locator(".diff:visible")).to_contain_text(hostile)
    page.goto(f"{studio.url}#run?{TASK}&before=none")
    expect(page.locator("#run-lanes .from")).to_contain_text(hostile)
    assert page.evaluate("window.broken") is None
    assert page.locator('img[src="x"]').count() == 0
    assert watched.errors == []
    page.context.close()


def test_the_pool_view_filters_demonstrations_and_suggests_starts_to_teach(
    browser: Browser, tmp_path: Path, runs: Path
) -> None:
    pool = Pool.create(tmp_path / "pool")
    tees = CollectSpec("disc", (-60.0, -30.0, 0.0, 30.0, 60.0), 1)
    pool.add([demonstrate(tees, demo) for demo in tees.demos()])
    cups = CollectSpec("disc", (15.0,), 2, block="cup", first_seed=100_050)
    pool.add([demonstrate(cups, demo) for demo in cups.demos()])
    pool.tag("before-friday", 2)
    with Opened(tmp_path / "pool", runs=runs) as opened:
        watched = open_page(browser, f"{opened.url}#pool")
        page = watched.page
        expect(page.locator("#pool-grid .demo")).to_have_count(7)
        for image in page.locator("#pool-grid img").all():
            expect(image).to_have_js_property("naturalWidth", 96)
        take_picture(page, "studio-pool")

        expect(page.locator("#pool-unusable")).to_be_hidden()
        first = demonstrate(tees, tees.demos()[0])
        opened.service.store.add([replace(first, id="studio/<b>blind", task="look", objects={})])
        expect(page.locator("#pool-unusable")).to_have_text(
            "1 demonstration cannot be used: <b>blind (has no object 'block')"
        )
        expect(page.locator("#pool-grid .demo")).to_have_count(8)
        for image in page.locator("#pool-grid img").all():  # a request after the removal would be an error
            expect(image).to_have_js_property("naturalWidth", 96)
        opened.service.store.remove(["studio/<b>blind"])
        expect(page.locator("#pool-unusable")).to_be_hidden()

        page.locator("#pool-filters").get_by_label("Block").select_option("cup")
        expect(page.locator("#pool-grid .demo")).to_have_count(2)
        page.locator("#pool-filters").get_by_label("Block").select_option("")
        page.locator("#pool-filters").get_by_label("Tag").select_option("before-friday")
        expect(page.locator("#pool-grid .demo")).to_have_count(5)
        page.locator("#pool-filters").get_by_label("Tag").select_option("")
        page.get_by_label("Name contains").fill("/+60/")
        expect(page.locator("#pool-grid .demo")).to_have_count(1)

        page.locator("#pool-grid .demo").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.locator(".trail")).to_have_attribute("points", re.compile(r"\d"))
        expect(dialog.locator("video")).to_have_js_property("readyState", 4)
        dialog.get_by_label("Step", exact=True).fill("20")
        expect(dialog.locator("output")).to_contain_text("step 20 of")
        assert 1.9 < dialog.locator("video").evaluate("film => film.currentTime") < 2.2
        take_picture(page, "studio-demonstration")
        dialog.get_by_role("button", name="Close").click()

        # A suggested start links to teaching it.
        worst = page.locator(".next li").first
        words = worst.locator("span").nth(1).text_content() or ""
        goal, start = words.split(", start ")
        worst.get_by_role("link").click()
        expect(page.locator("#teach [role=slider]")).to_have_attribute("aria-valuetext", goal)
        expect(page.locator("#teach").get_by_label("Start", exact=True)).to_have_value(start)
        expect(page.locator("#teach-hint")).to_contain_text("Drag the disc")
        assert watched.errors == []
        page.context.close()


def test_past_evaluations_are_shown_with_their_intervals(
    browser: Browser, studio: Opened, runs: Path
) -> None:
    watched = open_page(browser, f"{studio.url}#results")
    page = watched.page
    n = len(list(runs.glob("*/eval_info.json")))
    expect(page.locator("tbody tr")).to_have_count(n)
    expect(page.locator(".chart")).to_have_count(2)
    for tick in page.locator("tbody input").all():
        tick.check()
    expect(page.locator(".chart .band")).to_have_count(n)
    page.get_by_role("radio", name="0.95").check()
    expect(page.locator(".chart").first).to_have_attribute("aria-label", re.compile("above 0.95"))
    page.get_by_role("radio", name="0.85").check()
    take_picture(page, "studio-results")
    assert watched.errors == []
    page.context.close()


def test_examples_fill_an_empty_pool_and_many_starts_are_tried(
    browser: Browser, tmp_path: Path, runs: Path
) -> None:
    Pool.create(tmp_path / "pool")
    with Opened(tmp_path / "pool", runs=runs) as opened:
        watched = open_page(browser, f"{opened.url}#run?{TASK}&before=none", 390, 844)
        page = watched.page
        expect(page.locator("#steps [aria-current]")).to_have_text("See it hold")
        page.get_by_role("button", name="Add 20 example").click()
        expect(page.locator("#run-empty")).to_be_hidden()
        expect(page.locator("#steps [aria-current]")).to_have_text("Watch it being used")
        assert len(opened.service.store) == 20
        page.get_by_label("Starts", exact=True).select_option("5")
        page.get_by_role("button", name="Try them").click()
        expect(page.locator(".rate")).to_contain_text(re.compile(r"of 5 reached 0.85: \d+ % \["))
        expect(page.locator(".tried a")).to_have_count(5)

        # On a phone the run is at the top, and the playback controls stay visible.
        page.get_by_role("button", name="Play", exact=True).click()
        expect(page.locator(".reached").first).to_have_text(re.compile(r"at \d+\.\d s, now \d\.\d\d"))
        page.get_by_role("button", name="Pause", exact=True).click()
        page.evaluate("scrollTo(0, 0)")
        top = page.locator("#run-lanes").bounding_box()
        task = page.locator("#run-task").bounding_box()
        playback = page.locator("#run-transport").bounding_box()
        assert top is not None
        assert task is not None
        assert playback is not None
        assert top["y"] < task["y"]
        assert playback["y"] + playback["height"] <= 844
        page.locator("#main").focus()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("play or pause")
        page.keyboard.press("Escape")
        step = page.locator("#run-transport .time").text_content()
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#run-transport .time")).not_to_have_text(step or "")
        assert watched.errors == []
        page.context.close()


@pytest.mark.parametrize("view", ["teach", "run", "pool", "results"])
def test_no_view_scrolls_sideways_on_a_phone(browser: Browser, studio: Opened, view: str) -> None:
    watched = open_page(browser, f"{studio.url}#{view}", 375, 740)
    page = watched.page
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    take_picture(page, f"studio-{view}-phone")
    assert watched.errors == []
    page.context.close()


def test_a_finger_drags_the_disc(browser: Browser, studio: Opened) -> None:
    watched = open_page(browser, f"{studio.url}#teach?{TASK}", 375, 740)
    page = watched.page
    expect(page.locator("#teach-hint")).to_contain_text("Drag the disc")
    scene = watched.last("scene")
    assert scene is not None
    finger = page.context.new_cdp_session(page)

    def touch(kind: str, *places: tuple[float, float]) -> None:
        points = [{"x": x, "y": y} for x, y in places]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    x, y = watched.on_board(380, 120)  # far from the disc, which the finger must not hide
    touch("touchStart", (x, y))
    for i in range(12):
        touch("touchMove", (x + 4 * i, y))
        page.wait_for_timeout(60)
    touch("touchEnd")
    expect(page.locator("#teach-hint")).to_contain_text("Recording")
    moved = watched.last("moment")
    assert moved is not None
    assert moved["pusher"][0] > scene["pusher"][0] + 20
    assert abs(moved["pusher"][1] - scene["pusher"][1]) < 10
    assert page.evaluate("scrollY") == 0
    page.get_by_role("button", name="Start over").click()
    expect(page.locator("#teach-hint")).to_contain_text("Drag the disc")
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_and_controls_have_names(browser: Browser, studio: Opened, scheme: str) -> None:
    watched = open_page(browser, studio.url, scheme=scheme)
    page = watched.page
    for view in ("teach", "run", "pool", "results"):
        page.goto(f"{studio.url}#{view}")
        expect(page.locator(f"#{view} h1")).to_be_visible()
        page.wait_for_load_state("networkidle")
        assert page.evaluate(AUDIT) == {"faint": [], "nameless": []}, view
    page.context.close()


def test_the_page_reports_a_lost_server_and_reconnects(browser: Browser, tmp_path: Path, runs: Path) -> None:
    Pool.create(tmp_path / "pool")
    with Opened(tmp_path / "pool", runs=runs) as opened:
        watched = open_page(browser, f"{opened.url}#pool")
        page = watched.page
        expect(page.locator("#pool-grid")).to_contain_text("The pool is empty")
        opened.stop()
        expect(page.get_by_role("alert").first).to_contain_text("The server is gone")
        take_picture(page, "studio-gone")
        opened.start()
        expect(page.locator("#gone")).to_be_hidden()
        page.get_by_role("link", name="Teach", exact=True).click()
        expect(page.locator("#teach-hint")).to_contain_text("Drag the disc")
        # The only errors are Chromium's own about the lost connection.
        assert [e for e in watched.errors if "WebSocket" not in e and "ERR_CONNECTION" not in e] == []
        page.context.close()
