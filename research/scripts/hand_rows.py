"""Control rows with a pool of simulated hands: the ViperX replays their demonstrations, without training.

    python research/scripts/hand_rows.py --seeds 500:508 --out rows.json

One pool of all ten tasks with `--each` demonstrations per task from seed 100000 on, with the errors of a film
by two cameras or one (`two-cameras`, `one-camera`). Either can be followed by `+stretched` (times are
stretched by the person's speed, as by `recap lift --speed`), `+gated` (the progress gate) and `+calibrated`
(demonstrations are moved by a constant offset in the tool's frame, fitted on pairs of seen tasks). Finished
rows are kept. `--write-pool DIR` writes the pool of one row, to train or evaluate a policy with it.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recap.agent_config import AgentConfig
from recap.api import Agent
from recap.cli.one_line import run_script
from recap.cli.ranges import parse_seeds
from recap.evaluation.statistics import wilson
from recap.geometry3 import ARM_DIM, GRIPPER, ROTATION, rotation6_to_matrix
from recap.pool.importers.resample import resample
from recap.pool.memory import MemoryPool
from recap.pool.store import Pool
from recap.types import F64, Episode
from recap_worlds.dualarm.collection import demonstrate_patiently
from recap_worlds.dualarm.env import DualArmEnv
from recap_worlds.dualarm.persons import FILMS, as_filmed
from recap_worlds.dualarm.robot import TWO_ARMS
from recap_worlds.dualarm.tasks import tasks_named

TARGET, FIRST_SEED = "viperx", 100_000
ROWS = ",".join(
    [
        *("two-cameras" + more for more in ("", "+gated", "+stretched", "+stretched+gated")),
        "two-cameras+stretched+gated+calibrated",
        *("one-camera" + more for more in ("", "+calibrated")),
        *("one-camera+stretched+gated" + more for more in ("", "+calibrated")),
    ]
)


class Demonstrations:
    """Demonstrations of both embodiments by task, each made once."""

    def __init__(self, each: int) -> None:
        self.each = each
        self._made: dict[tuple[str, str], list[Episode]] = {}

    def get(self, embodiment: str, task: str) -> list[Episode]:
        """Successful demonstrations."""
        if (embodiment, task) not in self._made:
            env = DualArmEnv(task, embodiment, image_size=0)
            made = [
                demonstrate_patiently(task, embodiment, FIRST_SEED + i, 0, env=env) for i in range(self.each)
            ]
            env.close()
            self._made[embodiment, task] = [episode for episode in made if episode.success]
        return self._made[embodiment, task]

    def filmed(self, film: str, task: str) -> list[Episode]:
        """Demonstrations of hands with the errors of a film."""
        return [as_filmed(e, FILMS[film], int(e.attributes["seed"])) for e in self.get("hand", task)]


def closings(episode: Episode) -> dict[int, int]:
    """Arm -> the frame at which its gripper is first commanded to close."""
    grips = episode.actions.reshape(len(episode), 2, ARM_DIM)[..., GRIPPER]
    return {arm: int(np.argmax(grips[:, arm] < 0.5)) for arm in range(2) if (grips[:, arm] < 0.5).any()}


def fit_offset(demos: Demonstrations, film: str) -> F64:
    """(3,) in the tool's frame: from the hand's grip position to the robot's, over seen tasks."""
    offsets = []
    for task in tasks_named("seen"):
        robots = {episode.scene_id: episode for episode in demos.get(TARGET, task)}
        for hand in demos.filmed(film, task):
            robot = robots.get(hand.scene_id)
            if robot is None:
                continue
            ours, theirs = closings(robot), closings(hand)
            for arm in set(ours) & set(theirs):
                a, b = (e.proprio.reshape(-1, 2, ARM_DIM)[:, arm] for e in (robot, hand))
                a, b = a[ours[arm]], b[theirs[arm]]
                offsets.append(rotation6_to_matrix(b[ROTATION]).T @ (a[:3] - b[:3]).astype(np.float64))
    return np.asarray(np.median(offsets, axis=0))


