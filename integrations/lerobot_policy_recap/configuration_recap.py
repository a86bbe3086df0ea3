"""What a LeRobot checkpoint of a served policy says: where the server is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lerobot.configs.policies import PreTrainedConfig


@PreTrainedConfig.register_subclass("recap")
@dataclass
class RecapConfig(PreTrainedConfig):  # type: ignore[misc]
    """A policy that `recap serve` computes; the weights stay there.

    Args:
        url: of the server; its token is the variable RECAP_TOKEN.
        n_action_steps: actions of a chunk to carry out; none: as the server says.
        chunk_size: actions of a chunk, as the server said when the checkpoint was written.
        seed: of the policy's noise; each episode and each environment of a batch has its own.
        reply_timeout_s: for one reply.
    """

    url: str = "ws://127.0.0.1:8000"
    n_action_steps: int | None = None
    chunk_size: int = 1
    seed: int = 0
    reply_timeout_s: float = 30.0
    device: str | None = "cpu"

    @property
    def observation_delta_indices(self) -> None:
        """One observation: the server keeps the history."""
        return None

    @property
    def action_delta_indices(self) -> list[int]:
        """A chunk."""
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
