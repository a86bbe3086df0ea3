"""What one episode looked like: the board, the future that the policy saw coming, and what it retrieved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from recap.agent import Plan, RetrievalAgent
from recap.envs.pusht.env import PushTEnv
from recap.envs.pusht.rendering import RenderedFrames
from recap.envs.pusht.tasks import FPS, INSTRUCTION
from recap.pictures import filmstrip, halved
from recap.policies.canonical import camera_image
from recap.policies.policy import TrainedPolicy
from recap.pool.view import PoolView
from recap.types import F64, U8, Episode

TILE = 240  # px, of one picture in the video
CAPTION = 24  # px, of a line of text
N_MOMENTS = 6  # of an episode in the still
N_HOLD = 15  # frames that the last picture stays
N_TOGETHER = 16  # predicted pictures decoded at once
INK, GOOD, PAPER = (60, 60, 60), (20, 120, 60), 255
FADED = 0.35  # what is left of the board around a predicted picture, so that one sees where it ends
NOTHING = 235  # grey, where there is nothing to show


@dataclass(frozen=True)
class Trace:
    """An episode as it went."""

    states: F64  # (t, 8) pusher x y, block x y angle, goal x y angle
    plans: tuple[Plan | None, ...]  # (t) the one that was followed from each state on


class Recorder:
    """Watches a batch in which every trial has a slot of its own, in order."""

    def __init__(self, agent: RetrievalAgent, report: Callable[[int], None]) -> None:
        self._agent, self._report = agent, report
        self._boards: list[PushTEnv] = []
        self._states: list[list[F64]] = []
        self._plans: list[list[Plan | None]] = []

    def __call__(self, board: PushTEnv) -> None:
        """Note where everything is now."""
        slot = next((i for i, known in enumerate(self._boards) if known is board), len(self._boards))
        if slot == len(self._boards):  # at the start they come in the order of their slots
            self._boards.append(board)
            self._states.append([])
            self._plans.append([])
        self._states[slot].append(board.state())
        self._plans[slot].append(self._agent.plan(slot))
        self._report(1)

    def traces(self) -> list[Trace]:
        """What was seen, by slot."""
        pairs = zip(self._states, self._plans, strict=True)
        # A plan is seen first after its first step, and was made at the state before.
        return [Trace(np.array(states), (*plans[1:], plans[-1])) for states, plans in pairs]


Reel: TypeAlias = dict[str, list[U8]]  # caption of a pane -> its pictures, one a step


@dataclass(frozen=True)
class Shown:
    """An episode's pictures, and what is written over them."""

    label: str
    max_coverage: float
    solved: bool
    reel: Reel

    def __len__(self) -> int:
        return len(next(iter(self.reel.values())))


def make_reel(trace: Trace, policy: TrainedPolicy, pool: PoolView, pusher: str, block: str) -> Reel:
    """Draw an episode; a policy that predicts no pictures has no such pane."""
    drawn = RenderedFrames(_as_episode(trace, pusher, block), TILE)
    real = [drawn[t] for t in range(len(trace.states))]
    reel = {"now": real}
    if policy.config.sees and policy.config.future_image:
        ahead = policy.config.chunk_size / FPS
        reel[f"predicted, {ahead:g} s ahead"] = _predicted(trace, real, policy)
    reel["retrieved from the pool"] = _retrieved(trace, pool)
    return reel


def compose(episodes: Sequence[Shown]) -> list[U8]:
    """Episodes above each other, played together, with captions; the last picture of each stays."""
    head = np.concatenate([_caption(name, TILE) for name in episodes[0].reel], axis=1)
    width = head.shape[1]
    frames = []
    for t in range(max(map(len, episodes)) + N_HOLD):
        rows = [head]
        for shown in episodes:
            i, ink = min(t, len(shown) - 1), INK
            words = f"{shown.label}, step {i}"
            if t >= len(shown) - 1:
                words += f", best coverage {shown.max_coverage:.2f}"
                ink = GOOD if shown.solved else INK
            rows.append(_caption(words, width, ink))
            rows.append(np.concatenate([pane[i] for pane in shown.reel.values()], axis=1))
        frames.append(np.concatenate(rows))
    return frames


