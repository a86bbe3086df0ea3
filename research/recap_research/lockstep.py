"""The paper's PushT setting in lockstep on a GPU: all episodes observe, retrieve and act together.

Same as `recap eval` with retrieval `pusht-published` and eight actions per chunk, for image policies and for
replay. Images are rendered and encoded on the device; physics runs in other processes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from recap.policies.config import SamplingConfig
from recap.policies.layout import frame_offsets
from recap.policies.model import Batch
from recap.policies.policy import TrainedPolicy
from recap.training.samples import I64
from recap_research.boards import backgrounds, draw_boards
from recap_research.lockstep_worlds import F64, Worlds
from recap_research.recorded import Recorded
from recap_worlds.pusht.tasks import INSTRUCTION

BOARD = 512.0
FACTORS = (2.0 / BOARD, 2.5 / BOARD, 1.5, 1.0 / BOARD)  # published factors: block, pusher, direction, motion
HORIZON = 8


def described(before: F64, now: F64) -> F64:
    """The published features (n, 10) of poses (n, 5): pusher x y, block x y angle."""
    moves = now[:, :4] - before[:, :4]
    block, pusher, direction, move = FACTORS
    turn = np.stack([np.cos(now[:, 4]), np.sin(now[:, 4])], axis=1)
    return np.concatenate([now[:, 2:4] * block, now[:, :2] * pusher, turn * direction, moves * move], axis=1)


class Pool:
    """Demonstrations to retrieve from: those with the goal nearest to the episode's goal."""

    def __init__(self, one: Recorded, device: torch.device) -> None:
        poses = np.concatenate([one.proprio, one.block], axis=1).astype(np.float64)
        before = np.arange(len(poses)) - 1
        before[one.first] = one.first
        self.one = one
        self.features = torch.from_numpy(described(poses[before], poses)).to(device)
        self.angle = torch.from_numpy(one.goal[:, 2].astype(np.float64))[one.owner].to(device)

    def nearest(self, asked: F64, goals: F64) -> I64:
        """Index of the nearest frame for each query: (n,)."""
        query = torch.from_numpy(asked).to(self.features.device)
        found = np.zeros(len(asked), np.int64)
        for goal in np.unique(goals[:, 2]):
            mine = np.flatnonzero(goals[:, 2] == goal)
            away = (self.angle - goal).abs()
            rows = torch.nonzero(away <= away.min() + 1e-6)[:, 0]
            apart = torch.cdist(query[mine], self.features[rows])
            found[mine] = rows[apart.argmin(1)].cpu().numpy()
        return found


def roll_out(
    policy: TrainedPolicy | None,
    pool: Recorded,
    worlds: Worlds,
    sampling: SamplingConfig,
    device: torch.device,
    seed: int = 0,
) -> F64:
    """The best coverage of each episode. Without a policy the retrieved actions are executed."""
    worlds.begin()
    looked = Pool(pool, device)
    see = None if policy is None else _Sight(policy, looked, worlds.goals, device)
    dice = torch.Generator(device).manual_seed(seed)
    while not worlds.ended.all():
        waiting = np.flatnonzero(~worlds.ended)
        states = worlds.states[waiting]
        rows = looked.nearest(described(states[:, 0], states[:, 1]), worlds.goals[waiting])
        ahead = pool.ahead(rows[:, None], np.arange(HORIZON))
        chunks = pool.actions[ahead].astype(np.float64)
        counts = np.full(len(waiting), HORIZON)
        if see is None:  # replay stops at the end of the demonstration
            counts = (ahead == rows[:, None] + np.arange(HORIZON)).sum(1)
        else:
            chunks = see.chunks(waiting, states[:, 1], rows, ahead, sampling, dice)
        actions, n = np.zeros((len(worlds.ended), HORIZON, 2)), np.zeros(len(worlds.ended), np.int64)
        actions[waiting], n[waiting] = np.clip(chunks, 0, BOARD), counts
        worlds.step(actions, n)
    return worlds.best


class _Sight:
    """Builds the policy's inputs and samples its actions."""

    def __init__(self, policy: TrainedPolicy, pool: Pool, goals: F64, device: torch.device) -> None:
        self.policy, self.one, self.device = policy, pool.one, device
        self.config, self.layout = policy.config, policy.model.layout
        size = self.config.image.size
        kinds, self.which = np.unique(np.round(goals, 6), axis=0, return_inverse=True)
        self.ground = backgrounds(kinds, size).to(device)
        shown, self.of_pool = np.unique(pool.one.goal, axis=0, return_inverse=True)
        self.pool_ground = backgrounds(shown, size).to(device)
        self.text = policy.model.task_encoder(self.config)([INSTRUCTION]).to(device)

    @torch.inference_mode()
    def chunks(
        self, which: I64, poses: F64, rows: I64, ahead: I64, sampling: SamplingConfig, dice: torch.Generator
    ) -> F64:
        """Action chunks of the policy: (n, H, 2)."""
        one, config, statistics, n = self.one, self.config, self.policy.statistics, len(rows)
        base = one.actions[ahead].reshape(n, -1)
        given = (ahead == rows[:, None] + np.arange(HORIZON)).astype(np.float32)
        vectors = {"proprio": poses[:, :2].astype(np.float32)}
        ground = self.ground[self.which.reshape(-1)[which]]
        values = {"frame/top": self._latents(ground, poses[:, :2], poses[:, 2:], "triangle")}
        if config.retrieval:
            vectors["retrieved_proprio"] = one.proprio[ahead].reshape(n, -1)
            vectors["retrieved_action"] = np.concatenate([base, given], axis=1)
            for i, offset in enumerate(frame_offsets(config)):
                at = one.ahead(rows, offset)
                behind = self.pool_ground[self.of_pool.reshape(-1)[one.owner[at]]]
                shown = self._latents(behind, one.proprio[at], one.block[at], "disc")
                values[f"retrieved_frame_{i}/top"] = shown
        for name, vector in vectors.items():
            values[name] = statistics.normalise(name, torch.from_numpy(vector).to(self.device))
        present = torch.ones(n, len(self.layout.slots), dtype=torch.bool, device=self.device)
        batch = Batch(values, present, self.text.expand(n, -1, -1))
        noise = self.policy.model.draw_noise(n, dice, self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            drawn: Any = self.policy.model.sample(batch, noise, sampling)["action"]
        action = statistics.restore("action", drawn.float()).cpu().numpy()
        return np.asarray(action + base * config.residual, np.float64).reshape(n, HORIZON, 2)

    def _latents(self, ground: Tensor, pushers: Any, blocks: Any, pusher: str) -> Tensor:
        at, poses = (
            torch.as_tensor(np.asarray(v, np.float32), device=self.device) for v in (pushers, blocks)
        )
        pixels = draw_boards(ground, at, poses, pusher).permute(0, 3, 1, 2).float() / 127.5 - 1
        assert self.policy.encoder is not None
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return self.policy.encoder.encode(pixels)
