"""Films of episodes, which are run again: the world, the predicted future, and the retrieved frames."""

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

TILE = 240  # px of one picture in the film; twice that if it is the only one
CAPTION = 24  # px, height of a line of text
N_MOMENTS = 6  # frames of an episode in the strip
CRF = 26  # of the film: the highest without visible loss in drawn scenes
N_HOLD = 15  # frames for which the last picture stays
N_TOGETHER = 16  # predicted pictures decoded at once
INK, GOOD, PAPER = (60, 60, 60), (20, 120, 60), 255
INKS = ((31, 99, 214), (194, 80, 10))  # of curves
FADED = 0.35  # contrast of the scene around a predicted picture, which shows where the picture ends
NOTHING = 235  # grey, if there is nothing to show
SAME_METRIC = 0.01
Choice = Callable[[EpisodeResult], bool]


@dataclass(frozen=True)
class Trace:
    """A recorded episode."""

    draw: Callable[[int], list[U8]]  # size in px -> a picture of the world for each step
    plans: tuple[Plan | None, ...]  # for each step, the plan that was followed from there
    fps: float


class Recorder:
    """Records a batch in which every trial has its own slot, in order.

    A world that keeps states (`state()`) and draws them later (`draw_states(states, size)`) is drawn at the
    film's size. For other worlds the rendered pictures are kept.
    """

    def __init__(self, agent: RetrievalAgent | None, report: Callable[[int], None] | None = None) -> None:
        self._agent, self._report = agent, report
        self._worlds: list[Any] = []
        self._seen: list[list[Any]] = []
        self._plans: list[list[Plan | None]] = []

    def __call__(self, world: Any) -> None:
        """Record the current state."""
        slot = next((i for i, known in enumerate(self._worlds) if known is world), len(self._worlds))
        if slot == len(self._worlds):  # at the start, worlds come in the order of their slots
            self._worlds.append(world)
            self._seen.append([])
            self._plans.append([])
        self._seen[slot].append(world.state() if hasattr(world, "draw_states") else world.render())
        self._plans[slot].append(None if self._agent is None else self._agent.plan(slot))
        if self._report is not None:
            self._report(1)

    def traces(self) -> list[Trace]:
        """The recorded episodes, by slot."""
        found = []
        for world, seen, plans in zip(self._worlds, self._seen, self._plans, strict=True):
            # A plan is seen only after its first step, but was made at the state before.
            after = (*plans[1:], plans[-1])
            drawn = (
                partial(world.draw_states, seen) if hasattr(world, "draw_states") else partial(_fitted, seen)
            )
            found.append(Trace(drawn, after, float(getattr(world, "control_hz", 10.0))))
        return found


Reel: TypeAlias = dict[str, list[U8]]  # caption of a pane -> its pictures, one per step


@dataclass(frozen=True)
class Shown:
    """An episode's pictures and captions."""

    label: str
    ending: str  # its outcome, shown with the last picture
    solved: bool
    reel: Reel

    def __len__(self) -> int:
        return len(next(iter(self.reel.values())))


def make_reel(trace: Trace, agent: RetrievalAgent | None) -> Reel:
    """Draw an episode; without predicted images or without retrieval that pane is left out."""
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
    """A demonstration with the agent's predictions, retrieved frames and errors so far.

    Args:
        looks: frame -> the plan that was made there.
        errors: name -> one value per plan.
    """
    starts = list(looks)
    n_looks = [sum(start <= t for start in starts) for t in range(len(images))]
    plans = tuple(looks[starts[n - 1]] for n in n_looks)
    reel = make_reel(Trace(partial(_fitted, images), plans, fps), agent)
    reel["error, in deviations"] = [_curves(errors, n, reel["now"][0].shape[0]) for n in n_looks]
    return reel


