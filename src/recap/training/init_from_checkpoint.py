"""Initial weights of a training: published weights, or one of our policies, possibly of another robot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from torch import nn

from recap.errors import InputError
from recap.policies.checkpoint import find_checkpoint, from_pretrained
from recap.policies.config import PolicyConfig
from recap.policies.policy import TrainedPolicy
from recap.training.autoencoder import check_autoencoder
from recap.training.config import TrainConfig
from recap.training.sharding import shard_like


def check_initial_checkpoints(config: TrainConfig) -> None:
    """Raise an error, before data is loaded, if published weights or policies to start from are missing."""
    model = config.policy.network.model()
    if config.weights is not None:
        model.find_published(config.weights)
    if config.autoencoder is not None and config.policy.sees and not config.policy.network.sees_pixels:
        check_autoencoder(config.autoencoder)
    for policy in (config.init, config.init_from):
        if policy is not None:
            find_checkpoint(policy)
    model.task_encoder(config.policy)


def load_initial_policy(source: str, config: PolicyConfig) -> TrainedPolicy:
    """The policy to fine-tune; one with another config is refused."""
    policy = from_pretrained(source)
    for field in fields(config):
        found, wanted = getattr(policy.config, field.name), getattr(config, field.name)
        if field.name in ("retrieval_name", "embodiment") and policy.config.canonical == config.canonical:
            continue  # both in the world's frame or neither: only the transform of retrieved chunks differs
        if found != wanted:
            raise InputError(
                f"the policy {source} to go on from has another {field.name} ({found}, now {wanted}): "
                "train the preset that it was trained with"
            )
    return policy


def load_fitting(models: Sequence[nn.Module], policy: TrainedPolicy, source: str) -> str:
    """Copy weights of equal name and shape into each model; return a summary of what was loaded."""
    theirs, ours = policy.model.state_dict(), models[0].state_dict()
    fitting = [name for name, value in theirs.items() if name in ours and ours[name].shape == value.shape]
    if not any(theirs[name].ndim >= 2 for name in fitting):
        raise InputError(f"no weight of policy {source} fits this network: give the size that it has")
    for model in models:
        wanted = model.state_dict()
        parts = {name: shard_like(theirs[name].to(wanted[name].device), wanted[name]) for name in fitting}
        model.load_state_dict(parts, strict=False)
    n, of = (sum(value.numel() for name, value in ours.items() if name in known) for known in (fitting, ours))
    fresh = sorted(set(ours) - set(fitting))
    unused = sorted(set(theirs) - set(ours))
    return (
        f"Begun from {source}: {len(fitting)} of {len(ours)} tensors ({100 * n / of:.0f} % of the weights); "
        f"fresh: {_some(fresh)}; not used: {_some(unused)}"
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "none"
