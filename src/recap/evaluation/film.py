"""Films of episodes, run again: the world, the future that the policy saw coming, and what it retrieved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from recap.agent import RetrievalAgent
from recap.errors import InputError
from recap.evaluation.agents import inner_agent, make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.run_directory import Key
from recap.evaluation.spec import EvalSpec
from recap.pictures import filmstrip, halved, resize_image, write_png
from recap.policies.canonical import camera_image
from recap.running_episode import Plan
from recap.suites import suites
from recap.types import U8, Episode, EpisodeResult

if TYPE_CHECKING:
    from recap.policies.policy import TrainedPolicy

TILE = 240  # px, of one picture in the film; twice that where it is the only one
CAPTION = 24  # px, of a line of text
N_MOMENTS = 6  # of an episode in the still
CRF = 26  # of the film: the last at which no loss is seen in drawn scenes, at two thirds of the size
N_HOLD = 15  # frames that the last picture stays
N_TOGETHER = 16  # predicted pictures decoded at once
INK, GOOD, PAPER = (60, 60, 60), (20, 120, 60), 255
INKS = ((31, 99, 214), (194, 80, 10))  # of curves
FADED = 0.35  # what is left of the scene around a predicted picture, so that one sees where it ends
NOTHING = 235  # grey, where there is nothing to show
SAME_METRIC = 0.01
Choice = Callable[[EpisodeResult], bool]


@dataclass(frozen=True)
class Trace:
    """An episode as it went."""

    draw: Callable[[int], list[U8]]  # (t) pictures of the world, of so many px
    plans: tuple[Plan | None, ...]  # (t) the one that was followed from each state on
    fps: float


class Recorder:
    """Watches a batch in which every trial has a slot of its own, in order.

    A world that keeps states (`state()`) and draws them later (`draw_states(states, size)`) is drawn at the
    size of the film; of any other the pictures that it renders are kept.
    """

    def __init__(self, agent: RetrievalAgent | None, report: Callable[[int], None] | None = None) -> None:
        self._agent, self._report = agent, report
        self._worlds: list[Any] = []
        self._seen: list[list[Any]] = []
        self._plans: list[list[Plan | None]] = []

    def __call__(self, world: Any) -> None:
        """Note where everything is now."""
        slot = next((i for i, known in enumerate(self._worlds) if known is world), len(self._worlds))
        if slot == len(self._worlds):  # at the start they come in the order of their slots
            self._worlds.append(world)
            self._seen.append([])
            self._plans.append([])
        self._seen[slot].append(world.state() if hasattr(world, "draw_states") else world.render())
        self._plans[slot].append(None if self._agent is None else self._agent.plan(slot))
        if self._report is not None:
            self._report(1)

    def traces(self) -> list[Trace]:
        """What was seen, by slot."""
        found = []
        for world, seen, plans in zip(self._worlds, self._seen, self._plans, strict=True):
            # A plan is seen first after its first step, and was made at the state before.
            after = (*plans[1:], plans[-1])
            drawn = (
                partial(world.draw_states, seen) if hasattr(world, "draw_states") else partial(_fitted, seen)
            )
            found.append(Trace(drawn, after, float(getattr(world, "control_hz", 10.0))))
        return found


Reel: TypeAlias = dict[str, list[U8]]  # caption of a pane -> its pictures, one a step


@dataclass(frozen=True)
class Shown:
    """An episode's pictures, and what is written over them."""

    label: str
    ending: str  # how it came out, shown with the last picture
    solved: bool
    reel: Reel

    def __len__(self) -> int:
        return len(next(iter(self.reel.values())))


def make_reel(trace: Trace, agent: RetrievalAgent | None) -> Reel:
    """Draw an episode; a pane is left out where the agent predicts no pictures, or does not retrieve."""
    policy = None if agent is None else agent.policy
    predicts = policy is not None and policy.config.sees and policy.config.future_image
    retrieves = agent is not None and (policy is None or policy.config.retrieval)
    real = trace.draw(TILE if predicts or retrieves else 2 * TILE)
    reel = {"now": real}
    if predicts:
        assert policy is not None
        ahead = policy.config.chunk_size / trace.fps
        reel[f"predicted, {ahead:.2g} s ahead"] = _predicted(trace, real, policy)
    if retrieves:
        assert agent is not None
        reel["retrieved from the pool"] = _retrieved(trace, agent)
    return reel


def recorded_reel(
    images: Sequence[U8],
    fps: float,
    looks: Mapping[int, Plan | None],
    errors: Mapping[str, Sequence[float]],
    agent: RetrievalAgent,
) -> Reel:
    """A demonstration, what the agent saw coming and retrieved at each look, and its errors so far.

    Args:
        looks: frame -> the plan that was made there.
        errors: name -> one value a look.
    """
    starts = list(looks)
    n_looks = [sum(start <= t for start in starts) for t in range(len(images))]
    plans = tuple(looks[starts[n - 1]] for n in n_looks)
    reel = make_reel(Trace(partial(_fitted, images), plans, fps), agent)
    reel["error, in deviations"] = [_curves(errors, n, reel["now"][0].shape[0]) for n in n_looks]
    return reel


