"""ReCAP's settings of a RoboTwin evaluation, from `deploy_policy.yml` and its overrides."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from recap import config as configs
from recap.assembly import REPLAY, AgentConfig
from recap.errors import InputError

RETRIEVALS = {"world": "robotwin-world", "blind": "robotwin-blind"}  # short names; others stay as they are
ELSEWHERE = ("python", "objects")  # settings used in RoboTwin's process only


@dataclass(frozen=True)
class PilotSpec:
    """The agent and its pool."""

    pool: str
    agent: AgentConfig


def read_spec(usr_args: Mapping[str, Any]) -> PilotSpec:
    """Read the settings; RoboTwin's own are ignored, except that likely typing errors are refused."""
    known = [field.name for field in fields(AgentConfig)]
    for key in usr_args:
        if key not in (*known, *ELSEWHERE, "pool"):
            near = difflib.get_close_matches(key, [*known, *ELSEWHERE], n=1, cutoff=0.9)
            if near:
                raise InputError(f"unknown setting '{key}': did you mean '{near[0]}'?")
    if not usr_args.get("pool"):
        raise InputError("no pool is set: write pool: PATH into deploy_policy.yml (recap pool create PATH)")
    given = {key: usr_args[key] for key in known if usr_args.get(key) is not None}
    if usr_args.get("seed") is not None:
        given["noise_seed"] = usr_args["seed"]
    policy = str(given.get("policy", REPLAY))
    if policy == REPLAY:
        given.setdefault("retrieval", "world")
    elif not Path(policy).is_dir():
        raise InputError(
            f"there is no policy {policy}: give its directory, seen from {Path.cwd()}, or '{REPLAY}'"
        )
    given["retrieval"] = RETRIEVALS.get(str(given.get("retrieval", "")), str(given.get("retrieval", "")))
    changes = [f"{key}={value}" for key, value in given.items() if value != ""]
    return PilotSpec(str(usr_args["pool"]), configs.with_changes(AgentConfig(), changes))
