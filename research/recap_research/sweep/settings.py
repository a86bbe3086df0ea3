"""The settings in which the trained runs of a sweep differ, to see whether a comparison is fair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recap.policies.config import PolicyConfig
from recap.training.config import TrainConfig
from recap_research.sweep.sweep import Sweep

# Listed even if they are equal.
SHOWN = (
    "n_iterations",
    "batch_size",
    "learning_rate",
    "warm_up",
    "weight_decay",
    "ema",
    "action_loss",
    "policy.inputs",
    "policy.network.num_layers",
    "augment.mirror",
    "augment.state_noise",
    "augment.image_dropout",
)
ASIDE = ("preset", "seed")


def compare_settings(sweep: Sweep, names: Sequence[str]) -> list[list[str]]:
    """Rows of a table: a header, one setting each, and the number of other settings, which are equal."""
    families = {name.partition("/")[0] for name in names}
    configs: dict[str, TrainConfig] = {}
    for run in sweep.runs:
        if run.family in families:
            configs.setdefault(run.family, run.config)
    flat = {name: dict(_flat(config.to_json())) for name, config in configs.items()}
    if not flat:
        return []
    keys = [
        key for key in dict.fromkeys(key for values in flat.values() for key in values) if key not in ASIDE
    ]
    differing = [key for key in keys if len({str(values.get(key, ())) for values in flat.values()}) > 1]
    rows = [["setting", *(sweep.labels[name] for name in flat)]]
    rows.append(["frame", *(_frame_of(configs[name].policy) for name in flat)])
    for key in [*SHOWN, *(key for key in differing if key not in SHOWN)]:
        rows.append([f"`{key}`", *(_text(values.get(key, ())) for values in flat.values())])
    n_equal = len(set(keys) - set(differing) - set(SHOWN))
    rows.append([f"{n_equal} others", *("equal" for _ in flat)])
    return rows


def _frame_of(config: PolicyConfig) -> str:
    """The frame in which the images are given."""
    if config.image.view == "camera":
        return "camera"
    return "block" if config.canonical else "world"


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is the header."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in value) or "all"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return ", ".join(Path(name).name.removesuffix(".safetensors") for name in value.split(","))
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
