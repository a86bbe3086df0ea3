"""The demo's specification and results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from recap.assembly import AgentConfig
from recap.errors import InputError
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.evaluation.statistics import PairedDifference, paired_difference, wilson
from recap.evaluation.summary import Rate, succeeded
from recap.types import EpisodeResult
from recap_worlds.pusht.collecting import CollectSpec
from recap_worlds.pusht.tasks import MAX_STEPS, THRESHOLDS

ENV = "pusht"
POLICY = "pusht-nano"
BLOCK = "tee"
ANGLE = 30.0  # degrees; a goal that is not in the training data
ADDITIONS = (10, 40)
N_SEEDS = 8

LEARNER, TEACHER = "triangle", "disc"
FIRST_TEST_SEED, MAX_SEEDS = 900, 100  # development seeds, 900…999
FIRST_POOL_SEED = 800_000
MAX_DEMONSTRATIONS = 2000
KEYS = tuple(threshold_key(t) for t in THRESHOLDS)


@dataclass(frozen=True)
class DemoSpec:
    """What the demo shows; equal specs give equal results, except for times."""

    policy: str = POLICY  # a shipped name or a path
    block: str = BLOCK
    angle: float = ANGLE
    additions: tuple[int, ...] = ADDITIONS  # demonstrations to append at each stage
    n_seeds: int = N_SEEDS
    max_steps: int = MAX_STEPS

    def __post_init__(self) -> None:
        if not self.additions or min(self.additions) < 1 or sum(self.additions) > MAX_DEMONSTRATIONS:
            given = ",".join(map(str, self.additions))
            raise InputError(
                f"additions '{given}' cannot be appended: give sizes from 1 up with commas between, such as "
                f"10,40, at most {MAX_DEMONSTRATIONS} together"
            )
        if not 1 <= self.n_seeds <= MAX_SEEDS:
            raise InputError(f"{self.n_seeds} seeds cannot be rolled out: give 1 to {MAX_SEEDS}")
        self.evaluation()
        self.collection(0, 96)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The starts of the rollouts at every stage."""
        return tuple(range(FIRST_TEST_SEED, FIRST_TEST_SEED + self.n_seeds))

    def evaluation(self) -> EvalSpec:
        """The evaluation of the learner."""
        return EvalSpec(
            AgentConfig(self.policy),
            ENV,
            options={"pusher": LEARNER, "block": self.block},
            tasks=(str(self.angle),),
            seeds=self.seeds,
            max_steps=self.max_steps,
        )

    def collection(self, addition: int, image_size: int) -> CollectSpec:
        """The teacher's demonstrations for one addition, in scenes that are used nowhere else."""
        return CollectSpec(
            TEACHER,
            (self.angle,),
            self.additions[addition],
            block=self.block,
            first_seed=FIRST_POOL_SEED + sum(self.additions[:addition]),
            image_size=image_size,
        )


@dataclass(frozen=True)
class Absorbed:
    """One addition, and the time until it was used."""

    ids: tuple[str, ...]
    collect_s: float
    add_ms: float  # until it was on disk
    use_ms: float  # from then until the first retrieval that used it
    version: int  # of the pool

    @property
    def total_ms(self) -> float:
        """From the call of `add` to the first retrieval that used the addition."""
        return self.add_ms + self.use_ms


@dataclass(frozen=True)
class Stage:
    """Results with one size of the pool."""

    n_demonstrations: int
    policy: tuple[EpisodeResult, ...]  # by seed
    replay: tuple[EpisodeResult, ...]
    retrieved: tuple[str, ...]  # demonstrations that the policy retrieved from
    absorbed: Absorbed | None  # the addition before it; None for the first stage

    def rate(self, key: str, replay: bool = False) -> Rate:
        """Success rate at that threshold."""
        results = self.replay if replay else self.policy
        k = sum(succeeded(result, key) for result in results)
        return Rate(k, len(results), wilson(k, len(results)))


def best_coverage(result: EpisodeResult) -> float:
    """The highest coverage of the goal at any step."""
    return result.metrics["coverage"]


@dataclass(frozen=True)
class Gain:
    """The policy at two stages, compared by seed."""

    gained: tuple[int, ...]  # seeds
    lost: tuple[int, ...]
    pairs: PairedDifference


def gain(before: Stage, after: Stage, key: str) -> Gain:
    """Starts that succeed at that threshold only after, or only before."""
    old, new = ({(r.task, r.seed): succeeded(r, key) for r in stage.policy} for stage in (before, after))
    return Gain(
        gained=tuple(name[1] for name in new if new[name] and not old[name]),
        lost=tuple(name[1] for name in new if old[name] and not new[name]),
        pairs=paired_difference(old, new),
    )


def against_replay(stage: Stage, key: str) -> PairedDifference:
    """Policy minus replay, paired by start: the effect of the network at that stage."""
    replay, policy = (
        {(r.task, r.seed): succeeded(r, key) for r in results} for results in (stage.replay, stage.policy)
    )
    return paired_difference(replay, policy)


@dataclass(frozen=True)
class DemoResult:
    """All results of the demo."""

    spec: DemoSpec
    fingerprints: tuple[str, str]  # of the weights, first and last
    n_parameters: Mapping[str, int]
    n_bytes: int  # of the weights on disk
    stages: tuple[Stage, ...]
    film_seed: int
    wall_s: float = 0.0

    @property
    def total(self) -> dict[str, Gain]:
        """Gain from the first to the last stage, by threshold."""
        return {key: gain(self.stages[0], self.stages[-1], key) for key in KEYS}

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "spec": asdict(self.spec),
            "seeds": list(self.spec.seeds),
            "fingerprint_before": self.fingerprints[0],
            "fingerprint_after": self.fingerprints[1],
            "parameters": dict(self.n_parameters),
            "film_seed": self.film_seed,
            "wall_s": round(self.wall_s, 1),
            "stages": [_plain(stage) for stage in self.stages],
            "gain": {
                key: {
                    "gained": list(found.gained),
                    "lost": list(found.lost),
                    **_difference(found.pairs),
                }
                for key, found in self.total.items()
            },
        }


def _difference(pairs: PairedDifference) -> dict[str, float]:
    return {"difference": pairs.difference, "low": pairs.interval.low, "high": pairs.interval.high}


def _plain(stage: Stage) -> dict[str, Any]:
    absorbed = stage.absorbed
    return {
        "demonstrations": stage.n_demonstrations,
        "policy": {key: stage.rate(key).to_json() for key in KEYS},
        "replay": {key: stage.rate(key, replay=True).to_json() for key in KEYS},
        "policy_less_replay": {key: _difference(against_replay(stage, key)) for key in KEYS},
        "max_coverage": {str(result.seed): round(best_coverage(result), 4) for result in stage.policy},
        "demonstrations_retrieved": len(stage.retrieved),
        "absorbed": None
        if absorbed is None
        else {
            "n": len(absorbed.ids),
            "collect_s": round(absorbed.collect_s, 2),
            "add_ms": round(absorbed.add_ms, 1),
            "use_ms": round(absorbed.use_ms, 1),
            "pool_version": absorbed.version,
        },
    }
