"""A policy of ours as the beginning of another: fine-tuning."""

from __future__ import annotations

from dataclasses import fields

from recap.errors import InputError
from recap.policies.checkpoint import from_pretrained
from recap.policies.config import PolicyConfig
from recap.policies.policy import TrainedPolicy


def begin_from(source: str, config: PolicyConfig) -> TrainedPolicy:
    """The policy to go on from; one of another kind is refused."""
    policy = from_pretrained(source)
    for field in fields(config):
        found, wanted = getattr(policy.config, field.name), getattr(config, field.name)
        if field.name in ("retrieval_name", "embodiment") and policy.config.canonical == config.canonical:
            continue  # the same frame: what is retrieved is only carried over otherwise
        if found != wanted:
            raise InputError(
                f"the policy {source} to go on from has another {field.name} ({found}, now {wanted}): "
                "train the preset that it was trained with"
            )
    return policy
