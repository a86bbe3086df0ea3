"""The published sizes on one GPU, from a LeRobot dataset with videos to a served policy; random weights.

    python full_size_run.py make DIR                 # needs MuJoCo: DIR/arm and DIR/other, 640×480
    python full_size_run.py run DIR OUT 2b --parts bench,train   # on the GPU; OUT/full_size.json grows
    python full_size_run.py run DIR OUT 2b --parts serve --clean
    python full_size_run.py run DIR OUT pi0 pi05 --clean
    python full_size_run.py run DIR OUT debug pi0-debug --batch 4 --clean       # a test on a CPU

Every size is trained by `recap train` in its own process. The training step of the same network alone is
measured for comparison, as in `research/benchmarks/policy_training.py`. A world-action
model is then served by `recap serve` and queried over the network.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ROBOT = """name: one_arm
control_hz: 30
proprio:
  - {name: joints, kind: joint, size: 6}
  - {name: gripper, kind: gripper}
action: {like: proprio, mode: absolute}
cameras: {front: {size: [480, 640], fit: letterbox}, wrist: {size: [480, 640], fit: crop}}
objects: {}
"""
BATCH = {"2b": 12, "pi0": 4, "pi05": 4}  # fits into 139 GiB without recomputing activations
LOGGED = 25  # iterations per row of metrics.jsonl
PARTS = ("bench", "train", "serve")


def make(folder: Path) -> None:
    """Collect a few demonstrations of both arms, with 640×480 images."""
    sys.path.insert(0, str(ROOT / "examples" / "one_arm"))
    import one_arm

    one_arm.SIZE = (480, 640)
    one_arm.SCENE = one_arm.SCENE.replace('offwidth="320" offheight="240"', 'offwidth="640" offheight="480"')
    one_arm.write(folder / "arm", one_arm.OneArm(), "arm", ["press"], 5)
    one_arm.write(folder / "other", one_arm.OneArm("other_arm", speed=0.2), "other_arm", ["press"], 4)
    for name in (".arm", ".other"):
        shutil.rmtree(folder / name, ignore_errors=True)  # intermediate files
    (folder / "robot.yaml").write_text(ROBOT, "utf-8")


def write_backbone(folder: Path, config_file: Path) -> None:
    """Write a diffusers folder of random bfloat16 weights under the published names."""
    import torch
    from diffusers import AutoencoderKLWan

    from recap.policies.autoencoder import build_autoencoder
    from recap.policies.network import build_network

    config = policy_of(config_file)
    large = config.network.num_layers > 20
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        network: Any = build_network(config.network, config.image.channels).to(torch.bfloat16)
        vae: Any = AutoencoderKLWan() if large else build_autoencoder()
    network.save_pretrained(folder / "transformer")
    vae.save_pretrained(folder / "vae")
    # diffusers excludes the padding mask from the number of channels; our network includes it.
    file = folder / "transformer" / "config.json"
    values = json.loads(file.read_text("utf-8"))
    padded = config.network.concat_padding_mask
    values |= {"concat_padding_mask": padded, "in_channels": values["in_channels"] - padded}
    file.write_text(json.dumps(values, indent=1), "utf-8")


def policy_of(config_file: Path) -> Any:
    """The policy's config from a training config file."""
    import yaml

    from recap.training.config import from_json

    return from_json(yaml.safe_load(config_file.read_text("utf-8"))).policy


