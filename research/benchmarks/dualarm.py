"""How fast is the dual-arm suite, how reliable are its experts, and how far does plain replay get?

    python research/benchmarks/dualarm.py --seeds 500 600 --json docs/results/dualarm.json

Each task is demonstrated by both robots at every seed. The ViperX then replays the UR5e's actions in the same
scene and in the next one: a task suits retrieval if the first works and the second does not.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from report import arguments, finish

from recap.cli.one_line import run_script
from recap.evaluation.statistics import wilson
from recap.pictures import write_png
from recap.types import F32, U8
from recap.workers import run_in_workers
from recap_worlds.dualarm.collecting import DualArmSpec, collect_dualarm
from recap_worlds.dualarm.collection import demonstrate
from recap_worlds.dualarm.env import DualArmEnv
from recap_worlds.dualarm.expert import Expert
from recap_worlds.dualarm.robots import ROBOTS
from recap_worlds.dualarm.tasks import TASKS, UNSEEN, tasks_named
from recap_worlds.rendering import choose_backend

PATIENCE = 20  # steps for which a replay may repeat its last action
Item = tuple[str, int]  # task, seed


def measure(items: Iterator[Item]) -> Iterator[tuple[Item, dict[str, Any]]]:
    """Demonstrate with both robots, replay with the target robot."""
    envs: dict[tuple[str, str], DualArmEnv] = {}
    for task, seed in items:
        row: dict[str, Any] = {}
        for robot in ROBOTS:
            env = envs.setdefault((task, robot), DualArmEnv(task, robot, image_size=0))
            episode = demonstrate(task, robot, seed, 0, env=env)
            row[robot], row[f"{robot}_steps"] = bool(episode.success), len(episode)
            if robot == "ur5e":
                actions = episode.actions
        target = envs[task, "viperx"]
        row["same"] = replayed(target, seed, actions)
        row["cross"] = replayed(target, seed + 1, actions)
        yield (task, seed), row


def replayed(env: DualArmEnv, seed: int, actions: F32) -> bool:
    """True if the actions alone solve the scene."""
    env.reset(seed=seed)
    for t in range(min(len(actions) + PATIENCE, env.task.max_steps)):
        if env.step(actions[min(t, len(actions) - 1)])[2]:
            return True
    return False


def speed(task: str, robot: str, image_size: int, n: int) -> float:
    """Control steps per CPU-second of an expert's episodes, with images if a size is given."""
    env = DualArmEnv(task, robot, image_size=0)
    rates = []
    for seed in range(500, 500 + n):
        env.reset(seed=seed)
        expert, steps, done = Expert(task), 0, False
        started = time.process_time()
        while not done:
            done = any(env.step(expert.act(env.observe(image_size)))[2:4])
            steps += 1
        rates.append(steps / (time.process_time() - started))
    env.close()
    return statistics.median(rates)


def throughput(tasks: tuple[str, ...], n: int) -> float:
    """Demonstrations with three 128-px videos, written as datasets, per CPU-hour."""
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for task in tasks:
            collect_dualarm(DualArmSpec(task, "ur5e", n), Path(folder) / task)
    return 3600 * n * len(tasks) / (time.process_time() - started)


def sheet(tasks: tuple[str, ...], seed: int = 505, size: int = 160) -> U8:
    """One row per task: start and end with either robot by the head camera, and a wrist image half-way."""
    rows = []
    for task in tasks:
        row = []
        for robot in ROBOTS:
            film = demonstrate(task, robot, seed, size).images
            middle = len(film["head"]) // 2
            wrists = [film[f"{side}_wrist"] for side in ("left", "right")]
            busier = max(wrists, key=lambda wrist: float(np.std(wrist[middle])))
            row += [film["head"][0], film["head"][-1], busier[middle]]
        rows.append(np.concatenate(row, axis=1))
    return np.concatenate(rows, axis=0)


