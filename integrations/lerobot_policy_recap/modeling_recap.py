"""The policy that LeRobot runs: converts tensors to messages and replies to tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from lerobot.policies.pretrained import PreTrainedPolicy
from numpy.typing import NDArray
from torch import Tensor

from recap_client.errors import InputError

from .configuration_recap import RecapConfig
from .remote import KEY_IMAGE, KEY_STATE, RemotePolicy


class RecapPolicy(PreTrainedPolicy):  # type: ignore[misc]
    """A thin client; the network, the pool and the history are on the server."""

    config_class = RecapConfig
    name = "recap"

    def __init__(self, config: RecapConfig, **_: Any) -> None:
        super().__init__(config)
        self.remote = RemotePolicy(config.url, config.n_action_steps, config.seed, config.reply_timeout_s)
        wanted = config.action_feature
        if wanted is not None and tuple(wanted.shape) != (self.remote.action_dim,):
            raise InputError(
                f"the robot takes actions of {tuple(wanted.shape)}; the policy gives "
                f"{self.remote.action_dim} numbers: run it on the robot that it was trained for"
            )

    def reset(self) -> None:
        """Begin a new episode."""
        self.remote.reset()

    def select_action(self, batch: dict[str, Any], **_: Any) -> Tensor:
        """The next action of each environment: (B, A)."""
        states = batch[KEY_STATE].detach().cpu().numpy()
        return torch.from_numpy(self.remote.actions(lambda: self._messages(batch), states))

    def predict_action_chunk(self, batch: dict[str, Any], **_: Any) -> Tensor:
        """A chunk for each environment: (B, H, A)."""
        return torch.from_numpy(self.remote.chunks(self._messages(batch)))

    def supports_rtc(self) -> bool:
        """False: a chunk cannot be conditioned on the rest of the last one; `recap-client run` blends."""
        return False

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any] | None]:
        """It is not trained here."""
        raise NotImplementedError("a ReCAP policy is trained by `recap train`: LeRobot only runs it")

    def get_optim_params(self) -> dict[str, Any]:
        """It is not trained here."""
        return {}

    def _messages(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        arrays = {key: _array(key, value) for key, value in batch.items() if isinstance(value, Tensor)}
        task = batch.get("task") or ""
        n = len(batch[KEY_STATE])
        return self.remote.messages(arrays, [task] * n if isinstance(task, str) else list(task))


def _array(key: str, value: Tensor) -> NDArray[Any]:
    """An image as uint8 with channels last; other tensors unchanged."""
    array: NDArray[Any] = value.detach().cpu().numpy()
    if not key.startswith(KEY_IMAGE):
        return array
    if array.dtype != np.uint8:
        array = np.clip(np.rint(array * 255), 0, 255).astype(np.uint8)
    return np.moveaxis(array, 1, -1) if array.shape[1] == 3 else array
