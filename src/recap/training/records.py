"""Output files of a run: metrics as JSON lines and for a tracker, and images of predictions."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate import Accelerator

from recap.run_directory import CONFIG, LOCK, hold_run_directory, write_whole
from recap.training.config import TrainConfig
from recap.training.state import STATE

if TYPE_CHECKING:
    from recap.policies.policy import TrainedPolicy
    from recap.training.batches import BatchSource
    from recap.training.samples import Samples

METRICS = "metrics.jsonl"
N_SHOWN = 6


class Records:
    """The files of a run; only the main process writes them."""

    def __init__(self, out: Path, accelerator: Accelerator, settings: Mapping[str, Any]) -> None:
        self.out, self.enabled = out, accelerator.is_main_process
        self._accelerator, self._settings, self._tracks = accelerator, settings, False

    def log(self, iteration: int, values: Mapping[str, Any]) -> None:
        """Append a row of metrics."""
        if not self.enabled:
            return
        with (self.out / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"iteration": iteration, **values}) + "\n")
        self._begin()
        numbers = {name: value for name, value in values.items() if isinstance(value, (int, float))}
        self._accelerator.log(numbers, iteration)

    def cut(self, iteration: int) -> None:
        """Remove rows after the iteration from which the run resumes."""
        file = self.out / METRICS
        if self.enabled and file.exists():
            lines = [line for line in file.read_text("utf-8").splitlines() if _iteration(line) <= iteration]
            write_whole(file, "".join(f"{line}\n" for line in lines))

    def write(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a JSON file."""
        if self.enabled:
            write_whole(self.out / name, json.dumps(values, indent=1) + "\n")

    def picture(self, policy: TrainedPolicy, samples: Samples, source: BatchSource) -> None:
        """Write `samples.png`: a row per held-out frame with retrieved, present, predicted and true image."""
        if not self.enabled or not policy.config.sees or not policy.config.future_image or not len(samples):
            return
        from recap.pictures import write_png
        from recap.training.batches import NO_AUGMENT

        device = source.device
        rows = torch.linspace(0, len(samples) - 1, min(N_SHOWN, len(samples))).long().to(device)
        generator = torch.Generator(device).manual_seed(0)
        batch = source.take(rows, NO_AUGMENT, generator)
        noise = policy.model.draw_noise(len(rows), generator, device)
        predicted = policy.model.sample(batch, noise, policy.config.sampling)
        columns = []
        for slot in policy.model.layout.images:
            if slot.denoised:
                columns.append(policy.decode_frames(predicted[slot.name].float()))
            columns.append(policy.decode_frames(batch.values[slot.name].float()))
        tall = [np.concatenate(list(column)) for column in columns]
        write_png(self.out / "samples.png", np.concatenate(tall, axis=1))

    def _begin(self) -> None:
        """Start the tracker with the first row, so that a failed start leaves no files of it."""
        if self._tracks or not self._accelerator.log_with:
            return
        self._tracks = True
        folder = self.out.resolve()
        run = {"name": folder.name, "dir": str(folder), "resume": "allow", "config": dict(self._settings)}
        # A resumed run keeps its id.
        run["id"] = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        wandb = "wandb" in [str(tracker) for tracker in self._accelerator.log_with]
        self._accelerator.init_trackers("recap" if wandb else "tensorboard", init_kwargs={"wandb": run})

    def close(self) -> None:
        """Flush and close the trackers."""
        if self._tracks:
            for tracker in self._accelerator.trackers:
                tracker.finish()


def git_state() -> dict[str, Any]:
    """The commit, and whether there are uncommitted changes; empty outside a repository."""
    try:
        here = Path(__file__).parent
        commit = _git(here, "rev-parse", "HEAD")
        return {"commit": commit, "changed": bool(_git(here, "status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return {}


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _iteration(line: str) -> int:
    try:
        return int(json.loads(line)["iteration"])
    except (ValueError, KeyError, TypeError):
        return 1 << 62  # an incomplete line


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl."""
    file = out / METRICS
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]


@contextmanager
def lock_run(out: Path, config: TrainConfig, accelerator: Accelerator) -> Iterator[None]:
    """Lock the run directory in the main process; a failed start leaves no other files in it."""
    if not accelerator.is_main_process:
        yield
        return
    own_files = {CONFIG, LOCK}
    with hold_run_directory(out, config.to_json()):
        is_new = {entry.name for entry in out.iterdir()} <= own_files
        try:
            yield
        except Exception:
            if is_new and not read_metrics(out) and not (out / STATE).exists():
                for entry in out.iterdir():
                    if entry.is_dir():
                        shutil.rmtree(entry)
                    elif entry.name not in own_files:
                        entry.unlink()
            raise
