"""An evaluation's spec as the command that runs it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from recap.assembly import REPLAY, names_checkpoint
from recap.envs.pusht.tasks import angle_key
from recap.evaluation.spec import EvalSpec

OF_A_NETWORK = (
    "denoising_steps",
    "temperature",
    "sampler",
    "residual",
    "half_at",
    "mask",
    "noise_seed",
    "device",
)
OPTIONS = {
    "settings_of": "--settings-of",
    "embodiment": "--embodiment",
    "split": "--split",
    "wording": "--wording",
    "pusher": "--pusher",
    "block": "--block",
    "mode": "--mode",
    "pool": "--pool",
    "n_candidates": "--candidates",
    "objects": "--objects",
    "min_confidence": "--min-confidence",
    "reaction": "--reaction",
    "n_action_steps": "--action-steps",
    "denoising_steps": "--denoising-steps",
    "temperature": "--temperature",
    "sampler": "--sampler",
    "matching": "--matching",
    "device": "--device",
    "noise_seed": "--noise-seed",
    "mask": "--mask",
    "half_at": "--half-at",
}


def command_of(spec: EvalSpec) -> str:
    """`recap eval` with every setting that is not the default; angles or tasks and seeds always."""
    arms = spec.env == "dualarm"
    usual = EvalSpec(agent=spec.agent, env=spec.env, tasks=spec.tasks)
    words = ["recap", "eval", spec.agent]
    if arms:
        words += ["--env", spec.env]
    for name, option in OPTIONS.items():
        value = getattr(spec, name)
        if value != getattr(usual, name):
            words += [option, f"{value:g}" if isinstance(value, float) else str(value)]
    if spec.hindsight is not None:
        words.append("--hindsight" if spec.hindsight else "--no-hindsight")
    if not spec.residual:
        words.append("--no-residual")
    place = spec.pose_noise_mm if arms else spec.pose_noise_px
    if place or spec.pose_noise_deg:
        words += ["--pose-noise", f"{place:g},{spec.pose_noise_deg:g}"]
    if arms:
        tasks = [word for task in spec.tasks for word in ("--task", task)]
        return shlex.join([*words, *tasks, "--seeds", seeds_text(spec.seeds)])
    words += [f"--angles={','.join(angle_key(a) for a in spec.angles)}", "--seeds", seeds_text(spec.seeds)]
    return shlex.join(words)


def control_of(spec: EvalSpec) -> EvalSpec | None:
    """Replay at the settings of the spec's policy, all else equal; None where it is not about a policy."""
    if not names_checkpoint(spec.agent) or spec.matching != "retrieved":
        return None
    usual = EvalSpec(agent=spec.agent)
    own = {name: getattr(usual, name) for name in OF_A_NETWORK}
    return replace(spec, agent=REPLAY, settings_of=spec.agent, **own)


def seeds_text(seeds: Sequence[int]) -> str:
    """`42:92` where they follow each other, else one by one."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}:{seeds[-1] + 1}"
    return ",".join(map(str, seeds))
