"""Collects demonstrations of the scripted expert as a LeRobot dataset: parallel, resumable, repeatable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from recap.errors import InputError, RecapError
from recap.types import F64, Episode, Observation
from recap_worlds.pusht.blocks import block_named
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.expert import Expert
from recap_worlds.pusht.pushers import pusher_named
from recap_worlds.pusht.starts import start_near_goal
from recap_worlds.pusht.tasks import (
    ACTION_SPACE,
    FIRST_COLLECTION_SEED,
    FPS,
    INSTRUCTION,
    MAX_STEPS,
    angle_key,
    check_collection_seeds,
    scene_id,
)

MAX_DEMOS = 1_000_000
N_ATTEMPTS = 5  # a failed demonstration is tried again with another seed of the expert
NOISE_MEMORY = 0.7  # share of the last step's noise that is kept, so that noise pushes off course
NOISE_BURST, NOISE_PAUSE = 15, 25  # mean steps with and without noise; recovering needs steps without


@dataclass(frozen=True)
class Demo:
    """One demonstration to collect."""

    index: int
    angle: float
    seed: int


@dataclass(frozen=True)
class CollectSpec:
    """What to collect; two pushers with the same goals and seeds start from the same scenes."""

    pusher: str
    angles: tuple[float, ...]
    per_angle: int
    block: str = "tee"
    noise: float = 0.0  # px; executed but not recorded, so that demonstrations contain recoveries
    speed: float = 1.0
    style: int | None = 0  # None: a different style for each demonstration
    first_seed: int = FIRST_COLLECTION_SEED
    image_size: int = 96  # 0: no images
    threshold: float = 0.95  # coverage at which a demonstration ends
    near: float = 0.0  # px and degrees; the block starts within this of its goal; 0: anywhere

    def __post_init__(self) -> None:
        Expert(pusher_named(self.pusher), block_named(self.block).name, self.speed)
        if not self.angles or self.per_angle < 1 or len(self.angles) * self.per_angle > MAX_DEMOS:
            raise InputError(
                f"nothing to collect, or more than {MAX_DEMOS}: give angles and how many for each"
            )
        for angle in self.angles:
            PushTEnv(block=self.block, goal_angle=angle)
        if not 0.5 <= self.threshold <= 0.99:
            raise InputError(f"threshold {self.threshold} is out of range: give 0.5 to 0.99")
        if not (math.isfinite(self.noise) and 0 <= self.noise <= 50):
            raise InputError(f"noise {self.noise} is out of range: give 0 to 50 px")
        if not (math.isfinite(self.near) and 0 <= self.near <= 100):
            raise InputError(f"near {self.near} is out of range: give 0 (anywhere) to 100 px")
        if self.image_size and (self.image_size % 2 or not 16 <= self.image_size <= 1024):
            raise InputError(
                f"image size {self.image_size} cannot be filmed: give 0, or an even number from 16 to 1024"
            )
        check_collection_seeds(self.first_seed, len(self.angles) * self.per_angle)

    def demos(self) -> list[Demo]:
        """All demonstrations, angle by angle; each has its own seed."""
        return [
            Demo(i, angle, self.first_seed + i)
            for i, angle in enumerate(a for a in self.angles for _ in range(self.per_angle))
        ]


def collect(
    spec: CollectSpec, out: Path, *, workers: int = 1, progress: Callable[[int, int], None] | None = None
) -> None:
    """Collect missing demonstrations and write the dataset `out`; the same call resumes after a stop.

    Until all are done they are kept in `out`.partial; an incomplete one counts as missing.
    """
    from recap_worlds.staging import collect_lerobot

    make = partial(demonstrations, spec)
    collect_lerobot(asdict(spec), spec.demos(), make, out, spec.pusher, workers=workers, progress=progress)


def demonstrations(spec: CollectSpec, demos: Iterator[Demo]) -> Iterator[tuple[int, Episode]]:
    """Yield each demonstration with its index."""
    for demo in demos:
        yield demo.index, demonstrate(spec, demo)


def demonstrate(spec: CollectSpec, demo: Demo) -> Episode:
    """One successful demonstration."""
    for attempt in range(N_ATTEMPTS):
        episode = _attempt(spec, demo, attempt)
        if episode.success:
            return episode
    raise RecapError(
        f"the expert failed {N_ATTEMPTS} times at {angle_key(demo.angle)}°, seed {demo.seed}: "
        f"lower --noise, or start at another seed"
    )


def _attempt(spec: CollectSpec, demo: Demo, attempt: int) -> Episode:
    style = demo.seed if spec.style is None else spec.style
    expert = Expert(spec.pusher, spec.block, spec.speed, style)
    expert.reset(demo.seed + attempt)
    env = PushTEnv(spec.pusher, demo.angle, block=spec.block, success_threshold=spec.threshold)
    env.reset(seed=demo.seed)
    if spec.near:
        env.reset(options={"reset_to_state": start_near_goal(env, spec.near)})
    rng = np.random.default_rng([demo.seed, attempt])
    noise, noisy = np.zeros(2), False
    observations: list[Observation] = []
    actions: list[F64] = []
    success = False
    while not success and len(actions) < MAX_STEPS / min(spec.speed, 1.0):
        observations.append(env.observe(spec.image_size))
        actions.append(expert.act(observations[-1]))
        noisy = rng.random() < (1 - 1 / NOISE_BURST if noisy else 1 / NOISE_PAUSE)
        fresh = spec.noise * math.sqrt(1 - NOISE_MEMORY**2) * rng.normal(size=2)
        noise = NOISE_MEMORY * noise + noisy * fresh
        success = env.step(np.clip(actions[-1] + noise, 0, 512))[2]
    scene = scene_id(spec.block, demo.angle, demo.seed) + ("/near" if spec.near else "")
    return Episode(
        id=f"{scene}/{spec.pusher}",
        scene_id=scene,
        task=INSTRUCTION,
        embodiment=spec.pusher,
        fps=FPS,
        timestamps=np.arange(len(actions)) / FPS,
        proprio=np.array([o.proprio for o in observations], np.float32),
        actions=np.array(actions, np.float32),
        objects={"block": np.array([o.objects["block"] for o in observations], np.float32)},
        goal=np.asarray(observations[0].goal, np.float32),
        images={"top": [o.images["top"] for o in observations]} if spec.image_size else {},
        action_space=ACTION_SPACE,
        success=success,
        source=f"scripted expert, attempt {attempt + 1}",
        attributes={
            "block": spec.block,
            "goal_angle": demo.angle,
            "noise": spec.noise,
            "seed": demo.seed,
            "speed": spec.speed,
            "style": style,
            "symmetry": block_named(spec.block).symmetry,
            **({"near": spec.near} if spec.near else {}),
        },
    )
