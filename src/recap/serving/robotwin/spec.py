"""The settings of a RoboTwin evaluation that are ours, from `deploy_policy.yml` and what overrides it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from recap.agent import Reaction
from recap.assembly import REPLAY
from recap.errors import InputError, one_of

REACTIONS = ("ignore", "hold", "stop")
MODES = {"single": "robotwin-single", "blind": "robotwin-blind"}  # other names are those of presets
ELSEWHERE = ("python", "objects")  # ours too, but for the part that runs in RoboTwin's process


@dataclass(frozen=True)
class PilotSpec:
    """Who acts, and what it retrieves from."""

    pool: str
    checkpoint: str = REPLAY  # or a policy's directory
    mode: str | None = None  # how it retrieves; None: as the policy was trained, `single` to replay
    n_action_steps: int | None = None  # of a chunk that are carried out; None: the policy's own, 8 to replay
    n_candidates: int | None = None  # trajectories that stage 1 keeps; None: the preset's
    denoising_steps: int | None = None  # None: the policy's own
    device: str = "cpu"
    reaction: Reaction = "hold"  # to nothing found, or to a confidence below the next
    min_confidence: float = 0.0
    seed: int = 0  # of the noise

    def __post_init__(self) -> None:
        one_of("reaction", self.reaction, REACTIONS)
        for name in ("n_action_steps", "n_candidates", "denoising_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}: give 1 or more, or null")
        if not 0 <= self.min_confidence < 1:
            raise InputError(f"min_confidence is {self.min_confidence}: give 0 to 1, such as 0.05")
        if self.checkpoint != REPLAY and not Path(self.checkpoint).is_dir():
            raise InputError(
                f"there is no checkpoint {self.checkpoint}: give a policy's directory, seen from "
                f"{Path.cwd()}, or '{REPLAY}'"
            )

    @property
    def preset(self) -> str | None:
        """The retrieval preset that is asked for."""
        mode = "single" if self.mode is None and self.checkpoint == REPLAY else self.mode
        return None if mode is None else MODES.get(mode, mode)


def read_spec(usr_args: Mapping[str, Any]) -> PilotSpec:
    """RoboTwin's own settings are passed over; one that is nearly ours is taken for a slip."""
    known = {field.name: str(field.type) for field in fields(PilotSpec)}
    for key in usr_args:
        if key not in known and key not in ELSEWHERE:
            near = difflib.get_close_matches(key, [*known, *ELSEWHERE], n=1, cutoff=0.9)
            if near:
                raise InputError(f"unknown setting '{key}': did you mean '{near[0]}'?")
    if not usr_args.get("pool"):
        raise InputError("no pool is set: write pool: PATH into deploy_policy.yml (recap pool create PATH)")
    given = {key: usr_args[key] for key in known if usr_args.get(key) is not None}
    return PilotSpec(**{key: _as(known[key], key, value) for key, value in given.items()})


def _as(kind: str, key: str, value: Any) -> Any:
    """The value as its field has it; text of a command line included."""
    wanted = next(name for name in ("int", "float", "str") if name in kind.replace("Reaction", "str"))
    if wanted == "str" and isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if wanted == "str" or not math.isfinite(number) or (wanted == "int" and not number.is_integer()):
        raise InputError(f"{key} is {value!r}: give {'text' if wanted == 'str' else 'a number'}")
    return int(number) if wanted == "int" else number