def _curves(errors: Mapping[str, Sequence[float]], n: int, size: int) -> U8:
    """A picture of the first n values of each, as lines from left to right."""
    import cv2

    picture = np.full((size, size, 3), PAPER, np.uint8)
    top = max(max(values) for values in errors.values()) or 1.0
    for number, (ink, (name, values)) in enumerate(zip(INKS, errors.items(), strict=False)):
        across = np.linspace(8, size - 8, max(len(values), 2))[:n]
        points = np.stack([across, size - 8 - (size - 48) * np.array(values[:n]) / top], axis=1)
        cv2.polylines(picture, [points.round().astype(np.int32)], False, ink, 2, cv2.LINE_AA)
        words = f"{name} {values[n - 1]:.2f}"
        cv2.putText(
            picture, words, (8, 16 * (number + 1)), cv2.FONT_HERSHEY_SIMPLEX, 0.45, ink, 1, cv2.LINE_AA
        )
    return picture


def compose(episodes: Sequence[Shown]) -> Iterator[U8]:
    """Episodes above each other, played together, with captions; the last picture of each stays."""
    panes = episodes[0].reel.items()
    head = np.concatenate([_caption(name, pane[0].shape[1]) for name, pane in panes], axis=1)
    width = head.shape[1]
    for t in range(max(map(len, episodes)) + N_HOLD):
        rows = [head]
        for shown in episodes:
            i, ink = min(t, len(shown) - 1), INK
            words = f"{shown.label}, step {i}"
            if t >= len(shown) - 1:
                words += f", {shown.ending}"
                ink = GOOD if shown.solved else INK
            rows.append(_caption(words, width, ink))
            rows.append(np.concatenate([pane[i] for pane in shown.reel.values()], axis=1))
        yield np.concatenate(rows)


