"""Training data on disk: what takes a minute to make is read back in seconds by the next command."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.policies.config import PolicyConfig
from recap.policies.policy import RetrievalStamp
from recap.run_directory import whole_file
from recap.training.data import TrainingData, statistics_of
from recap.training.samples import Samples

SIDES = ("train", "held_out")
TABLES = ("fixed", "matched", "images")
ROWS = ("actions", "base", "valid", "weight", "task")


def keep_data(data: TrainingData, file: Path) -> None:
    """Write the data; its statistics are made anew when it is read."""
    from safetensors.numpy import save_file

    arrays: dict[str, NDArray[Any]] = {"pictures": data.pictures}
    for side in SIDES:
        samples = getattr(data, side)
        arrays |= {f"{side}:{name}": getattr(samples, name) for name in ROWS}
        for table in TABLES:
            arrays |= {f"{side}:{table}:{name}": v for name, v in getattr(samples, table).items()}
    facts = {
        "stamp": asdict(data.stamp),
        "n_episodes": data.n_episodes,
        "left_out": data.left_out,
        "contents": data.contents,
        "tasks": {side: getattr(data, side).tasks for side in SIDES},
    }
    with whole_file(file) as partial:
        whole = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
        save_file(whole, partial, metadata={"recap": json.dumps(facts)})


def read_data(file: Path, policy: PolicyConfig) -> TrainingData | None:
    """The data with the statistics of that policy; None where there is none, or it is damaged."""
    from safetensors import SafetensorError, safe_open

    if not file.exists():
        return None
    try:
        with safe_open(file, framework="np") as opened:
            facts = json.loads(opened.metadata()["recap"])
            arrays = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 - not a dict
        sides = {side: _samples(side, arrays, tuple(facts["tasks"][side])) for side in SIDES}
        n_train, n_held_out, n_pool = facts["n_episodes"]
        stamp, left_out = RetrievalStamp(**facts["stamp"]), tuple(facts["left_out"])
    except (SafetensorError, OSError, KeyError, ValueError, TypeError):
        return None  # it can be made again
    train, held_out = sides["train"], sides["held_out"]
    statistics, counts = statistics_of(train, policy), (n_train, n_held_out, n_pool)
    return TrainingData(
        train, held_out, arrays["pictures"], statistics, stamp, counts, left_out, facts["contents"]
    )


def _samples(side: str, arrays: dict[str, NDArray[Any]], tasks: tuple[str, ...]) -> Samples:
    def table(name: str) -> dict[str, NDArray[Any]]:
        head = f"{side}:{name}:"
        return {key.removeprefix(head): value for key, value in arrays.items() if key.startswith(head)}

    values: dict[str, Any] = {name: arrays[f"{side}:{name}"] for name in ROWS}
    values |= {name: table(name) for name in TABLES}
    return Samples(**values, tasks=tasks)
