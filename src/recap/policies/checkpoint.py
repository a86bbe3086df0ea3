"""A policy on disk: config.json, weights as safetensors and a model card, written atomically."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recap import config as configs
from recap.errors import DatasetError, InputError, cause, did_you_mean
from recap.policies.autoencoder import FrameEncoder, build_autoencoder
from recap.policies.config import PolicyConfig, network_kind
from recap.policies.network import load_strictly
from recap.policies.policy import RetrievalStamp, Statistics, TrainedPolicy
from recap.suites import shipped_policies
from recap.sums import file_sha256

FORMAT = "recap-policy-2"
log = logging.getLogger("recap.policies")
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"


def save_pretrained(
    policy: TrainedPolicy,
    path: Path,
    training: Mapping[str, Any] | None = None,
    *,
    contents: Mapping[str, Sequence[str]] | None = None,
    half: bool = False,
) -> None:
    """Write the policy to the directory `path`; an existing policy is replaced only by a complete one.

    Args:
        training: facts about the training, for config and card.
        contents: ids of the demonstrations for training (train) and validation (held_out).
        half: store weights in 16 bits.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    partial, old = path.with_name(f".{path.name}.partial"), path.with_name(f".{path.name}.old")
    if old.exists() and not path.exists():
        old.rename(path)  # an earlier call was killed between its two renames
    for left in (partial, old):
        shutil.rmtree(left, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        dtype = torch.float16 if half else torch.float32
        tensors = dict(policy.model.state_dict())
        if policy.encoder is not None:
            tensors |= {f"autoencoder.{k}": v for k, v in policy.encoder.network.state_dict().items()}
        weights = {k: v.detach().to("cpu", dtype).contiguous() for k, v in tensors.items()}
        for name, table in (("mean", policy.statistics.mean), ("std", policy.statistics.std)):
            weights |= {f"statistics.{slot}.{name}": torch.from_numpy(v.copy()) for slot, v in table.items()}
        save_file(weights, partial / WEIGHTS)
        (partial / WEIGHTS).chmod(0o644)
        body = {
            "format": FORMAT,
            "weights_sha256": file_sha256(partial / WEIGHTS),
            "policy": policy.config.to_json(),
            "retrieval": asdict(policy.stamp),
            "autoencoder": None if policy.encoder is None else _plain(policy.encoder.network.config),
            "training": dict(training or {}),
            "demonstrations": {side: " ".join(ids) for side, ids in (contents or {}).items()},
        }
        (partial / CONFIG).write_text(json.dumps(body, indent=1) + "\n", "utf-8")
        (partial / CARD).write_text(model_card(path.name, body, n_parameters(policy)), "utf-8")
        if path.exists():
            path.rename(old)
        partial.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if old.exists() and not path.exists():
            old.rename(path)
        if isinstance(error, (OSError, SafetensorError)):  # SafetensorError on a full disk
            why = getattr(error, "strerror", None) or error
            raise DatasetError(f"cannot write {path} ({why}): what was there before is kept") from error
        raise


def read_config(source: str | Path) -> PolicyConfig:
    """The config of a policy on disk, without loading its weights."""
    return PolicyConfig.from_json(_read_body(find_checkpoint(source)).get("policy") or {})


def read_stamp(source: str | Path) -> RetrievalStamp:
    """How a policy on disk was trained to retrieve, without loading its weights."""
    values = _read_body(find_checkpoint(source)).get("retrieval")
    return configs.read(RetrievalStamp, values, "the policy's retrieval")


def read_training(source: str | Path) -> tuple[Mapping[str, Any], dict[str, frozenset[str]]]:
    """How a policy on disk was trained, and the ids of its demonstrations by side, if they are known."""
    body = _read_body(find_checkpoint(source))
    sides = (body.get("demonstrations") or {}).items()
    return body.get("training") or {}, {side: frozenset(ids.split()) for side, ids in sides}


def held_out_errors(source: str | Path) -> tuple[float, float] | None:
    """RMS action errors on held-out demonstrations: of the policy on disk, and of replay; None if unknown."""
    facts, _ = read_training(source)
    ours, replay = (facts.get(f"held_out_{name}_error") for name in ("policy", "replay"))
    return None if ours is None or replay is None else (float(ours), float(replay))


def _read_body(path: Path) -> dict[str, Any]:
    try:
        body = json.loads((path / CONFIG).read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise DatasetError(f"checkpoint {path} is damaged ({cause(error)}): copy it again") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise DatasetError(f"checkpoint {path} is not of format {FORMAT}: it is of another version of recap")
    return body


def from_pretrained(source: str | Path, device: str = "cpu") -> TrainedPolicy:
    """Load a policy strictly from a directory, or a shipped policy by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = find_checkpoint(source)
    body = _read_body(path)
    try:
        _check_weights(path, body.get("weights_sha256"))
        weights = load_file(path / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise DatasetError(f"checkpoint {path} is damaged ({cause(error)}): copy it again") from error
    try:
        config = PolicyConfig.from_json(body.get("policy") or {})
        stamp = configs.read(RetrievalStamp, body.get("retrieval"), "the policy's retrieval")
        model = config.network.model()(config)
        kept = body.get("autoencoder")
        inner: nn.Module | None = None if kept is None else build_autoencoder(**kept)
    except (TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise DatasetError(
            f"checkpoint {path} has another kind of value in its {CONFIG} ({cause(error)}): copy it again"
        ) from error
    parts: dict[str, dict[str, Tensor]] = {"autoencoder": {}, "statistics": {}}
    parts |= {name: {} for name, _ in model.named_children()}
    for key, value in weights.items():
        part, _, name = key.partition(".")
        if part not in parts:
            raise DatasetError(f"checkpoint {path} has an unknown weight '{key}': it is of another version")
        parts[part][name] = value if part == "statistics" else value.float()
    for part, child in model.named_children():
        load_strictly(child, parts[part], str(path))
    encoder = None
    if inner is not None:
        load_strictly(inner, parts["autoencoder"], str(path))
        encoder = FrameEncoder(inner).to(device)
    tables: dict[str, dict[str, np.ndarray[Any, Any]]] = {"mean": {}, "std": {}}
    for key, value in parts["statistics"].items():
        slot, _, which = key.rpartition(".")
        if which not in tables:
            raise DatasetError(f"checkpoint {path} has an unknown weight 'statistics.{key}': it is damaged")
        tables[which][slot] = value.numpy().astype(np.float32)
    return TrainedPolicy(model.to(device), Statistics(tables["mean"], tables["std"]), stamp, encoder)


def _check_weights(path: Path, digest: str | None) -> None:
    """Raise an error if the weights are not the saved ones: a flipped bit could drive a robot."""
    if digest is None:
        log.warning("checkpoint %s does not say the SHA-256 of its weights: they are not checked", path)
    elif digest != file_sha256(path / WEIGHTS):
        raise DatasetError(
            f"checkpoint {path} is damaged ({WEIGHTS} is not the file whose SHA-256 {CONFIG} has): "
            "copy or train it again"
        )


def find_checkpoint(source: str | Path) -> Path:
    """The directory of a policy, by the name of a shipped one or by path."""
    shipped = shipped_policies()
    path = shipped.get(str(source), Path(source))
    if not (path / CONFIG).is_file():
        if "/" in str(source) or path.exists():
            raise InputError(f"no checkpoint in {path}: it has no {CONFIG}; recap train makes one")
        raise InputError(f"no policy '{source}': {did_you_mean(str(source), shipped)}, or give a path")
    return path


def n_parameters(policy: TrainedPolicy) -> dict[str, int]:
    """Parameters of the network and of the autoencoder."""
    count = {"network": sum(p.numel() for p in policy.model.parameters())}
    if policy.encoder is not None:
        count["autoencoder"] = sum(p.numel() for p in policy.encoder.network.parameters())
    return count


def model_card(name: str, body: Mapping[str, Any], count: Mapping[str, int]) -> str:
    """A description of the policy for people."""
    policy, training = body["policy"], body["training"]
    robot, kind = policy["robot"], network_kind(policy["backbone"]).model()
    cameras = ", ".join(policy["image"]["cameras"])
    inputs = {"I": f"images ({cameras})", "S": "poses of objects"}
    inputs["I+S"] = f"{inputs['I']}, {inputs['S']}"
    n_actions = sum(feature["size"] for feature in robot["action"])
    lines = [
        "---",
        "library_name: recap",
        f"tags: [robotics, retrieval, {kind.tag}]",
        "---",
        f"# {name}",
        "",
        kind.summary,
        "",
        f"- Parameters: {', '.join(f'{v / 1e6:.1f} M {k}' for k, v in count.items())}.",
        f"- Inputs: proprioception, {inputs[policy['inputs']]}"
        + ("; the retrieved chunk." if policy["retrieval"] else "; no retrieval."),
        f"- Output: {policy['chunk_size']} actions of {n_actions} numbers, "
        + ("a residual over the retrieved chunk." if policy["residual"] else "absolute."),
        f"- Retrieval: `{body['retrieval']['name']}`; a pool described otherwise is refused.",
        f"- Sampling: {policy['sampling']['sampler']}, {policy['sampling']['n_steps']} steps, temperature "
        f"{policy['sampling']['temperature']:g}; {policy['n_action_steps']} actions of a chunk are executed.",
    ]
    lines += [f"- {key.replace('_', ' ').capitalize()}: {value}." for key, value in training.items()]
    lines += [
        f"- Robot: {robot['name']}; a pool of another layout is refused.",
        "",
        f'Use: `recap eval {name}`, `recap serve {name}`, or `recap.load_policy("{name}")`.',
        "It knows what it was trained on only. A policy of a simulation must not drive a real robot.",
        "",
    ]
    return "\n".join(lines)


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """The autoencoder's arguments, without those that diffusers adds."""
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in config.items() if not k.startswith("_")}
    return values
