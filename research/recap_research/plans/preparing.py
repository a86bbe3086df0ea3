"""Data of the runs to come, made while another run trains."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping
from multiprocessing.context import SpawnProcess
from pathlib import Path

from recap.training.config import TrainConfig
from recap.training.data import load_data
from recap.training.data_cache import TrainingData


def prepare(kinds: Mapping[Path, TrainConfig], workers: int) -> None:
    """Make the data of every kind, one after another, and keep them under their files."""
    for file, kind in kinds.items():
        if not file.exists():
            load_data(kind, workers=workers, folder=file)


class Preparation:
    """Makes data in a process of its own; on one core, when they are asked for."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._process: SpawnProcess | None = None

    def __enter__(self) -> Preparation:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.terminate()  # what is half made is of no use; its workers die with it
            self._process.join()

    def begin(self, kinds: Mapping[Path, TrainConfig]) -> None:
        """Make these beside whatever is done next."""
        missing = {file: kind for file, kind in kinds.items() if not file.exists()}
        if self.cores > 1 and missing:
            spawn = multiprocessing.get_context("spawn")
            self._process = spawn.Process(target=prepare, args=(missing, max(1, self.cores // 2)))
            self._process.start()

    def take(self, file: Path, kind: TrainConfig) -> TrainingData:
        """The data: there, waited for, or made now."""
        while self._process is not None and self._process.is_alive() and not file.exists():
            time.sleep(0.2)
        return load_data(kind, workers=self.cores, folder=file)
