"""Compare what a policy predicts for each of its chunks with what happens during rollouts.

    python research/benchmarks/outcome_rollouts.py runs/ahead/last --json docs/results/outcome_rollouts.json

PushT with the triangle, development seeds. Predictions beyond the executed part of a chunk are left out, and
so are those beyond the end of an episode.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from policy_outcome import Errors, laid_on, squared
from torch import Tensor

from recap.agent_config import AgentConfig
from recap.assembly import assemble_agent
from recap.cli.one_line import run_script
from recap.evaluation.agents import Trial
from recap.policies.checkpoint import from_pretrained
from recap.policies.layout import future_frames
from recap.policies.model import Batch
from recap.policies.policy import TrainedPolicy
from recap.types import U8
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.pools import open_standard
from recap_worlds.pusht.tasks import MAX_STEPS, SEEN_ANGLES, THRESHOLDS, angle_key


class Watched:
    """Records the policy's predictions for each chunk."""

    def __init__(self, policy: TrainedPolicy) -> None:
        self.said: dict[str, Tensor] = {}
        self._outcome = policy.outcome
        policy.outcome = self  # type: ignore[method-assign, assignment]

    def __call__(self, batch: Batch, action: Tensor, noise: dict[str, Tensor]) -> dict[str, Tensor]:
        """The predictions of the policy."""
        self.said = self._outcome(batch, action, noise)
        return self.said


def main() -> None:
    """Run, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policy")
    parser.add_argument("--pool", default="pusht-9x100")
    parser.add_argument("--first-seed", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no episode after so long")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    policy = from_pretrained(arguments.policy)
    if not policy.config.sampling.outcome_steps:
        policy = policy.with_sampling(outcome_steps=1)
    watched = Watched(policy)
    agent = assemble_agent(AgentConfig(policy=arguments.policy), open_standard(arguments.pool), policy)
    began, episodes = time.monotonic(), []
    errors: dict[int, list[tuple[int, float, float]]] = {}  # steps ahead -> episode, predicted, copied
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for angle in SEEN_ANGLES:
            if time.monotonic() - began > arguments.seconds:
                break
            env = PushTEnv("triangle", angle, success_threshold=THRESHOLDS[-1])
            env.reset(seed=seed)
            agent.reset(0, Trial(angle_key(angle), seed))
            frames, said, best = _act(agent, env, watched, policy)
            for t, predicted in said.items():
                for name, ahead in future_frames(policy.config).items():
                    if ahead <= agent.n_action_steps and t + ahead < len(frames):
                        now, then = frames[t][None], frames[t + ahead][None]
                        guess = laid_on(policy, now, predicted[name])
                        row = (len(episodes), float(squared(guess, then)[0]), float(squared(now, then)[0]))
                        errors.setdefault(ahead, []).append(row)
            episodes.append(
                {"seed": seed, "angle": angle, "steps": len(frames) - 1, "coverage": round(best, 4)}
            )
            print(episodes[-1], _table(errors), flush=True)
    found = {"policy": arguments.policy, "pool": arguments.pool, "rows": _table(errors), "episodes": episodes}
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def _act(
    agent: Any, env: PushTEnv, watched: Watched, policy: TrainedPolicy
) -> tuple[list[U8], dict[int, dict[str, Tensor]], float]:
    """Frames, look -> its predictions, and the best coverage."""
    size, camera = policy.config.image.camera_size, policy.config.image.future[0]
    frames, said, best = [env.draw(size)], {}, env.coverage()
    for t in range(MAX_STEPS):
        watched.said = {}
        action = agent.act([0], [env.observe(size)])[0]
        if watched.said:
            names = future_frames(policy.config)
            said[t] = {name: watched.said[f"{name}/{camera}"] for name in names}
        done = env.step(action)[2]
        frames.append(env.draw(size))
        best = max(best, env.coverage())
        if done:
            break
    return frames, said, best


def _table(errors: dict[int, list[tuple[int, float, float]]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for ahead, found in sorted(errors.items()):
        table = np.array(found)
        row = Errors(table[:, 1], table[:, 2]).row(table[:, 0].astype(np.int64))
        rows.append({"ahead": ahead, "n": len(found), **row})
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_script(main)
