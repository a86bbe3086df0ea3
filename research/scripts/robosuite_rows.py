"""Control rows on robosuite: experts, and their demonstrations replayed by Panda without any learning.

    python research/scripts/robosuite_rows.py --demos runs/robosuite --seeds 500:508 --out rows.json

In the same scene a demonstration's actions are sent in order: by the clock (`locked`) or behind the progress
gate (`gated`), as they are or moved by a constant offset in the tool's frame (`calibrated`), fitted on pairs
of seen tasks. In other scenes the library's own agent replays `--pool-seeds` demonstrations a task: in the
world's frame (`world`), or by parts (`parts`). Demonstrations and episodes that are there are kept.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recap.agent_config import AgentConfig
from recap.api import Agent
from recap.cli.one_line import run_script
from recap.cli.ranges import parse_seeds
from recap.evaluation.statistics import wilson
from recap.gate import gate_of
from recap.geometry3 import rotation6_to_matrix
from recap.pool.memory import MemoryPool
from recap.types import F64, Episode, Observation
from recap_worlds.robosuite.expert import Expert
from recap_worlds.robosuite.tasks import SEEN, TASKS
from recap_worlds.robosuite.world import ARM, KP, RobosuiteWorld

TARGET = "panda"
PHASES = ("reached", "grasped", "carried", "done", "success")
AFTER = 30  # control steps for which the last action of a demonstration is held
Act = Callable[[Observation], F64 | None]  # None: nothing is left to do


def roll(
    world: RobosuiteWorld, task: str, seed: int, act: Act
) -> tuple[list[Observation], list[F64], dict[str, Any]]:
    """One episode: what was seen, what was done, and the best of each metric."""
    world.reset(seed, task)
    seen: list[Observation] = []
    actions: list[F64] = []
    best: dict[str, Any] = dict.fromkeys(PHASES, 0.0)
    for _ in range(TASKS[task].max_steps):
        look = world.observe(None)
        action = act(look)
        if action is None:
            break
        metrics, ended = world.step(action)
        seen.append(look)
        actions.append(action)
        best = {name: max(best[name], metrics[name]) for name in PHASES}
        if ended:
            break
    return seen, actions, {**best, "steps": len(actions)}


class Demonstrations:
    """Expert episodes by arm, task and seed, made once and kept as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._world: tuple[str, RobosuiteWorld] | None = None

    def get(self, arm: str, task: str, seed: int) -> tuple[Episode, dict[str, Any]]:
        """The episode, whether it succeeded or not, and its metrics."""
        path = self.folder / arm / task / f"{seed}.npz"
        if not path.exists():
            self._make(arm, task, seed, path)
        kept = np.load(path)
        metrics = json.loads(str(kept["meta"]))
        n = len(kept["actions"])
        scene = f"robosuite/{task}/{seed}"
        episode = Episode(
            id=f"{scene}/{arm}",
            scene_id=scene,
            task=TASKS[task].words,
            embodiment=arm,
            fps=ARM.control_hz,
            timestamps=np.arange(n) / ARM.control_hz,
            proprio=kept["proprio"],
            actions=kept["actions"],
            objects={key[2:]: kept[key] for key in kept.files if key.startswith("o_")},
            success=bool(metrics["success"]),
        )
        return episode, {**metrics, "steps": n}

    def _make(self, arm: str, task: str, seed: int, path: Path) -> None:
        if self._world is None or self._world[0] != arm:
            if self._world is not None:
                self._world[1].close()
            self._world = (arm, RobosuiteWorld(arm))
        seen, actions, best = roll(self._world[1], task, seed, Expert(task, arm).act)
        arrays: dict[str, Any] = {
            f"o_{name}": np.array([look.objects[name] for look in seen], np.float32)
            for name in seen[0].objects
        }
        arrays["proprio"] = np.array([look.proprio for look in seen], np.float32)
        arrays["actions"] = np.array(actions, np.float32)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, meta=np.array(json.dumps(best)), **arrays)


def closing(episode: Episode) -> int:
    """The frame at which the gripper is first told to close."""
    return int(np.argmax(episode.actions[:, 9] < 0.5))


def fit_offset(demos: Demonstrations, arm: str, seeds: Sequence[int]) -> F64:
    """(3,) in the tool's frame: from where a pool arm grips to where the target does, over seen tasks."""
    offsets = []
    for task in SEEN:
        for seed in seeds:
            (ours, _), (theirs, _) = demos.get(TARGET, task.key, seed), demos.get(arm, task.key, seed)
            if ours.success and theirs.success:
                a, b = ours.proprio[closing(ours)], theirs.proprio[closing(theirs)]
                offsets.append(rotation6_to_matrix(b[3:9]).T @ (a[:3] - b[:3]).astype(np.float64))
    return np.asarray(np.mean(offsets, axis=0))


def moved(episode: Episode, offset: F64) -> Episode:
    """The episode with its tool moved by an offset in the tool's own frame."""

    def shift(rows: Any) -> Any:
        out = np.array(rows)
        out[:, :3] += rotation6_to_matrix(out[:, 3:9]) @ offset
        return out

    return replace(episode, actions=shift(episode.actions), proprio=shift(episode.proprio))


