"""Rows on robosuite: experts, replay of their demonstrations by Panda without training, and policies.

    python research/scripts/robosuite_rows.py --demos runs/robosuite --seeds 500:508 --out rows.json

In other scenes (`parts`, `world`) the library's agent replays one pool per arm, with the successful
demonstrations of all tasks for `--pool-seeds`: each part moves with its reference object, or in the world
frame. In the same scene (`locked`) a demonstration's actions are sent in order. Either can be followed by
`+gated` (the progress gate; `+gated2` with a patience of 2), `+calibrated` (demonstrations are moved by a
constant offset in the tool's frame, fitted on pairs of seen tasks) and, in other scenes, `+reach` (a cost of
stage 2). A row named by `--policy NAME=FOLDER` is that policy with the same pools; `+bare` leaves out its
residual, `+nothing` the retrieved chunks. With `--spread`, scene i has only the pool of arm i mod n. Finished
demonstrations and episodes are kept. `--strip KEY` draws a finished episode as seen by `agentview` into an
image next to `--out`; `--table` prints the finished rows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from recap.agent_config import PATIENCE, AgentConfig
from recap.api import Agent, load_policy
from recap.cli.one_line import run_script
from recap.cli.ranges import parse_seeds
from recap.evaluation.statistics import wilson
from recap.gate import gate_of
from recap.geometry3 import rotation6_to_matrix
from recap.pool.memory import MemoryPool
from recap.types import F64, Episode, Observation
from recap_worlds.robosuite.expert import Expert
from recap_worlds.robosuite.tasks import SEEN, TASKS, UNSEEN
from recap_worlds.robosuite.world import ARM, KP, RobosuiteWorld

TARGET = "panda"
PHASES = ("reached", "grasped", "carried", "done", "success")
REACH = 1.0  # m²: puts a match behind all others if the arm can reach none of it
AFTER = 30  # control steps for which the last action of a demonstration is repeated
N_DRAWN, PICTURE_PX = 8, 160  # of a strip
Act = Callable[[Observation], F64 | None]  # None: the demonstration is over
Watch = Callable[[RobosuiteWorld, int], None]  # before each step


def roll(
    world: RobosuiteWorld, task: str, seed: int, act: Act, watch: Watch | None = None
) -> tuple[list[Observation], list[F64], dict[str, Any]]:
    """Run one episode; returns observations, actions, and the best value of each metric."""
    world.reset(seed, task)
    seen: list[Observation] = []
    actions: list[F64] = []
    best: dict[str, Any] = dict.fromkeys(PHASES, 0.0)
    for _ in range(TASKS[task].max_steps):
        look = world.observe(None)
        if watch is not None:
            watch(world, len(actions))
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
    """Expert episodes by arm, task and seed, collected once and stored as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._world: tuple[str, RobosuiteWorld] | None = None

    def get(self, arm: str, task: str, seed: int) -> tuple[Episode, dict[str, Any]]:
        """The episode, successful or not, and its metrics."""
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
        staged = path.with_name(f".{os.getpid()}-{path.name}")
        np.savez(staged, meta=np.array(json.dumps(best)), **arrays)
        staged.replace(path)


def closing(episode: Episode) -> int:
    """The frame at which the gripper is first commanded to close."""
    return int(np.argmax(episode.actions[:, 9] < 0.5))


def fit_offset(demos: Demonstrations, arm: str, seeds: Sequence[int]) -> F64:
    """(3,) in the tool's frame: from a pool arm's grip position to the target arm's, over seen tasks."""
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


def patience(row: str) -> int | None:
    """The patience of the gate in a row's name; None: without a gate."""
    found = re.search(r"gated(\d*)", row)
    return None if found is None else int(found[1] or PATIENCE)


def in_order(episode: Episode, n_extra: int | None) -> Act:
    """Send a demonstration's actions in order, by time or with the progress gate."""
    gate = None if n_extra is None else gate_of(ARM, patience=n_extra)
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