def still(episodes: Sequence[Shown]) -> U8:
    """Moments of each episode, and of the last one's other panes."""
    last = episodes[-1]
    rows = [(shown.label, next(iter(shown.reel.values()))) for shown in episodes]
    whose = f"{last.label}, " if len(episodes) > 1 else ""
    rows += [(f"{whose}{name}", pane) for name, pane in list(last.reel.items())[1:]]
    width = N_MOMENTS * (rows[0][1][0].shape[1] // 2)
    parts = []
    for words, pane in rows:
        strip = halved(filmstrip(pane, N_MOMENTS))
        missing = ((0, 0), (0, width - strip.shape[1]), (0, 0))  # an episode may have fewer moments
        parts += [_caption(words, width), np.pad(strip, missing, constant_values=PAPER)]
    return np.concatenate(parts)


def write_film(stem: Path, shown: Shown, fps: float) -> tuple[Path, Path]:
    """`STEM.mp4` and, of some of its moments, `STEM.png`."""
    from recap.video import write_video  # who films nothing needs no PyAV

    video, strip = (stem.with_name(f"{stem.name}{suffix}") for suffix in (".mp4", ".png"))
    write_video(video, compose([shown]), fps, crf=CRF)
    write_png(strip, still([shown]))
    return video, strip


def _predicted(trace: Trace, real: Sequence[U8], policy: TrainedPolicy) -> list[U8]:
    """At each step the future that its plan predicted, laid over the scene as it was when it was made."""
    made = _made(trace)
    latents = [plan.chunk.predicted_latents for plan in made.values()]
    known = [latent[0] for latent in latents if latent is not None]
    pictures: list[U8] = []
    for first in range(0, len(known), N_TOGETHER):
        pictures += list(policy.decode_frames(np.stack(known[first : first + N_TOGETHER])))
    shown = np.full_like(real[0], NOTHING)
    found: list[U8] = []
    for t, picture in enumerate(real):
        if t in made:
            faded = (PAPER - FADED * (PAPER - picture.astype(np.float64))).astype(np.uint8)
            frame, config = made[t].given.frame, policy.config.image
            shown = camera_image(pictures.pop(0), frame, config, policy.config.warps, faded)
        found.append(shown)
    return found


def _retrieved(trace: Trace, agent: RetrievalAgent) -> list[U8]:
    """At each step the moment of the pool that is being followed."""
    pool = agent.retriever.source.view()
    drawn: dict[str, Sequence[U8]] = {}
    made, since = _made(trace), 0
    found: list[U8] = []
    for t, plan in enumerate(trace.plans):
        since = 0 if t in made else since + 1
        if plan is None or plan.given.is_empty:
            found.append(_nothing("nothing retrieved"))
            continue
        ref = plan.given.refs[0]
        if ref.episode_id not in drawn:
            drawn[ref.episode_id] = _pictures(pool.episode(ref.episode_id))
        frames = drawn[ref.episode_id]
        if not len(frames):
            found.append(_nothing("no picture of it"))
            continue
        # Who holds still when unsure stays at the end of the chunk that was followed last.
        at = min(ref.t + min(since, plan.given.valid.shape[1] - 1), len(frames) - 1)
        found += [frames[at]] if frames[at].shape[:2] == (TILE, TILE) else _fitted([frames[at]], TILE)
    return found


def _pictures(episode: Episode) -> Sequence[U8]:
    """A demonstration's: drawn anew where its world can, else as its first camera saw it."""
    for suite in suites().values():
        drawn = suite.draw(episode, TILE)
        if drawn is not None:
            return drawn
    return next(iter(episode.images.values()), ())


def _fitted(pictures: Sequence[U8], size: int) -> list[U8]:
    tiles = [resize_image(picture, (size, size)).copy() for picture in pictures]
    for tile in tiles:
        tile[:, [0, 1, -2, -1]] = PAPER  # what a camera saw has no rim of its own
    return tiles


def _made(trace: Trace) -> dict[int, Plan]:
    """At which step each plan was made."""
    found: dict[int, Plan] = {}
    for t, plan in enumerate(trace.plans):
        if plan is not None and (t == 0 or plan is not trace.plans[t - 1]):
            found[t] = plan
    return found


def _nothing(why: str) -> U8:
    picture = np.full((TILE, TILE, 3), NOTHING, np.uint8)
    top = (TILE - CAPTION) // 2
    picture[top : top + CAPTION] = _caption(why, TILE, paper=NOTHING)
    return picture


def _caption(words: str, width: int, ink: tuple[int, int, int] = INK, paper: int = PAPER) -> U8:
    """A line of text: (CAPTION, width, 3); the font has ASCII only."""
    import cv2

    line = np.full((CAPTION, width, 3), paper, np.uint8)
    cv2.putText(line, words, (6, CAPTION - 8), cv2.FONT_HERSHEY_SIMPLEX, 0.45, ink, 1, cv2.LINE_AA)
    return line


@dataclass(frozen=True, slots=True)
class Recording:
    """What was written of one episode, and how the episode ended this time."""

    video: Path | None  # None when the agent could not even begin
    strip: Path | None
    recorded: EpisodeResult  # by the evaluation
    replayed: EpisodeResult  # in front of the camera

    @property
    def differs(self) -> bool:
        """Whether it went otherwise: the agent is not deterministic, or has changed since."""
        a, b = self.recorded, self.replayed
        # A network rounds otherwise on its own than in a batch.
        near = all(abs(a.metrics[k] - b.metrics.get(k, a.metrics[k])) <= SAME_METRIC for k in a.metrics)
        return (a.outcome, a.steps) != (b.outcome, b.steps) or not near


def parse_choice(text: str, spec: EvalSpec) -> Choice:
    """Which episodes: `3` (the first), `all`, `failures`, by task and seed (`+45:48`), or several."""
    ordered: list[Key] = [(task, seed) for task in spec.task_keys for seed in sorted(spec.seeds)]
    chosen: set[Key] = set()
    items = text.split(",")
    for item in items:
        if item == "all":
            chosen |= set(ordered)
        elif item.isdecimal():
            chosen |= set(ordered[: int(item)])
        elif item != "failures":
            chosen.add(_parse_key(item, spec))
    for task, seed in sorted(chosen - set(ordered)):
        raise InputError(f"cannot record {task}:{seed}: this evaluation has no such episode")
    failures = "failures" in items
    return lambda result: (failures and result.outcome == "failure") or (result.task, result.seed) in chosen


def _parse_key(item: str, spec: EvalSpec) -> Key:
    goal, _, seed = item.partition(":")
    try:
        return spec.suite.task_key(goal), int(seed)
    except (ValueError, InputError):
        raise InputError(
            f"unknown episodes to record '{item}': give a number, failures, all, or task:seed such as "
            f"{spec.tasks[0]}:{spec.seeds[0]}, separated by commas"
        ) from None


def record(spec: EvalSpec, results: Sequence[EpisodeResult], out: Path) -> Iterator[Recording]:
    """Run the episodes again, one by one, and write `<task>_<seed>_<outcome>` .mp4 and .png for each.

    Beside the world stand, where the agent has them, the future that it predicts and what it retrieved.
    """
    if not results:
        return
    agent = make_agent(spec)
    inner = inner_agent(agent)
    retrieving = inner if isinstance(inner, RetrievalAgent) else None
    trials = {(trial.task, trial.seed): trial for trial in spec.trials()}
    for result in results:
        recorder = Recorder(retrieving)
        (replayed,) = run_trials(agent, spec, [trials[result.task, result.seed]], 1, recorder)
        traces = recorder.traces()
        if not traces:
            yield Recording(None, None, result, replayed)
            continue
        stem = out / f"{result.task}_{result.seed}_{replayed.outcome}"
        shown = _shown(spec, replayed, make_reel(traces[0], retrieving))
        video, strip = write_film(stem, shown, traces[0].fps)
        yield Recording(video, strip, result, replayed)


def _shown(spec: EvalSpec, result: EpisodeResult, reel: Reel) -> Shown:
    """With words that the film's font has."""
    suite = spec.suite
    task = suite.title(result.task).encode("ascii", "ignore").decode()
    best = result.metrics.get(suite.metric, 0.0)
    ending = result.outcome if suite.metric == "success" else f"best {suite.metric} {best:.2f}"
    return Shown(f"{task}, seed {result.seed}", ending, result.outcome == "success", reel)
