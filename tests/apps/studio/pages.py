"""How a person uses the studio's pages, for browser tests."""

import json
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from playwright.sync_api import Page, WebSocket

from recap.types import Observation
from recap_worlds.pusht.expert import Expert
from recap_worlds.pusht.tasks import INSTRUCTION

MARGIN, SIZE = 6.0, 512.0


class Watched:
    """A page whose errors and teaching messages are written down."""

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
        """Where a place of the teaching board is on the screen."""
        box = self.page.locator("#teach-board svg").bounding_box()
        assert box is not None
        scale = box["width"] / (SIZE + 2 * MARGIN)
        return box["x"] + (x + MARGIN) * scale, box["y"] + (y + MARGIN) * scale


def drag_as_expert(watched: Watched, block: str) -> None:
    """Drag the disc with the mouse as the expert would, from what the server has published."""
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

    wanted(scene)  # plan while time stands still
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
    """Press Tab until that has the focus, as someone without a mouse would."""
    for _ in range(most):
        if page.evaluate("selector => document.activeElement?.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} is not reached by {most} presses of Tab")


def take_picture(page: Page, name: str) -> None:
    """Write a screenshot, light and dark, where they are wanted."""
    folder = os.environ.get("RECAP_SCREENSHOTS")
    if not folder:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    schemes: tuple[tuple[Literal["light", "dark"], str], ...] = (("dark", "-dark"), ("light", ""))
    for scheme, suffix in schemes:
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(350)
        page.screenshot(path=Path(folder) / f"{name}{suffix}.png")