def in_order(episode: Episode, gated: bool) -> Act:
    """Sends a demonstration's actions one after the other, by the clock or behind the gate."""
    gate = gate_of(ARM) if gated else None
    at, held, after = 0, 0, 0
    rows: F64 = np.asarray(episode.actions, np.float64)

    def act(seen: Observation) -> F64 | None:
        nonlocal at, held, after
        waits = gate is not None and at and not gate.is_reached(rows[at - 1], seen.proprio)
        if waits and gate is not None and held < gate.patience:
            held += 1
            return np.array(rows[at - 1])
        held = 0
        if at < len(rows):
            at += 1
        elif (after := after + 1) > AFTER:
            return None
        return np.array(rows[at - 1])

    return act


def by_agent(pool: MemoryPool, config: AgentConfig, seed: int) -> Act:
    """The library's agent replays a pool."""
    agent = Agent(None, pool, config, robot=ARM)
    agent.reset(seed)
    return agent.act


def summary(rows: Mapping[str, Any]) -> dict[str, Any]:
    """By row, arm, gain and task: successes, interval, and in which phase the others ended."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for key, metrics in rows.items():
        groups[key.rsplit("/", 1)[0]].append(metrics)
    found = {}
    for name, group in groups.items():
        n_ok = sum(bool(m["success"]) for m in group)
        ended: dict[str, int] = defaultdict(int)
        for metrics in group:
            if not metrics["success"]:
                ended[next((p for p in PHASES if not metrics[p]), "success")] += 1
        low, high = wilson(n_ok, len(group))
        found[name] = {
            "successes": n_ok,
            "episodes": len(group),
            "interval": [low, high],
            "without": dict(ended),
        }
    return found


def plan(options: argparse.Namespace) -> Iterator[tuple[str, str, float, str, int]]:
    """Row, pool arm, gain, task, seed."""
    for row in options.rows.split(","):
        for kp in (float(kp) for kp in options.kp.split(",")):
            for arm in options.arms.split(","):
                for task in options.tasks.split(",") if options.tasks != "all" else TASKS:
                    for seed in parse_seeds(options.seeds):
                        yield row, arm, kp, task, seed


def main() -> int:
    """Run what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demos", type=Path, required=True, help="folder of demonstrations")
    parser.add_argument("--rows", default="expert,locked,calibrated,gated,gated+calibrated")
    parser.add_argument("--arms", default="ur5e,iiwa,kinova3", help="pool arms; of the row expert: who acts")
    parser.add_argument("--tasks", default="all")
    parser.add_argument("--kp", default=str(KP), help="gains of Panda, with commas")
    parser.add_argument("--seeds", default="500:508")
    parser.add_argument("--fit-seeds", default="100000:100005", help="pairs of seen tasks for the offset")
    parser.add_argument(
        "--pool-seeds", default="100000:100005", help="demonstrations of rows in other scenes"
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    demos = Demonstrations(options.demos)
    kept: dict[str, Any] = json.loads(options.out.read_text())["episodes"] if options.out.exists() else {}
    offsets: dict[str, F64] = {}
    worlds: dict[float, RobosuiteWorld] = {}
    for row, arm, kp, task, seed in plan(options):
        key = f"{row}/{arm}/{kp:g}/{task}/{seed}"
        if key in kept:
            continue
        if row == "expert":
            kept[key] = demos.get(arm, task, seed)[1]
        else:
            offset = np.zeros(3)
            if "calibrated" in row:
                offset = offsets.setdefault(arm, fit_offset(demos, arm, parse_seeds(options.fit_seeds)))
            gated = "gated" in row
            if row.split("+")[0] in ("world", "parts"):
                shown = [demos.get(arm, task, number)[0] for number in parse_seeds(options.pool_seeds)]
                pool = MemoryPool([moved(episode, offset) for episode in shown if episode.success])
                retrieval = f"robosuite-{row.split('+')[0]}"
                act = by_agent(pool, AgentConfig(retrieval=retrieval, gate=gated), seed)
            else:
                shown_here = demos.get(arm, task, seed)[0]
                if not shown_here.success:
                    continue  # the expert's failures are the expert's
                act = in_order(moved(shown_here, offset), gated)
            if kp not in worlds:
                worlds[kp] = RobosuiteWorld(TARGET, kp)
            kept[key] = roll(worlds[kp], task, seed, act)[2]
        result = {"offsets_mm": {a: (1000 * o).round(2).tolist() for a, o in offsets.items()}}
        options.out.write_text(json.dumps({**result, "summary": summary(kept), "episodes": kept}))
    for name, found in summary(kept).items():
        low, high = found["interval"]
        count = f"{found['successes']:3d} of {found['episodes']:3d} [{low:.2f}, {high:.2f}]"
        print(f"{name:44s} {count} {found['without']}")
    return 0


if __name__ == "__main__":
    run_script(main)