class Replays:
    """Rows in which Panda replays demonstrations of other arms; agents and worlds are cached."""

    def __init__(
        self,
        demos: Demonstrations,
        fit_seeds: Sequence[int],
        pool_seeds: Sequence[int],
        policies: Mapping[str, str],
    ) -> None:
        self.demos, self.fit_seeds, self.pool_seeds = demos, fit_seeds, pool_seeds
        self.policies = {name: load_policy(folder) for name, folder in policies.items()}
        self.offsets: dict[str, F64] = {}
        self._worlds: dict[float, RobosuiteWorld] = {}
        self._agents: dict[tuple[str, str, str], Agent] = {}

    def run(
        self, row: str, arm: str, kp: float, task: str, seed: int, watch: Watch | None = None
    ) -> dict[str, Any] | None:
        """The metrics of one episode; None if there is no demonstration to replay."""
        world = self._worlds.setdefault(kp, RobosuiteWorld(TARGET, kp))
        parts = row.split("+")
        if row == "expert":
            act: Act = Expert(task, TARGET).act
        elif parts[0] == "locked":
            shown, _ = self.demos.get(arm, task, seed)
            if not shown.success:
                return None  # the expert's failures are not replayed
            act = in_order(moved(shown, self.offset(row, arm)), patience(row))
        else:
            act = self._agent(row, arm, task, world, seed).act
        return roll(world, task, seed, act, watch)[2]

    def offset(self, row: str, arm: str) -> F64:
        """(3,) offset of a row; zero if it is not calibrated."""
        if "calibrated" not in row:
            return np.zeros(3)
        if arm not in self.offsets:
            self.offsets[arm] = fit_offset(self.demos, arm, self.fit_seeds)
        return self.offsets[arm]

    def _agent(self, row: str, arm: str, task: str, world: RobosuiteWorld, seed: int) -> Agent:
        parts = row.split("+")
        key = (row, arm, task if "reach" in parts else "")  # the arm's base differs between tasks
        if key not in self._agents:
            shown = [self.demos.get(arm, one, number)[0] for one in TASKS for number in self.pool_seeds]
            offset = self.offset(row, arm)
            pool = MemoryPool([moved(episode, offset) for episode in shown if episode.success])
            reach = REACH if "reach" in parts else None
            policy = self.policies.get(parts[0])
            retrieval = "" if policy else f"robosuite-{parts[0]}"
            config = AgentConfig(
                retrieval=retrieval,
                reach=reach,
                residual="bare" not in parts,
                matching="none" if "nothing" in parts else "retrieved",
            )
            if (n_extra := patience(row)) is not None:
                config = replace(config, gate=True, gate_patience=n_extra)
            if reach:
                world.reset(seed, task)
            self._agents[key] = Agent(policy, pool, config, robot=world.reaching() if reach else ARM)
        self._agents[key].reset(seed)
        return self._agents[key]


def draw_strip(replays: Replays, key: str, steps: int, path: Path) -> None:
    """Eight frames of an episode side by side, from start to end."""
    from PIL import Image

    row, arm, kp, task, seed = key.split("/")
    wanted = set(np.linspace(0, steps - 1, N_DRAWN).astype(int).tolist())
    pictures: list[Any] = []

    def watch(world: RobosuiteWorld, number: int) -> None:
        if number in wanted:
            pictures.append(world.observe(PICTURE_PX).images["agentview"])

    replays.run(row, arm, float(kp), task, int(seed), watch)
    Image.fromarray(np.hstack(pictures)).save(path, quality=85)


def summary(rows: Mapping[str, Any]) -> dict[str, Any]:
    """By row, arm, gain and task: successes, interval, and the phase in which failures ended."""
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


