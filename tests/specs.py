"""Short constructors of evaluation specs for the included suites."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from recap.assembly import AgentConfig
from recap.evaluation.spec import EvalSpec
from recap.types import Scalar
from recap_worlds.pusht.tasks import angle_key

OF_AN_AGENT = frozenset(field.name for field in fields(AgentConfig))


def pusht_spec(
    policy: str = "replay",
    *,
    pusher: str = "disc",
    block: str = "tee",
    angles: Sequence[float] = (),
    **settings: Any,
) -> EvalSpec:
    """An evaluation in Push-T; settings are fields of AgentConfig or EvalSpec."""
    options: dict[str, Scalar] = {"pusher": pusher, "block": block}
    return _spec(policy, "pusht", options, tasks=tuple(map(angle_key, angles)), **settings)


def arms_spec(
    policy: str = "replay",
    *,
    embodiment: str = "viperx",
    split: str = "clean",
    wording: str = "seen",
    **settings: Any,
) -> EvalSpec:
    """An evaluation in the dual-arm suite; settings are fields of AgentConfig or EvalSpec."""
    options: dict[str, Scalar] = {"embodiment": embodiment, "split": split, "wording": wording}
    return _spec(policy, "dualarm", options, **settings)


def _spec(policy: str, env: str, options: dict[str, Scalar], **settings: Any) -> EvalSpec:
    own = {name: settings.pop(name) for name in OF_AN_AGENT & set(settings)}
    return EvalSpec(AgentConfig(policy, **own), env, options, **settings)