def _curves(errors: Mapping[str, Sequence[float]], n: int, size: int) -> U8:
    """A plot of the first n values of each series, from left to right."""
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
    """The frames of a film with episodes above each other; the last picture of each stays."""
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
    """One picture with frames of each episode, and of the last one's other panes."""
    last = episodes[-1]
    rows = [(shown.label, next(iter(shown.reel.values()))) for shown in episodes]
    whose = f"{last.label}, " if len(episodes) > 1 else ""
    rows += [(f"{whose}{name}", pane) for name, pane in list(last.reel.items())[1:]]
    width = N_MOMENTS * (rows[0][1][0].shape[1] // 2)
    parts = []
    for words, pane in rows:
        strip = halved(filmstrip(pane, N_MOMENTS))
        missing = ((0, 0), (0, width - strip.shape[1]), (0, 0))  # an episode may have fewer frames
        parts += [_caption(words, width), np.pad(strip, missing, constant_values=PAPER)]
    return np.concatenate(parts)


def write_film(stem: Path, shown: Shown, fps: float) -> tuple[Path, Path]:
    """Write `STEM.mp4`, and some of its frames as `STEM.png`."""
    from recap.video import write_video  # imported here, so that only films need PyAV

    video, strip = (stem.with_name(f"{stem.name}{suffix}") for suffix in (".mp4", ".png"))
    write_video(video, compose([shown]), fps, crf=CRF)
    write_png(strip, still([shown]))
    return video, strip


def _predicted(trace: Trace, real: Sequence[U8], policy: TrainedPolicy) -> list[U8]:
    """For each step the future that its plan predicted, drawn onto the scene where the plan was made."""
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
            frame, config = made[t].conditioning.frame, policy.config.image
            shown = camera_image(pictures.pop(0), frame, config, policy.config.warps, faded)
        found.append(shown)
    return found


def _retrieved(trace: Trace, agent: RetrievalAgent) -> list[U8]:
    """For each step the pool's frame that is followed."""
    pool = agent.retriever.source.view()
    drawn: dict[str, Sequence[U8]] = {}
    made, since = _made(trace), 0
    found: list[U8] = []
    for t, plan in enumerate(trace.plans):
        since = 0 if t in made else since + 1
        if plan is None or plan.conditioning.is_empty:
            found.append(_nothing("nothing retrieved"))
            continue
        ref = plan.conditioning.refs[0]
        if ref.episode_id not in drawn:
            drawn[ref.episode_id] = _pictures(pool.episode(ref.episode_id))
        frames = drawn[ref.episode_id]
        if not len(frames):
            found.append(_nothing("no picture of it"))
            continue
        # An agent that holds still when it is not confident stays at the end of its last chunk.
        at = min(ref.t + min(since, plan.conditioning.valid.shape[1] - 1), len(frames) - 1)
        found += [frames[at]] if frames[at].shape[:2] == (TILE, TILE) else _fitted([frames[at]], TILE)
    return found


def _pictures(episode: Episode) -> Sequence[U8]:
    """Pictures of a demonstration: drawn by its suite if possible, otherwise of its first camera."""
    for suite in suites().values():
        drawn = suite.draw(episode, TILE)
        if drawn is not None:
            return drawn
    return next(iter(episode.images.values()), ())


def _fitted(pictures: Sequence[U8], size: int) -> list[U8]:
    tiles = [resize_image(picture, (size, size)).copy() for picture in pictures]
    for tile in tiles:
        tile[:, [0, 1, -2, -1]] = PAPER  # a margin between panes
    return tiles


def _made(trace: Trace) -> dict[int, Plan]:
    """Step -> the plan that was made there."""
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
    """A line of text: (CAPTION, width, 3); the font has only ASCII."""
    import cv2

    line = np.full((CAPTION, width, 3), paper, np.uint8)
    cv2.putText(line, words, (6, CAPTION - 8), cv2.FONT_HERSHEY_SIMPLEX, 0.45, ink, 1, cv2.LINE_AA)
    return line


@dataclass(frozen=True, slots=True)
class Recording:
    """The files of one episode, and its result when it was run again."""

    video: Path | None  # None if the agent failed at the start
    strip: Path | None
    recorded: EpisodeResult  # in the evaluation
    replayed: EpisodeResult  # in the film

    @property
    def differs(self) -> bool:
        """True if the result changed: the agent is not deterministic, or it has changed."""
        a, b = self.recorded, self.replayed
        # A network's rounding depends on the batch size.
        near = all(abs(a.metrics[k] - b.metrics.get(k, a.metrics[k])) <= SAME_METRIC for k in a.metrics)
        return (a.outcome, a.steps) != (b.outcome, b.steps) or not near


def parse_choice(text: str, spec: EvalSpec) -> Choice:
    """Episodes to record: `3` (the first), `all`, `failures`, by task and seed (`+45:48`), or several."""
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

    The film also shows the agent's predicted future and the retrieved frames, if there are any.
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
    """Captions for an episode, in the characters of the film's font."""
    suite = spec.suite
    task = suite.title(result.task).encode("ascii", "ignore").decode()
    best = result.metrics.get(suite.metric, 0.0)
    ending = result.outcome if suite.metric == "success" else f"best {suite.metric} {best:.2f}"
    return Shown(f"{task}, seed {result.seed}", ending, result.outcome == "success", reel)
