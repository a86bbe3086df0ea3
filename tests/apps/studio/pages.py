"""User actions on the studio's pages, for browser tests."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
from playwright.sync_api import Browser, Page, WebSocket

from recap.types import Observation
from recap_worlds.pusht.expert import Expert
from recap_worlds.pusht.tasks import INSTRUCTION

ROOT = Path(__file__).parents[3]
MARGIN, SIZE = 6.0, 512.0
PATIENCE_MS = 25_000  # enough for a busy machine
AUDIT = (Path(__file__).parent / "audit.js").read_text("utf-8")


class Watched:
    """A page that records its errors and its teaching messages."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.taught: list[dict[str, Any]] = []
        page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("websocket", self._listen)

    def _listen(self, socket: WebSocket) -> None:
        if socket.url.endswith("/api/studio/teach"):
            socket.on("framereceived", lambda frame: self.taught.append(json.loads(frame)))

    def last(self, *kinds: str) -> dict[str, Any] | None:
        """The newest teaching message of these kinds."""
        return next((m for m in reversed(self.taught) if m["type"] in kinds), None)

    def on_board(self, x: float, y: float) -> tuple[float, float]:
        """The screen position of a point on the teaching board."""
        box = self.page.locator("#teach-board svg").bounding_box()
        assert box is not None
        scale = box["width"] / (SIZE + 2 * MARGIN)
        return box["x"] + (x + MARGIN) * scale, box["y"] + (y + MARGIN) * scale


def open_page(
    browser: Browser,
    url: str,
    width: int = 1366,
    height: int = 860,
    scheme: Literal["light", "dark"] = "light",
) -> Watched:
    """Opens a page in a new context with a size and a colour scheme."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=width < 500
    )
    context.set_default_timeout(PATIENCE_MS)
    watched = Watched(context.new_page())
    watched.page.goto(url)
    return watched


def drag_as_expert(watched: Watched, block: str) -> None:
    """Drags the disc with the mouse along the expert's actions for the published states."""
    page, expert = watched.page, Expert("disc", block)
    scene = watched.last("scene")
    assert scene is not None
    goal = np.array(scene["goal"])

    def wanted(moment: dict[str, Any]) -> tuple[float, float]:
        seen = Observation(
            np.array(moment["pusher"], np.float32),
            INSTRUCTION,
            0.0,
            objects={"block": np.array(moment["block"], np.float64)},
            goal=goal,
        )
        x, y = expert.act(seen)
        return watched.on_board(float(x), float(y))

    wanted(scene)  # plan before the first step
    expert.reset(0)
    page.mouse.move(*watched.on_board(*scene["pusher"]))
    page.mouse.down()
    done = -1
    while watched.last("scene", "stopped") is scene:
        moment = watched.last("scene", "moment")
        assert moment is not None
        if moment["t"] > done:
            done = moment["t"]
            page.mouse.move(*wanted(moment))
        page.wait_for_timeout(4)
    page.mouse.up()


def hold_key(page: Page, key: str, seconds: float) -> None:
    """Keep a key down."""
    page.keyboard.down(key)
    page.wait_for_timeout(1000 * seconds)
    page.keyboard.up(key)


def tab_to(page: Page, selector: str, most: int = 40) -> None:
    """Press Tab until the selected element has the focus."""
    for _ in range(most):
        if page.evaluate("selector => document.activeElement?.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} is not reached by {most} presses of Tab")


def take_picture(page: Page, name: str) -> None:
    """Write the screenshots that the docs show, light and dark, if RECAP_SCREENSHOTS is set."""
    folder = os.environ.get("RECAP_SCREENSHOTS")
    if not folder:
        return
    shown = pictures_of_the_docs()
    schemes: tuple[tuple[Literal["light", "dark"], str], ...] = (("dark", "-dark"), ("light", ""))
    for scheme, suffix in schemes:
        page.emulate_media(color_scheme=scheme)
        if f"{name}{suffix}.png" not in shown:
            continue
        page.wait_for_timeout(350)
        page.screenshot(path=Path(folder) / f"{name}{suffix}.png")
        first = str(page.evaluate("document.querySelector('script[type=module]').src")).rpartition("/")[2]
        made = Path(folder) / "studio.json"
        known = json.loads(made.read_text("utf-8")) if made.exists() else {}
        known[f"{name}{suffix}.png"] = {"page": first, "source": fingerprint(first)}
        made.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", "utf-8")


def pictures_of_the_docs() -> set[str]:
    """File names of the studio's screenshots in the docs."""
    pages = (ROOT / "docs").rglob("*.md")
    return {name for page in pages for name in re.findall(r"(studio-[\w-]+\.png)", page.read_text("utf-8"))}


def fingerprint(first: str) -> str:
    """A hash of a page's HTML, its styles, and its first module with all imports."""
    folder = ROOT / "apps/recap_apps/studio/page"
    found: dict[str, bytes] = {}
    left = [first]
    while left:
        name = left.pop()
        if name not in found:
            found[name] = (folder / name).read_bytes()
            left += re.findall(r'from "\./([\w.]+)"', found[name].decode())
    page = next(
        file for file in sorted(folder.glob("*.html")) if f"/studio/{first}" in file.read_text("utf-8")
    )
    styles = re.findall(r'href="/studio/([\w]+\.css)"', page.read_text("utf-8"))
    found |= {name: (folder / name).read_bytes() for name in [page.name, *styles]}
    return hashlib.sha256(b"\0".join(found[name] for name in sorted(found))).hexdigest()[:16]
