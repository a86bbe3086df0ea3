"""The LeRobot config of a served policy: the address of its server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lerobot.configs.policies import PreTrainedConfig


@PreTrainedConfig.register_subclass("recap")
@dataclass
class RecapConfig(PreTrainedConfig):  # type: ignore[misc]
    """A policy that runs in `recap serve`; its weights stay on the server.

    Args:
        url: address of the server; its token is read from the variable RECAP_TOKEN.
        n_action_steps: actions of a chunk to execute; None: the server's setting.
        chunk_size: actions of a chunk, as served when the checkpoint was written.
        seed: first seed of the policy's noise; each episode of each environment gets its own.
        reply_timeout_s: timeout of one reply.
    """

    url: str = "ws://127.0.0.1:8000"
    n_action_steps: int | None = None
    chunk_size: int = 1
    seed: int = 0
    reply_timeout_s: float = 30.0
    device: str | None = "cpu"

    @property
    def observation_delta_indices(self) -> None:
        """None, that is one observation: the server keeps the history."""
        return None

    @property
    def action_delta_indices(self) -> list[int]:
        """The steps of a chunk."""
        return list(range(self.chunk_size))

    @property
    def reward_delta_indices(self) -> None:
        """None."""
        return None

    def get_optimizer_preset(self) -> Any:
        """It is not trained here."""
        raise NotImplementedError("a ReCAP policy is trained by `recap train`: LeRobot only runs it")

    def get_scheduler_preset(self) -> None:
        """It is not trained here."""
        return None

    def validate_features(self) -> None:
        """The server's description is compared with the first observation instead."""