def bench(config_file: Path, n: int, steps: int) -> dict[str, Any]:
    """The training step of the network alone: forward, backward, clipping and AdamW on random numbers."""
    sys.path.insert(0, str(ROOT / "research" / "benchmarks"))
    import torch
    import yaml
    from policy_training import fused_adamw, training_step

    from recap.policies.model import Batch
    from recap.training.config import from_json
    from recap.training.networks import compile_blocks

    config = from_json(yaml.safe_load(config_file.read_text("utf-8")))
    policy, cuda = config.policy, torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    torch.manual_seed(0)
    with device:
        model: Any = policy.network.model()(policy)
    model.to(device).train()
    text = type(model).task_encoder(policy)(["press the red button"] * n).to(device)
    values = {s.name: torch.randn(n, *model.shape(s), device=device) for s in model.layout.slots}
    present = torch.ones(n, len(model.layout.slots), dtype=torch.bool, device=device)
    batch = Batch(values, present, text, torch.ones(n, model.layout["action"].width, device=device))
    if config.compile and cuda:
        compile_blocks(model, policy.network.blocks)
    optimizer = fused_adamw(model) if cuda else torch.optim.AdamW(model.parameters(), lr=1e-5)
    step = training_step(model, batch, optimizer, mixed=cuda and config.bf16)

    def seconds(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            step()
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    first = seconds(3)
    parts = [seconds(steps) / steps for _ in range(2)]
    found = {
        "step_ms": 1000 * statistics.mean(parts),
        "step_ms_each": [1000 * part for part in parts],
        "first_three_s": first,
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens": model.n_tokens,
    }
    if cuda:
        found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def ask(url: str, data: Path, n: int) -> dict[str, Any]:
    """Latency over the network, for observations from the demonstrations."""
    import numpy as np

    from recap.pool.opening import open_demonstrations
    from recap_client import PolicyClient

    view = open_demonstrations(str(data / "arm"))
    episode = view.episode(view.episode_ids[0])
    times: list[float] = []
    parts: dict[str, list[float]] = {}
    with PolicyClient(url, reply_timeout_s=400) as client:
        client.reset(seed=0)
        for i in range(n + 1):
            t = i % len(episode)
            images = {f"observation/images/{name}": np.asarray(v[t]) for name, v in episode.images.items()}
            seen = {"observation/state": episode.proprio[t], "prompt": episode.task, **images}
            began = time.perf_counter()
            reply = client.infer(seen)
            took = 1000 * (time.perf_counter() - began)
            assert np.isfinite(reply["actions"]).all()
            if i == 0:
                first, shape = took, list(np.shape(reply["actions"]))
                continue
            times.append(took)
            for key, value in reply.get("server_timing", {}).items():
                parts.setdefault(key, []).append(float(value))
    times.sort()
    return {
        "queries": n,
        "first_ms": first,
        "p50_ms": statistics.median(times),
        "p90_ms": times[int(0.9 * len(times))],
        "most_ms": times[-1],
        "actions": shape,
        "server_timing_p50": {key: statistics.median(values) for key, values in parts.items()},
    }


def machine() -> dict[str, Any]:
    """The machine of the measurement."""
    from importlib.metadata import version

    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    packages = {name: version(name) for name in ("torch", "transformers", "diffusers", "accelerate")}
    return {"machine": {"gpu": gpu, "python": sys.version.split()[0], **packages}}


class Report:
    """The results so far, written to disk after every part."""

    def __init__(self, out: Path) -> None:
        self.out, self.began = out, time.monotonic()
        out.mkdir(parents=True, exist_ok=True)
        self.file = out / "full_size.json"
        self.values: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else machine()

    def put(self, size: str, key: str, value: Any) -> None:
        """Add the results of a part, and print them."""
        self.values.setdefault(size, {})[key] = value
        self.file.write_text(json.dumps(self.values, indent=1) + "\n")
        print(f"[{time.monotonic() - self.began:6.1f} s] {size} {key}: {json.dumps(value)}", flush=True)

    def command(self, size: str, key: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command with its output in a file, and record its duration."""
        began = time.monotonic()
        log = self.out / f"{size}-{key}.log"
        with log.open("wb") as file:
            done = subprocess.run(
                [sys.executable, *words], stdout=file, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode:
            print(log.read_text(errors="replace")[-3000:], flush=True)
        self.put(size, f"{key}_command", {"rc": done.returncode, "s": round(time.monotonic() - began, 1)})
        return done


def run(data: Path, out: Path, size: str, options: argparse.Namespace) -> None:
    """Measure the network alone, train, and serve one size."""
    report, me, parts = Report(out), str(Path(__file__).resolve()), options.parts.split(",")
    folder, batch = options.work.resolve() / size, options.batch or BATCH.get(size, 4)
    folder.mkdir(parents=True, exist_ok=True)
    wam, config_file = not size.startswith("pi0"), folder / "config.yaml"
    words = [str(data / "robot.yaml"), "--size", size, "--target", str(data / "arm")]
    words += ["--pool", str(data / "other"), "--iterations", str(LOGGED + options.steps)]
    sets = {"batch_size": batch, "accumulate": 1, "held_out": 0.2, "warm_up": 5, "save_every": 0}
    sets |= {"validate_every": LOGGED + options.steps, "pairs.leave_out": "false", "policy.text": "words"}
    sets |= {"weights": "null"} | ({} if wam else {"autoencoder": "null"})
    for key, value in sets.items():
        words += ["--set", f"{key}={value}"]
    if wam:
        words += ["--backbone", str(folder / "backbone")]
    if "bench" in parts or "train" in parts:
        show = [sys.executable, "-m", "recap", "train", *words, "--show-config"]
        shown = subprocess.run(show, capture_output=True, text=True, check=False)
        if shown.returncode:
            raise SystemExit(shown.stderr[-2000:])
        config_file.write_text(shown.stdout, "utf-8")
    found = folder / "bench.json"
    if "bench" in parts:
        count = str(max(2, options.steps // 3))
        report.command(size, "bench", me, "bench", str(config_file), str(batch), count, str(found))
    alone = json.loads(found.read_text()) if found.exists() else {}
    report.put(size, "network_alone", alone)
    if "train" in parts:
        if wam:
            report.command(size, "backbone", me, "backbone", str(folder / "backbone"), str(config_file))
        report.command(size, "train", "-m", "recap", "train", *words, "--out", str(folder / "run"))
        report.put(size, "training", rates(folder / "run" / "metrics.jsonl", batch, alone))
    if wam and "serve" in parts:
        serve(report, size, folder / "run" / "last", data, options.queries)
    if options.clean:
        shutil.rmtree(folder)


def rates(metrics: Path, batch: int, alone: dict[str, Any]) -> dict[str, Any]:
    """Rates of the steps after the first 25, which include compilation."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    logged = [line for line in lines if "samples_per_s" in line]
    each = [line["samples_per_s"] / batch for line in logged[1:]]
    if not each:
        return {"failed": "no steps were logged"}
    value: dict[str, Any] = {"steps": LOGGED * len(each), "steps_per_s": statistics.mean(each), "each": each}
    value |= {"batch": batch, "peak_gib": logged[-1].get("peak_gib")}
    value["loss"] = {k: v for k, v in logged[-1].items() if k.startswith("loss")}
    value["held_out"] = {k: v for line in lines for k, v in line.items() if k.startswith("held_out")}
    if "step_ms" in alone:
        value["of_the_network_alone"] = value["steps_per_s"] * alone["step_ms"] / 1000
    return value


def serve(report: Report, size: str, policy: Path, data: Path, n: int) -> None:
    """Run `recap serve` and measure requests."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    words = ["serve", str(policy), "--pool", str(data / "other"), "--device", device, "--port", "0"]
    began, log = time.monotonic(), report.out / f"{size}-serve.log"
    with log.open("wb") as file:
        server = subprocess.Popen([sys.executable, "-u", "-m", "recap", *words], stdout=file, stderr=file)
        try:
            url = None
            while (
                url is None and server.poll() is None and time.monotonic() - began < 450
            ):  # it compiles first
                time.sleep(0.5)
                url = re.search(r"ws://\S+", log.read_text(errors="replace"))
            if url is None:
                report.put(size, "served", {"failed": log.read_text(errors="replace")[-1500:]})
                return
            ready = time.monotonic() - began
            try:
                report.put(size, "served", {"ready_s": round(ready, 1), **ask(url.group(), data, n)})
            except Exception as error:
                tail = log.read_text(errors="replace")[-1500:]
                report.put(size, "served", {"failed": repr(error)[:300], "ready_s": ready, "log": tail})
        finally:
            server.terminate()
            server.wait(30)


def main() -> None:
    """Make the dataset, run sizes, or run one part in its own process."""
    given = sys.argv[1:]
    if given[:1] == ["backbone"]:
        write_backbone(Path(given[1]), Path(given[2]))
        return
    if given[:1] == ["bench"]:
        found = bench(Path(given[1]), int(given[2]), int(given[3]))
        Path(given[4]).write_text(json.dumps(found), "utf-8")
        return
    parser = argparse.ArgumentParser(description="The published sizes on one GPU.")
    parser.add_argument("what", choices=("make", "run"))
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path("out"))
    parser.add_argument("sizes", nargs="*")
    parser.add_argument("--steps", type=int, default=50, help="that are measured, after the first 25")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--work", type=Path, default=Path("full_size_work"), help="for weights: 30 GB")
    parser.add_argument("--clean", action="store_true", help="remove a size's weights after it")
    options = parser.parse_args()
    if options.what == "make":
        make(options.data)
        return
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    for size in options.sizes:
        run(options.data.resolve(), options.out.resolve(), size, options)


if __name__ == "__main__":
    main()