def main() -> None:
    """Measure, print the tables, write the file."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs=2, default=(500, 600), metavar=("FIRST", "END"))
    parser.add_argument("--tasks", default="all", help="keys with commas between, seen, unseen or all")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--no-pictures", action="store_true", help="measure no camera pictures")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="only draw the tasks, and write that PNG")
    options = parser.parse_args()
    if options.sheet:
        write_png(options.sheet, sheet(tasks_named(options.tasks)))
        return
    first, end = (500, 505) if options.quick else options.seeds
    tasks = tasks_named(options.tasks)
    items: list[Item] = [(task, seed) for task in tasks for seed in range(first, end)]
    results: dict[Item, dict[str, Any]] = {}
    for item, row in run_in_workers(measure, items, options.workers):
        results[item] = row
        if len(results) % 10 == 0:
            print(f"{len(results)}/{len(items)} {item[0]}", file=sys.stderr)
    rows = {task: summary([row for (t, _), row in results.items() if t == task]) for task in tasks}
    for task, row in rows.items():
        for robot in ROBOTS:
            row[robot]["failed"] = [s for (t, s), r in results.items() if t == task and not r[robot]]
    show(rows)
    speeds = measure_speed(tasks, options.quick, with_pictures=not options.no_pictures)
    pooled = counted([row[robot] for row in results.values() for robot in ROBOTS])
    worst = min(row[robot]["successes"] / row[robot]["n"] for row in rows.values() for robot in ROBOTS)
    cross = max(
        (rows[t]["cross"]["successes"] / rows[t]["cross"]["n"] for t in tasks if t in UNSEEN), default=0
    )
    finish(
        {"seeds": [first, end], "tasks": rows, "experts": pooled, "speed": speeds, "worst_expert": worst},
        options.json,
    )
    print(f"experts {pooled['successes']}/{pooled['n']}, worst {100 * worst:.0f} %")
    print(f"cross-scene replay on unseen tasks at most {100 * cross:.0f} %")
    sys.exit(0 if pooled["successes"] >= 0.97 * pooled["n"] and worst >= 0.9 and cross < 0.3 else 1)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts of one task."""
    counts: dict[str, Any] = {key: counted([row[key] for row in rows]) for key in (*ROBOTS, "same", "cross")}
    return counts | {"steps": float(np.mean([row["ur5e_steps"] for row in rows]))}


def counted(outcomes: list[bool]) -> dict[str, Any]:
    """Successes and their interval."""
    low, high = wilson(sum(outcomes), len(outcomes))
    return {"successes": sum(outcomes), "n": len(outcomes), "low": low, "high": high}


def show(rows: dict[str, dict[str, Any]]) -> None:
    """Print one line per task."""
    print(f"{'task':<26}{'viperx':>10}{'ur5e':>10}{'same scene':>12}{'other scene':>13}{'steps':>7}")
    for task, row in rows.items():
        cells = [f"{row[key]['successes']}/{row[key]['n']}" for key in (*ROBOTS, "same", "cross")]
        print(f"{task:<26}{cells[0]:>10}{cells[1]:>10}{cells[2]:>12}{cells[3]:>13}{row['steps']:>7.0f}")
        failed = {robot: row[robot]["failed"][:10] for robot in ROBOTS if row[robot]["failed"]}
        if failed:
            print(f"  failed: {failed}")


def measure_speed(tasks: tuple[str, ...], quick: bool, *, with_pictures: bool) -> dict[str, Any]:
    """Steps per CPU-second by robot, pooled over tasks, with and without cameras; and the final memory."""
    n = 2 if quick else 4
    found: dict[str, Any] = {"backend": choose_backend() if with_pictures else None}
    for robot in ROBOTS:
        for size in (0, 128) if with_pictures else (0,):
            rates = [speed(task, robot, size, n) for task in tasks if task in TASKS]
            found[f"{robot} {size}"] = {"median": statistics.median(rates), "worst": min(rates)}
            row = found[f"{robot} {size}"]
            print(f"{robot}, pictures of {size}: {row['median']:.0f} steps/CPU-s, worst {row['worst']:.0f}")
    if with_pictures:
        found["demonstrations_per_hour"] = throughput(tasks, 1 if quick else 3)
        print(f"{found['demonstrations_per_hour']:.0f} recorded demonstrations a CPU-hour")
    found["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory {found['memory_mb']:.0f} MB")
    return found


if __name__ == "__main__":
    run_script(main)
