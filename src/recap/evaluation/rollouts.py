"""What is run and how: an evaluation's spec, and episodes rolled out in batches."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from gymnasium.vector import AutoresetMode

from recap.envs.pusht.blocks import block_named
from recap.envs.pusht.env import PushTEnv
from recap.envs.pusht.pushers import pusher_named
from recap.envs.pusht.tasks import ANGLES, EVALUATION_SEEDS, MAX_STEPS, THRESHOLDS, angle_key
from recap.envs.pusht.vector import PushTVectorEnv
from recap.errors import InputError, one_of
from recap.evaluation.agents import Agent, Trial
from recap.types import EpisodeResult, Outcome

ENVS = ("pusht",)
MODES = ("oracle", "single", "aligned", "published")
OBJECTS = ("truth", "pixels")
REACTIONS = ("ignore", "hold", "stop")
MATCHINGS = ("retrieved", "random", "none")
Watcher: TypeAlias = Callable[[PushTEnv], None]


def threshold_key(threshold: float) -> str:
    """How a threshold is written in results: 0.85."""
    return f"{threshold:g}"


@dataclass(frozen=True)
class EvalSpec:
    """What is evaluated; two runs of equal specs have equal results, however they are spread out."""

    agent: str
    env: str = "pusht"
    pusher: str = "disc"
    block: str = "tee"
    angles: tuple[float, ...] = ANGLES
    seeds: tuple[int, ...] = EVALUATION_SEEDS
    max_steps: int = MAX_STEPS
    thresholds: tuple[float, ...] = THRESHOLDS  # an episode runs until the last one is passed
    mode: str = "aligned"  # how agents that retrieve choose: oracle, single, aligned or published
    pool: str | None = None  # what they retrieve from; None is the environment's standard pool
    n_candidates: int | None = None  # trajectories that stage 1 keeps; None as the mode has it
    objects: str = "truth"  # where poses come from: truth, or pixels (then no pose reaches the agent)
    min_confidence: float = 0.0  # below it the reaction is taken
    reaction: str = "ignore"  # to low confidence: ignore, hold or stop
    pool_version: int | None = None  # the pool's when the run began
    n_action_steps: int | None = None  # of a chunk that are executed; None as the agent has it
    denoising_steps: int | None = None  # of a policy; None as it was shipped
    temperature: float | None = None
    sampler: str | None = None
    matching: str = "retrieved"  # or `random`, `none`: what the match is worth
    hindsight: bool | None = None  # parts of demonstrations are retrieved too; None as the agent has it
    residual: bool = True  # False: what is retrieved is acted out as it is
    device: str = "cpu"  # where a policy computes
    noise_seed: int = 0  # other than 0: the same starts with other noise in the policy
    mask: str | None = (
        None  # what a policy's action slot may not look at: `retrieved@3`, see policies.attention
    )
    pose_noise_px: float = 0.0  # standard deviation of what is added to the object's place, anew at each look
    pose_noise_deg: float = 0.0  # and to its angle

    def __post_init__(self) -> None:
        one_of("env", self.env, ENVS)
        one_of("mode", self.mode, MODES)
        one_of("objects", self.objects, OBJECTS)
        one_of("reaction", self.reaction, REACTIONS)
        one_of("matching", self.matching, MATCHINGS)
        if self.n_candidates is not None and self.n_candidates < 1:
            raise InputError(f"candidates {self.n_candidates} keeps nothing: give 1 or more")
        if not 0 <= self.min_confidence < 1:
            raise InputError(
                f"min_confidence {self.min_confidence} is out of range: give 0 to 1, such as 0.05"
            )
        for name in ("pose_noise_px", "pose_noise_deg"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} {getattr(self, name)} is no deviation: give 0 or more, such as 4")
        if (self.pose_noise_px or self.pose_noise_deg) and self.objects == "pixels":
            raise InputError("poses from pixels have their own noise: give --pose-noise with --objects truth")
        pusher_named(self.pusher)
        block_named(self.block)
        for angle in self.angles:
            if not math.isfinite(angle):
                raise InputError(f"goal angle {angle} is not a number: give degrees, such as -30")
        _check_distinct("angle", [angle_key(angle) for angle in self.angles])
        _check_distinct("seed", self.seeds)
        if min(self.seeds) < 0:
            raise InputError(f"seed {min(self.seeds)} is negative: give whole numbers from 0 up")
        if self.max_steps < 1:
            raise InputError(f"max_steps {self.max_steps} leaves no time to act: give 1 or more")
        rising = all(a < b for a, b in zip(self.thresholds, self.thresholds[1:], strict=False))
        if not self.thresholds or not rising or not all(0 < t < 1 for t in self.thresholds):
            raise InputError(f"thresholds {self.thresholds} are not rising fractions: give 0.85, 0.95")

    def trials(self) -> list[Trial]:
        """Every episode, all seeds of one angle before the next."""
        return [Trial(angle_key(angle), angle, seed) for angle in self.angles for seed in self.seeds]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> EvalSpec:
        """The inverse of `to_json`; unknown or missing keys and values of another kind are refused."""
        known = {field.name for field in fields(cls)}
        for key in sorted(set(values) - known):
            raise InputError(f"the config has an unknown key '{key}': it is of a newer version")
        if "agent" not in values:
            raise InputError("the config lacks key 'agent'")
        values = {**cls(agent="").to_json(), **values}  # a run from before a setting was there
        try:
            return cls(
                agent=str(values["agent"]),
                env=str(values["env"]),
                pusher=str(values["pusher"]),
                block=str(values["block"]),
                angles=tuple(float(a) for a in values["angles"]),
                seeds=tuple(int(s) for s in values["seeds"]),
                max_steps=int(values["max_steps"]),
                thresholds=tuple(float(t) for t in values["thresholds"]),
                mode=str(values["mode"]),
                pool=None if values["pool"] is None else str(values["pool"]),
                n_candidates=None if values["n_candidates"] is None else int(values["n_candidates"]),
                objects=str(values["objects"]),
                min_confidence=float(values["min_confidence"]),
                reaction=str(values["reaction"]),
                pool_version=None if values["pool_version"] is None else int(values["pool_version"]),
                n_action_steps=None if values["n_action_steps"] is None else int(values["n_action_steps"]),
                denoising_steps=None if values["denoising_steps"] is None else int(values["denoising_steps"]),
                temperature=None if values["temperature"] is None else float(values["temperature"]),
                sampler=None if values["sampler"] is None else str(values["sampler"]),
                matching=str(values["matching"]),
                hindsight=None if values["hindsight"] is None else bool(values["hindsight"]),
                residual=bool(values["residual"]),
                device=str(values["device"]),
                noise_seed=int(values["noise_seed"]),
                mask=None if values["mask"] is None else str(values["mask"]),
                pose_noise_px=float(values["pose_noise_px"]),
                pose_noise_deg=float(values["pose_noise_deg"]),
            )
        except (TypeError, ValueError) as error:
            raise InputError(f"the config holds a value of another kind: {error}") from error


def _check_distinct(what: str, values: Iterable[str | int]) -> None:
    seen: set[str | int] = set()
    for value in values:
        if value in seen:
            raise InputError(f"{what} {value} is given twice: give each {what} once")
        seen.add(value)
    if not seen:
        raise InputError(f"no {what}s to evaluate: give at least one {what}")


def run_trials(
    agent: Agent, spec: EvalSpec, trials: Iterable[Trial], batch_size: int, watch: Watcher | None = None
) -> Iterator[EpisodeResult]:
    """Run the trials, up to `batch_size` side by side, and yield each result as its episode ends.

    A result depends on its trial alone, not on its neighbours. Whatever the agent or the environment
    raises in an episode makes that one an "error": when several were under way, each is run again alone.

    Args:
        watch: called with the board at the start and after every step of each episode.
    """
    waiting = iter(trials)
    while first := list(islice(waiting, batch_size)):
        batch = _Batch(agent, spec, len(first), watch)
        joining = dict(enumerate(first))
        while joining or batch.running:
            failure: str | None = None
            try:
                finished = batch.advance(joining)
            except Exception:
                failure = traceback.format_exc()
            if failure is not None:
                yield from _blame(agent, spec, list(batch.running.values()), failure, watch)
                break  # the boards may be torn in mid-step: the rest gets new ones
            joining = {}
            for slot, result in finished:
                yield result
                trial = next(waiting, None)
                if trial is not None:
                    joining[slot] = trial


def _blame(
    agent: Agent, spec: EvalSpec, attempts: Sequence[_Attempt], failure: str, watch: Watcher | None
) -> Iterator[EpisodeResult]:
    """Results of the episodes that were under way when something was raised: alone, each shows its own."""
    if len(attempts) == 1:
        yield attempts[0].result("error", failure)
        return
    for attempt in attempts:
        yield from run_trials(agent, spec, [attempt.trial], 1, watch)


class _Attempt:
    """An episode under way."""

    def __init__(self, trial: Trial, spec: EvalSpec) -> None:
        self.trial = trial
        self.steps = 0
        self.max_coverage = 0.0
        self.first_step: dict[str, int | None] = {threshold_key(t): None for t in spec.thresholds}
        self._thresholds = spec.thresholds

    def see(self, coverage: float) -> bool:
        """Note the coverage now; whether the last threshold is passed."""
        self.max_coverage = max(self.max_coverage, coverage)
        for threshold in self._thresholds:
            key = threshold_key(threshold)
            if self.first_step[key] is None and coverage > threshold:
                self.first_step[key] = self.steps
        return coverage > self._thresholds[-1]

    def result(self, outcome: Outcome, error: str | None = None) -> EpisodeResult:
        """What has come of it."""
        trial = self.trial
        return EpisodeResult(
            trial.task, trial.seed, outcome, self.steps, self.max_coverage, self.first_step, error
        )


class _Batch:
    """Boards side by side, each with an episode of its own."""

    def __init__(self, agent: Agent, spec: EvalSpec, n_slots: int, watch: Watcher | None) -> None:
        self.agent = agent
        self.spec = spec
        self.watch = watch
        self.running: dict[int, _Attempt] = {}
        self.env = PushTVectorEnv(
            n_slots,
            max_episode_steps=spec.max_steps,
            autoreset_mode=AutoresetMode.DISABLED,
            pusher=spec.pusher,
            block=spec.block,
            success_threshold=max(spec.thresholds),
        )

    def advance(self, joining: Mapping[int, Trial]) -> list[tuple[int, EpisodeResult]]:
        """Start an episode in each slot of `joining`, then take one step in all; what ended, by slot."""
        finished = self._start(joining) if joining else []
        # What ended at its start is told before anything else can be raised.
        return finished or (self._step() if self.running else [])

    def _start(self, joining: Mapping[int, Trial]) -> list[tuple[int, EpisodeResult]]:
        self.running.update({slot: _Attempt(trial, self.spec) for slot, trial in joining.items()})
        for slot, trial in joining.items():
            self.agent.reset(slot, trial)
        slots = range(self.env.num_envs)
        _, info = self.env.reset(
            seed=[joining[s].seed if s in joining else None for s in slots],
            options={
                "reset_mask": [s in joining for s in slots],
                "goal_angle": [joining[s].goal_angle if s in joining else 0.0 for s in slots],
            },
        )
        return self._note(list(joining), info["coverage"])

    def _step(self) -> list[tuple[int, EpisodeResult]]:
        slots = sorted(self.running)
        with_poses = self.spec.objects == "truth"
        observations = [self.env.boards[s].observe(self.agent.image_size, with_poses) for s in slots]
        chosen = np.asarray(self.agent.act(slots, observations), np.float64)
        if chosen.shape != (len(slots), 2):
            raise InputError(f"the agent returned actions of shape {chosen.shape}: want ({len(slots)}, 2)")
        actions = np.zeros((self.env.num_envs, 2))  # idle boards are given anything
        actions[slots] = chosen
        *_, info = self.env.step(actions)
        for slot in slots:
            self.running[slot].steps += 1
        return self._note(slots, info["coverage"])

    def _note(self, slots: Iterable[int], coverage: Any) -> list[tuple[int, EpisodeResult]]:
        finished: list[tuple[int, EpisodeResult]] = []
        for slot in slots:
            attempt = self.running[slot]
            if self.watch is not None:
                self.watch(self.env.boards[slot])
            if attempt.see(float(coverage[slot])):
                finished.append((slot, attempt.result("success")))
            elif attempt.steps >= self.spec.max_steps:
                finished.append((slot, attempt.result("failure")))
        for slot, _ in finished:
            del self.running[slot]
        return finished