def still(episodes: Sequence[Shown]) -> U8:
    """Moments of each episode's board, and of the last one's other panes."""
    last = episodes[-1]
    rows = [(shown.label, next(iter(shown.reel.values()))) for shown in episodes]
    rows += [(f"{last.label}, {name}", pane) for name, pane in list(last.reel.items())[1:]]
    width = N_MOMENTS * TILE // 2
    parts = []
    for words, pane in rows:
        strip = halved(filmstrip(pane, N_MOMENTS))
        missing = ((0, 0), (0, width - strip.shape[1]), (0, 0))  # an episode may have fewer moments
        parts += [_caption(words, width), np.pad(strip, missing, constant_values=PAPER)]
    return np.concatenate(parts)


def _as_episode(trace: Trace, pusher: str, block: str) -> Episode:
    """The trace in the form that can be drawn."""
    n = len(trace.states)
    return Episode(
        id="demo",
        scene_id="demo",
        task=INSTRUCTION,
        embodiment=pusher,
        fps=FPS,
        timestamps=np.arange(n) / FPS,
        proprio=trace.states[:, :2].astype(np.float32),
        actions=np.zeros((n, 2), np.float32),
        objects={"block": trace.states[:, 2:5].astype(np.float32)},
        goal=trace.states[0, 5:].astype(np.float32),
        attributes={"block": block},
    )


def _predicted(trace: Trace, real: Sequence[U8], policy: TrainedPolicy) -> list[U8]:
    """At each step the future that its plan predicted, laid over the board as it was when it was made."""
    made = _made(trace)
    latents = [plan.chunk.predicted_latents for plan in made.values()]
    known = [latent[0] for latent in latents if latent is not None]
    pictures: list[U8] = []
    for first in range(0, len(known), N_TOGETHER):
        pictures += list(policy.decode_frames(np.stack(known[first : first + N_TOGETHER])))
    shown = np.full_like(real[0], NOTHING)
    found: list[U8] = []
    for t, board in enumerate(real):
        if t in made:
            faded = (PAPER - FADED * (PAPER - board.astype(np.float64))).astype(np.uint8)
            frame, config = made[t].given.frame, policy.config.image
            shown = camera_image(pictures.pop(0), frame, config, policy.aligned, faded)
        found.append(shown)
    return found


def _retrieved(trace: Trace, pool: PoolView) -> list[U8]:
    """At each step the moment of the pool that is being followed."""
    drawn: dict[str, RenderedFrames] = {}
    made, since = _made(trace), 0
    found: list[U8] = []
    for t, plan in enumerate(trace.plans):
        since = 0 if t in made else since + 1
        if plan is None or plan.given.is_empty:
            found.append(_nothing())
            continue
        ref = plan.given.refs[0]
        if ref.episode_id not in drawn:
            drawn[ref.episode_id] = RenderedFrames(pool.episode(ref.episode_id), TILE)
        frames = drawn[ref.episode_id]
        found.append(frames[min(ref.t + since, len(frames) - 1)])
    return found


def _made(trace: Trace) -> dict[int, Plan]:
    """At which step each plan was made."""
    found: dict[int, Plan] = {}
    for t, plan in enumerate(trace.plans):
        if plan is not None and (t == 0 or plan is not trace.plans[t - 1]):
            found[t] = plan
    return found


def _nothing() -> U8:
    picture = np.full((TILE, TILE, 3), NOTHING, np.uint8)
    top = (TILE - CAPTION) // 2
    picture[top : top + CAPTION] = _caption("nothing to retrieve", TILE, paper=NOTHING)
    return picture


def _caption(words: str, width: int, ink: tuple[int, int, int] = INK, paper: int = PAPER) -> U8:
    """A line of text: (CAPTION, width, 3); the font has ASCII only."""
    import cv2

    line = np.full((CAPTION, width, 3), paper, np.uint8)
    cv2.putText(line, words, (6, CAPTION - 8), cv2.FONT_HERSHEY_SIMPLEX, 0.45, ink, 1, cv2.LINE_AA)
    return line
