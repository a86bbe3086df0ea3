"""Does training wait for its data, and does memory grow with them? Compared with LeRobot's own loader.

    python examples/one_arm/one_arm.py DATA --n 30
    python research/benchmarks/loader.py DATA --lerobot ~/lerobot/bin/python --json docs/results/loader.json

Every part runs in its own process. Memory is the process's private memory (RssAnon): pages of mapped files
belong to the system, which reclaims them when needed. Ten times the data are the same videos ten times
under other names: each is read, paired, decoded and stored separately.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from recap.cli.one_line import run_script

CAMERAS, STEPS, BATCH = ("front", "wrist"), 16, 64
ROBOT = {
    "name": "one-arm",
    "control_hz": 30,
    "proprio": [{"name": "joints", "kind": "joint", "size": 6}, {"name": "gripper", "kind": "gripper"}],
    "cameras": {name: {"size": [240, 320], "fit": "letterbox"} for name in CAMERAS},
}
# LeRobot's dataset with torch's loader: current frames, frames one chunk later, and the chunk.
LEROBOT = """
import json, sys, time, torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
root, batch, workers, steps = sys.argv[1], *map(int, sys.argv[2:5])
ahead = [i / 30 for i in range(steps)]
times = {f"observation.images.{c}": [0.0, steps / 30] for c in ("front", "wrist")}
data = LeRobotDataset("one/arm", root=root, delta_timestamps={**times, "action": ahead})
loader = torch.utils.data.DataLoader(data, batch, shuffle=True, num_workers=workers, drop_last=True)
rows = iter(loader)
next(rows)
n, began = 0, time.monotonic()
while time.monotonic() - began < 15 and (got := next(rows, None)) is not None:
    n += len(got["action"])
print(json.dumps(n / (time.monotonic() - began)))
"""


@contextmanager
def peak_memory(found: dict[str, float], name: str) -> Iterator[None]:
    """Record the peak of this process's private memory in MiB."""
    done, most = threading.Event(), 0

    def watch() -> None:
        nonlocal most
        while not done.wait(0.02):
            lines = Path("/proc/self/status").read_text("utf-8").splitlines()
            most = max(most, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon")))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        found[name] = round(most / 1024, 1)


def config_of(data: Path, size: str) -> Any:
    """A training config of that size; the pixel policy gets 112-px images, which need much memory."""
    from recap.robot import read_robot
    from recap.training.presets import preset

    pixels = ["policy.image.size=112"] if size == "pi0-debug" else ["autoencoder_iterations=20"]
    named = [f"target={data / 'arm'}", f"pool={data / 'other_press'}", f"batch_size={BATCH}", *pixels]
    return preset(size, ["n_iterations=1000", "held_out=0.1", *named], read_robot(ROBOT, "loader.py"))


def prepared(data: Path, size: str, times: int, folder: Path, n_episodes: int) -> Any:
    """The data of some demonstrations, repeated under other names."""
    from recap.training.data import build_data, demonstrations
    from recap.training.data_cache import read_data, write_facts
    from recap.training.tables import whole_folder

    config = config_of(data, size)
    found = read_data(folder)
    if found is None:
        sides = [
            [
                replace(episode, id=f"{i}/{episode.id}", scene_id=f"{i}/{episode.scene_id}")
                for i in range(times)
                for episode in demonstrations(name)[:n_episodes]
            ]
            for name in (config.target, config.pool)
        ]
        with whole_folder(folder) as partial:
            write_facts(build_data(*sides, config, folder=partial), partial)
        found = read_data(folder)
    return config, found


def source_of(config: Any, data: Any, out: Path) -> Any:
    """The batch source of a run, and the run."""
    import torch
    from accelerate import Accelerator

    from recap.training.stages import Stages
    from recap.training.trainer import _Run

    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    accelerator = Accelerator(cpu=True)
    return _Run(config, out, data, accelerator, Stages(), lambda line: None)


def rate(work: Callable[[int], object], n: int) -> float:
    """Calls per second."""
    began = time.monotonic()
    for i in range(n):
        work(i)
    return n / (time.monotonic() - began)


def memory(data: Path, times: int, folder: Path) -> dict[str, float]:
    """Memory of preparing and of drawing, in separate processes."""
    found: dict[str, float] = {}
    there = folder / "data"
    if not there.exists():
        with peak_memory(found, "preparing_mib"):
            prepared(data, "pi0-debug", times, there, 10)
        return found
    with peak_memory(found, "drawing_mib"):
        config, held = prepared(data, "pi0-debug", times, there, 10)
        rate(source_of(config, held, folder / "run")._draw, 40)
    return {**found, "moments": len(held.train), "pictures": len(held.pictures)}


def speed(data: Path, folder: Path) -> dict[str, float]:
    """Samples per second of the loader alone, and steps per second with and without loading."""
    config, held = prepared(data, "pi0-debug", 1, folder / "pixels", 30)
    run = source_of(config, held, folder / "pixels-run")
    rate(run._draw, 3)
    found = {"pixels_samples_per_s": rate(run._draw, 40) * BATCH}
    config, held = prepared(data, "small", 1, folder / "latents", 30)
    run = source_of(config, held, folder / "latents-run")
    rate(run._draw, 3)
    found["latents_samples_per_s"] = rate(run._draw, 100) * BATCH
    ahead, one = run.prefetcher, run._draw(0)
    with ahead:
        rates: dict[str, list[float]] = {"with": [], "without": []}
        for _ in range(8):  # alternately, so that other load on the machine affects both
            for name in rates:
                run.prefetcher = ahead if name == "with" else (lambda iteration: one)

                def step(_: int) -> None:
                    run._step()
                    run.iteration += 1

                step(0)
                rates[name].append(rate(step, 6))
    found |= {f"steps_per_s_{name}_loading": statistics.median(values) for name, values in rates.items()}
    each = [a / b for a, b in zip(rates["with"], rates["without"], strict=True)]
    return {**found, "step_rate_ratio": statistics.median(each)}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--lerobot", help="a Python with LeRobot 0.6.1")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        what, folder = arguments.part[0], Path(arguments.part[1])
        found = (
            speed(arguments.data, folder) if what == "speed" else memory(arguments.data, int(what), folder)
        )
        print(json.dumps(found))
        return
    result: dict[str, Any] = {"batch": BATCH, "chunk": STEPS, "cameras": len(CAMERAS)}
    with tempfile.TemporaryDirectory() as folder:

        def part(what: str) -> Any:
            command = [sys.executable, __file__, str(arguments.data), "--part", what, f"{folder}/{what}"]
            return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

        for times in ("1", "10"):
            result[f"memory_{times}x"] = part(times) | part(times)
        for name in ("preparing_mib", "drawing_mib"):
            result[f"{name}_ratio"] = result["memory_10x"][name] / result["memory_1x"][name]
        result["ours"] = part("speed")
    if arguments.lerobot:
        for workers in (0, 2):
            words = [str(arguments.data / "arm"), str(BATCH), str(workers), str(STEPS)]
            done = subprocess.run(
                [arguments.lerobot, "-c", LEROBOT, *words], check=True, capture_output=True, text=True
            )
            result[f"lerobot_samples_per_s_{workers}_workers"] = json.loads(done.stdout.splitlines()[-1])
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    run_script(main)