def moved(episode: Episode, offset: F64) -> Episode:
    """The episode with its tools moved by an offset in the tools' own frames."""

    def shift(rows: Any) -> Any:
        arms = np.array(rows, np.float64).reshape(len(rows), 2, ARM_DIM)
        arms[..., :3] += rotation6_to_matrix(arms[..., ROTATION]) @ offset
        return arms.reshape(len(rows), -1).astype(np.float32)

    return replace(episode, actions=shift(episode.actions), proprio=shift(episode.proprio))


def slowed(episode: Episode) -> Episode:
    """The episode slowed down to the robot's speed."""
    speed = float(episode.attributes["speed"])
    slow = replace(episode, fps=episode.fps / speed, timestamps=episode.timestamps * speed)
    return resample(slow, TWO_ARMS.control_hz)


def shown_of(row: str, tasks: Sequence[str], demos: Demonstrations, offsets: dict[str, F64]) -> list[Episode]:
    """The pool of a row."""
    film, *extras = row.split("+")
    shown = [episode for task in tasks for episode in demos.filmed(film, task)]
    if "calibrated" in extras:
        offsets.setdefault(film, fit_offset(demos, film))
        shown = [moved(episode, offsets[film]) for episode in shown]
    return [slowed(episode) for episode in shown] if "stretched" in extras else shown


def agent_of(row: str, demos: Demonstrations, offsets: dict[str, F64]) -> Agent:
    """Replay with the pool of a row."""
    shown = shown_of(row, tasks_named("seen,unseen"), demos, offsets)
    config = AgentConfig(retrieval="dualarm-parts", gate="gated" in row.split("+"))
    return Agent(None, MemoryPool(shown), config, robot=TWO_ARMS)


def main() -> int:
    """Run the missing rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--tasks", default="seen,unseen")
    parser.add_argument("--seeds", default="500:508")
    parser.add_argument("--each", type=int, default=25)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path, help="file of the rows")
    where.add_argument("--write-pool", type=Path, metavar="DIR", help="only the pool of the row")
    options = parser.parse_args()
    demos, offsets = Demonstrations(options.each), dict[str, F64]()
    if options.write_pool:
        Pool.create(str(options.write_pool)).add(
            shown_of(options.rows, tasks_named(options.tasks), demos, offsets)
        )
        return 0
    kept = json.loads(options.out.read_text()) if options.out.exists() else {"episodes": {}}
    episodes: dict[str, bool] = kept["episodes"]
    seen = set(tasks_named("seen"))
    for row in options.rows.split(","):
        agent = None
        for task in tasks_named(options.tasks):
            wanted = [s for s in parse_seeds(options.seeds) if f"{row}/{task}/{s}" not in episodes]
            if not wanted:
                continue
            agent = agent or agent_of(row, demos, offsets)
            env = DualArmEnv(task, TARGET, image_size=0)
            for seed in wanted:
                env.reset(seed=seed)
                agent.reset(seed)
                success = truncated = False
                while not (success or truncated):
                    _, _, success, truncated, _ = env.step(agent.act(env.observe(None)))
                episodes[f"{row}/{task}/{seed}"] = bool(success)
            env.close()
        counts: dict[str, list[bool]] = defaultdict(list)
        for key, success in episodes.items():
            if key.startswith(f"{row}/"):
                counts["seen" if key.split("/")[1] in seen else "unseen"].append(success)
        rows = kept.setdefault("rows", {})
        rows[row] = {
            kind: {
                "successes": sum(all_),
                "episodes": len(all_),
                "interval": list(wilson(sum(all_), len(all_))),
            }
            for kind, all_ in counts.items()
        }
        kept["offsets"] = {**kept.get("offsets", {}), **{k: v.tolist() for k, v in offsets.items()}}
        kept["each"] = options.each
        options.out.write_text(json.dumps(kept, indent=1) + "\n")
        print(row, {kind: (c["successes"], c["episodes"]) for kind, c in rows[row].items()}, flush=True)
    return 0


if __name__ == "__main__":
    run_script(main)