def table(rows: Mapping[str, Any]) -> str:
    """Markdown: a line per row and gain (an expert: arm), a column per task, and the unseen ones together."""
    cells: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for key, metrics in rows.items():
        row, arm, kp, task, _ = key.split("/")
        name = f"{row} {arm}, kp {kp}" if row == "expert" else f"{row}, kp {kp}"
        for column in (task, "unseen") if TASKS[task] in UNSEEN else (task,):
            cells[name, column].append(bool(metrics["success"]))
    columns = [*TASKS, "unseen"]
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for name in dict.fromkeys(name for name, _ in cells):
        lines.append([name])
        for column in columns:
            found = cells[name, column]
            low, high = (round(100 * end) for end in wilson(sum(found), len(found))) if found else (0, 0)
            lines[-1].append(f"{sum(found)} of {len(found)} [{low}, {high}]" if found else "–")
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plan(options: argparse.Namespace) -> Iterator[tuple[str, str, float, str, int]]:
    """Row, pool arm, gain, task, seed."""
    arms, gains = options.arms.split(","), [float(kp) for kp in options.kp.split(",")]
    tasks = tuple(TASKS) if options.tasks == "all" else options.tasks.split(",")
    for row, kp, task in product(options.rows.split(","), gains, tasks):
        for seed in parse_seeds(options.seeds):
            for arm in [arms[seed % len(arms)]] if options.spread else arms:
                yield row, arm, kp, task, seed


def main() -> int:
    """Run the missing episodes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demos", type=Path, required=True, help="folder of demonstrations")
    parser.add_argument("--rows", default="expert,parts,parts+calibrated,parts+gated,parts+gated+calibrated")
    parser.add_argument("--arms", default="ur5e,iiwa,kinova3", help="pool arms; of the row expert: who acts")
    parser.add_argument("--spread", action="store_true", help="one pool arm a scene, in turn")
    parser.add_argument("--tasks", default="all")
    parser.add_argument("--kp", default=str(KP), help="gains of Panda, with commas")
    parser.add_argument("--seeds", default="500:508")
    parser.add_argument("--fit-seeds", default="100000:100020", help="pairs of seen tasks for the offset")
    parser.add_argument("--pool-seeds", default="100000:100020", help="scenes of the pool's demonstrations")
    parser.add_argument("--policy", action="append", default=[], metavar="NAME=FOLDER", help="a row's policy")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="other outputs to take in")
    parser.add_argument(
        "--table", action="store_true", help="print what is there as a table, and run nothing"
    )
    parser.add_argument("--strip", metavar="KEY", help="row/arm/gain/task/seed of an episode to draw")
    options = parser.parse_args()
    demos = Demonstrations(options.demos)
    policies = dict(named.split("=", 1) for named in options.policy)
    replays = Replays(demos, parse_seeds(options.fit_seeds), parse_seeds(options.pool_seeds), policies)
    kept: dict[str, Any] = json.loads(options.out.read_text())["episodes"] if options.out.exists() else {}
    for path in options.join:
        kept |= json.loads(path.read_text())["episodes"]
    if options.table:
        print(table(kept))
        return 0
    if options.strip:
        name = options.strip.replace("/", "-").replace("+", "-")
        draw_strip(replays, options.strip, kept[options.strip]["steps"], options.out.with_name(f"{name}.jpg"))
        return 0
    for row, arm, kp, task, seed in plan(options):
        key = f"{row}/{arm}/{kp:g}/{task}/{seed}"
        if key in kept:
            continue
        shown = row == "expert" and kp == KP
        found = demos.get(arm, task, seed)[1] if shown else replays.run(row, arm, kp, task, seed)
        if found is None:
            continue
        kept[key] = found
        offsets = {name: (1000 * offset).round(2).tolist() for name, offset in replays.offsets.items()}
        result = {"offsets_mm": offsets, "summary": summary(kept), "episodes": kept}
        staged = options.out.with_suffix(".partial")
        staged.write_text(json.dumps(result))
        staged.replace(options.out)
    for name, found in summary(kept).items():
        low, high = found["interval"]
        count = f"{found['successes']:3d} of {found['episodes']:3d} [{low:.2f}, {high:.2f}]"
        print(f"{name:44s} {count} {found['without']}")
    return 0


if __name__ == "__main__":
    run_script(main)
