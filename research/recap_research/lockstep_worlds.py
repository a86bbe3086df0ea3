"""Many PushT worlds in separate processes, which import neither torch nor a policy."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
MAX_STEPS = 300
LAST = 0.95  # coverage at which an episode ends
BEGIN = "begin"


def serve(pipe: Connection, episodes: Sequence[tuple[int, float]], pusher: str) -> None:
    """Run these episodes (seed, goal) and execute chunks. BEGIN restarts all; None ends the process."""
    from recap_worlds.pusht.env import PushTEnv

    worlds = [PushTEnv(pusher, goal, success_threshold=LAST) for _, goal in episodes]
    steps, best = np.zeros(len(worlds), np.int64), np.zeros(len(worlds))
    states: list[list[list[float]]] = []
    while (asked := pipe.recv()) is not None:
        if asked == BEGIN:
            steps[:], states = 0, []
            for i, (seed, _) in enumerate(episodes):
                best[i] = worlds[i].reset(seed=seed)[1]["coverage"]
                states.append([pose(worlds[i])] * 2)
            goals = np.array([world.goal_pose for world in worlds])
            pipe.send((goals, np.array(states), best > LAST, best.copy()))
            continue
        actions, counts = asked
        for i, world in enumerate(worlds):
            for action in actions[i, : counts[i]]:
                if best[i] > LAST or steps[i] >= MAX_STEPS:
                    break
                *_, info = world.step(action)
                steps[i] += 1
                best[i] = max(best[i], info["coverage"])
                states[i] = [states[i][1], pose(world)]
        pipe.send((np.array(states), (best > LAST) | (steps >= MAX_STEPS), best.copy()))


def pose(world: Any) -> list[float]:
    """Pusher x y, block x y angle."""
    return [*world.agent.position, *world.block.position, world.block.angle]


class Worlds:
    """All episodes of an evaluation, distributed over processes; one call executes a chunk in all of them."""

    def __init__(self, episodes: Sequence[tuple[int, float]], pusher: str, n_processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.episodes = episodes
        self._parts = [part for part in np.array_split(np.arange(len(episodes)), n_processes) if len(part)]
        self._pipes, self._processes = [], []
        for part in self._parts:
            ours, theirs = context.Pipe()
            mine = [episodes[i] for i in part]
            process = context.Process(target=serve, args=(theirs, mine, pusher), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def begin(self) -> None:
        """Reset every episode to its start."""
        for pipe in self._pipes:
            pipe.send(BEGIN)
        begun = [pipe.recv() for pipe in self._pipes]
        self.goals: F64 = np.concatenate([b[0] for b in begun])
        self.states: F64 = np.concatenate([b[1] for b in begun])  # (n, 2, 5) previous and current
        self.ended = np.concatenate([b[2] for b in begun])
        self.best: F64 = np.concatenate([b[3] for b in begun])

    def step(self, actions: F64, counts: NDArray[np.int64]) -> None:
        """Execute the first `counts` actions of each chunk (n, H, 2)."""
        for pipe, part in zip(self._pipes, self._parts, strict=True):
            pipe.send((actions[part], counts[part]))
        for pipe, part in zip(self._pipes, self._parts, strict=True):
            self.states[part], self.ended[part], self.best[part] = pipe.recv()

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()
