"""A served policy for several environments, with one connection for each; numpy in, numpy out."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap_client.client import PolicyClient
from recap_client.errors import InputError, ServerError
from recap_client.gate import Gate, Progress
from recap_client.messages import EXECUTED, IMAGES, PROMPT, STATE

KEY_STATE, KEY_IMAGE, KEY_IMAGES = "observation.state", "observation.image", "observation.images."


class RemotePolicy:
    """Keeps a connection and a queue of actions for each environment of a batch.

    Args:
        url: address of the server; its token is read from the variable RECAP_TOKEN.
        n_action_steps: actions of a chunk to execute; None: the server's setting.
        seed: first seed of the noise.
        reply_timeout_s: timeout of one reply.
    """

    def __init__(
        self, url: str, n_action_steps: int | None = None, seed: int = 0, reply_timeout_s: float = 30.0
    ) -> None:
        self.url, self.seed, self._timeout_s = url, seed, reply_timeout_s
        self.clients: list[PolicyClient] = [self._connect()]
        self.said = said = self.clients[0].metadata
        if "action_horizon" not in said or "robot" not in said:
            raise ServerError(f"policy server {url} does not describe its robot: is it `recap serve`?")
        self.chunk_size, self.action_dim = int(said["action_horizon"]), int(said["action_dim"])
        self.n_action_steps = n_action_steps or int(said["n_action_steps"])
        if not 1 <= self.n_action_steps <= self.chunk_size:
            self.close()
            raise InputError(f"n_action_steps is {n_action_steps}: give 1 to {self.chunk_size}")
        self._gate = Gate.read(said)
        self._coming: list[deque[NDArray[np.float32]]] = []
        self._progress: list[Progress] = []
        self._executed: list[int] = []  # actions taken from the last chunk
        self._episode = 0
        self._is_fresh = True

    def reset(self) -> None:
        """Begin a new episode in every environment; the server is reset before the next request."""
        self._coming, self._executed, self._is_fresh = [], [], True

    def close(self) -> None:
        """Close the connections."""
        for client in self.clients:
            client.close()

    def actions(self, observe: Any, states: NDArray[Any]) -> NDArray[np.float32]:
        """The next action of each of n environments: (n, a); with a gate, the last action may be repeated.

        Args:
            observe: returns the messages, one per environment; called when new chunks are needed.
            states: (n, s) observed now.
        """
        n = len(states)
        if len(self._coming) != n:
            self._coming, self._executed = [deque() for _ in range(n)], []
            self._progress = [Progress(self._gate) for _ in range(n)]
        held: list[Any] = [progress.again(s) for progress, s in zip(self._progress, states, strict=True)]
        if any(again is None and not coming for again, coming in zip(held, self._coming, strict=True)):
            chunks = self.chunks(observe(), self._executed or None)
            self._coming = [deque(chunk[: self.n_action_steps]) for chunk in chunks]
            self._executed, held = [0] * n, [None] * n
        for i in range(n):
            if held[i] is None:
                held[i] = self._coming[i].popleft()
                self._progress[i].send(np.asarray(held[i], np.float64))
                self._executed[i] += 1
        return np.stack(held).astype(np.float32)

    def chunks(
        self, messages: Sequence[Mapping[str, Any]], executed: Sequence[int] | None = None
    ) -> NDArray[np.float32]:
        """A chunk for each message: (n, chunk_size, a).

        Args:
            executed: actions of its last chunk that each environment executed; None: the server's default.
        """
        while len(self.clients) < len(messages):
            self.clients.append(self._connect())
        clients = self.clients[: len(messages)]
        if self._is_fresh:
            for number, client in enumerate(clients):
                client.reset(seed=self.seed + self._episode + number)
            self._episode += len(clients)
            self._is_fresh, executed = False, None
        if executed is not None:
            messages = [{**m, EXECUTED: n} for m, n in zip(messages, executed, strict=True)]
        with ThreadPoolExecutor(len(messages)) as pool:  # in parallel, so that the server can batch them
            replies = pool.map(lambda client, message: client.infer(message), clients, messages)
            chunks = np.stack([np.asarray(reply["actions"], np.float32) for reply in replies])
        if chunks.shape != (len(messages), self.chunk_size, self.action_dim) or not np.isfinite(chunks).all():
            raise ServerError(f"policy server {self.url} sends chunks of {chunks.shape}, or not finite")
        return chunks

    def messages(self, batch: Mapping[str, NDArray[Any]], tasks: Sequence[str]) -> list[dict[str, Any]]:
        """Convert a LeRobot batch to messages: state (n, s), images (n, h, w, 3) uint8."""
        size = int(self.said["state_dim"])
        if KEY_STATE not in batch or batch[KEY_STATE].shape[1:] != (size,):
            shape = batch[KEY_STATE].shape if KEY_STATE in batch else "missing"
            raise InputError(f"'{KEY_STATE}' is {shape}: policy {self.said['policy']} needs (batch, {size})")
        images = self._images(batch)
        return [
            {
                STATE: np.ascontiguousarray(batch[KEY_STATE][i], np.float32),
                **({PROMPT: tasks[i]} if tasks[i] else {}),
                **{IMAGES + camera: np.ascontiguousarray(images[camera][i]) for camera in images},
            }
            for i in range(len(batch[KEY_STATE]))
        ]

    def _images(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Camera of the policy -> images; LeRobot's `observation.image` is the first camera."""
        known = list(self.said.get("cameras") or {})
        found = {name: batch[KEY_IMAGES + name] for name in known if KEY_IMAGES + name in batch}
        if known and KEY_IMAGE in batch:
            found.setdefault(known[0], batch[KEY_IMAGE])
        needed = list(self.said.get("cameras_required", ()))
        if not needed and self.said.get("poses_from_images"):
            needed = known[:1]
        missing = [name for name in needed if name not in found]
        if missing:
            there = ", ".join(key for key in batch if key.startswith(KEY_IMAGE)) or "none"
            raise InputError(
                f"there is no camera '{missing[0]}', which the policy needs; there is {there}: "
                f"""give --rename_map '{{"observation.images.THEIRS": "{KEY_IMAGES}{missing[0]}"}}'"""
            )
        return found

    def _connect(self) -> PolicyClient:
        token = os.environ.get("RECAP_TOKEN") or None
        return PolicyClient(self.url, token, reply_timeout_s=self._timeout_s)
