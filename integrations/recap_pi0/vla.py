"""The vision-language-action model: a π0-type network with the retrieved chunk in its prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recap.errors import InputError
from recap.policies.config import PolicyConfig
from recap.policies.model import Batch, SlotModel, TaskEncoder
from recap_pi0.config import Pi0NetworkConfig
from recap_pi0.pi0 import (
    build_pi0,
    freeze_unused,
    hashed_ids,
    load_pretrained_pi0,
    published_tokenizer,
    tokenized_ids,
)
from recap_pi0.pi05 import Pi05, load_pretrained_pi05, state_bins, state_words

STATE, ACTION = "proprio", "action"


@dataclass(frozen=True)
class Prefix:
    """Keys and values of every layer for the action expert; the same at every denoising step."""

    cache: Any
    present: Tensor  # (B, P) 1 for tokens that are present


class VisionLanguageActionModel(SlotModel):
    """The π0-type network with its layout of slots.

    The prefix is images, words, and the retrieved chunk: a token of its proprioception, then one per step of
    its actions. The current state and the noisy actions follow, as published. The distance in positions
    between step i of the retrieved chunk and step i of the actions is always the same.
    """

    tag = "vision-language-action-model"
    summary = (
        "A retrieval-conditioned vision-language-action model of the π0 type: given the observation and "
        "the chunk of another embodiment in a similar moment, its action expert denoises the action chunk."
    )

    state_token = True  # True if the state is a token before the actions
    build = staticmethod(build_pi0)

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        self.sizes = _sizes(config)
        rooms = ((STATE, self.sizes.max_state_dim), (ACTION, self.sizes.max_action_dim))
        for name, room in rooms if self.state_token else rooms[1:]:
            width = self.layout[name].width // (config.chunk_size if name == ACTION else 1)
            if width > room:
                raise InputError(f"slot '{name}' is {width} wide, the network takes {room}: set inputs=I")
        self.network = self.build(self.sizes, config.image.size, config.chunk_size)
        freeze_unused(self.network, config.sees)
        self.ports = nn.ModuleDict()
        if config.retrieval:
            widths = {"retrieved_proprio": self.layout["retrieved_proprio"].width}
            widths["retrieved_action"] = config.action_dim + 1  # + 1: validity of the step
            self.ports.update({name: nn.Linear(w, self.sizes.prefix_dim) for name, w in widths.items()})

    @classmethod
    def task_encoder(cls, config: PolicyConfig) -> TaskEncoder:
        """A function from instructions to ids (n, L), padded with -1."""
        sizes = _sizes(config)
        if config.text == "words":
            return lambda tasks: hashed_ids(tasks, sizes)
        tokenizer = published_tokenizer(config.text)
        return lambda tasks: tokenized_ids([cls.said(task) for task in tasks], tokenizer, sizes)

    @staticmethod
    def said(task: str) -> str:
        """The instruction in the form of the published network's training."""
        return f"{task}\n"

    @property
    def n_tokens(self) -> int:
        """The number of tokens of prefix, state and actions."""
        config = self.config
        each = (config.image.size // self.sizes.vision_patch) ** 2
        retrieved = 1 + config.chunk_size if config.retrieval else 0
        prefix = len(self.layout.images) * each + self.sizes.n_text_tokens + retrieved
        return prefix + self.state_token + config.chunk_size

    def load_published(self, source: str) -> None:
        """Load published weights of the π0 type; the projections of the retrieved chunk stay random."""
        load_pretrained_pi0(self.network, source)

    def recompute_activations(self) -> None:
        """Refused, since transformers then drops the cache that the expert needs."""
        raise InputError("a π0-type network cannot recompute its activations: set checkpointing=false")

    def read(self, batch: Batch) -> Prefix:
        """Compute the prefix, which does not depend on the noisy actions."""
        tokens, present = self.embed(batch)
        inner: Any = self.network.model
        cache = inner.vlm(
            inputs_embeds=tokens,
            attention_mask=present,
            position_ids=present.cumsum(-1) - 1,
            token_type_ids=torch.zeros_like(present),  # one block: every token attends to all others
            use_cache=True,
        ).past_key_values
        return Prefix(cache, present)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Tokens of the prefix (B, P, d), and which are present (B, P); absent ones are masked."""
        inner: Any = self.network.model
        tokens: list[Tensor] = []
        present: list[Tensor] = []
        images = sorted(self.layout.images, key=lambda slot: slot.retrieved)  # present first, as published
        if images:
            pixels = torch.cat([batch.values[slot.name] for slot in images])
            features = inner.vlm.get_image_features(pixels).pooler_output  # (images * B, t, d)
            for slot, each in zip(images, torch.split(features, len(batch)), strict=True):
                tokens.append(each)
                present.append(self._there(batch, slot.name, each.shape[1]))
        ids = self.words(batch)
        words = inner.get_input_embeddings()(ids.clamp_min(0))
        tokens.append(words)
        present.append(ids >= 0)
        for name, port in self.ports.items():
            tokens.append(port(self._steps(name, batch.values[name])))
            present.append(self._there(batch, name, tokens[-1].shape[1]))
        return torch.cat([one.to(words.dtype) for one in tokens], dim=1), torch.cat(present, dim=1).long()

    def forward(
        self, batch: Batch, moving: dict[str, Tensor], level: Tensor, known: Prefix | None = None
    ) -> dict[str, Tensor]:
        """The velocity of the action chunk."""
        prefix = self.read(batch) if known is None else known
        config, sizes = self.config, self.sizes
        chunk = moving[ACTION].reshape(len(batch), config.chunk_size, config.action_dim)
        state = {"state": _filled(batch.values[STATE], sizes.max_state_dim)} if self.state_token else {}
        out = self.network(
            **state,
            noise=_filled(chunk, sizes.max_action_dim),
            timestep=level,
            attention_mask=prefix.present,
            past_key_values=prefix.cache,
        ).logits
        prefix.cache.crop(-self.state_token - config.chunk_size)  # drop what the expert added
        return {ACTION: out[..., : config.action_dim].float().flatten(1)}

    def words(self, batch: Batch) -> Tensor:
        """Ids of the text (B, L), padded with -1."""
        return batch.text

    def _steps(self, name: str, values: Tensor) -> Tensor:
        """A vector slot (B, width) as tokens: for actions one per step with its validity, else one."""
        if name != "retrieved_action":
            return values[:, None]
        horizon, width = self.config.chunk_size, self.config.action_dim
        steps, valid = values[:, : horizon * width], values[:, horizon * width :]
        return torch.cat([steps.reshape(-1, horizon, width), valid[..., None]], dim=-1)

    def _there(self, batch: Batch, name: str, n: int) -> Tensor:
        return batch.present[:, self.layout.index(name), None].expand(-1, n)


class Pi05ActionModel(VisionLanguageActionModel):
    """π0.5: the state follows the instruction as text, in whole numbers."""

    state_token = False
    build = staticmethod(Pi05)

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        self._state_words: tuple[Tensor, Tensor] | None = None

    @staticmethod
    def said(task: str) -> str:
        """The text before the state."""
        plain = task.strip().replace("_", " ").replace("\n", " ")
        return f"Task: {plain}, State:"

    @property
    def n_tokens(self) -> int:
        """Includes the largest number of tokens that a published tokenizer needs for the state."""
        return super().n_tokens + 4 * self.layout[STATE].width + 4

    def load_published(self, source: str) -> None:
        """Load published weights of π0.5; the projections of the retrieved chunk stay random."""
        load_pretrained_pi05(self.network, source)

    def words(self, batch: Batch) -> Tensor:
        """Ids of the instruction, the numbers of the state, and the text before the actions."""
        if self._state_words is None:
            self._state_words = state_words(self._encode)
        table, end = (part.to(batch.text.device) for part in self._state_words)
        numbers = table[state_bins(batch.values[STATE])].flatten(1)  # (B, width * L)
        return torch.cat([batch.text, numbers, end.expand(len(batch), -1)], dim=1)

    def _encode(self, text: str) -> list[int]:
        if self.config.text == "words":
            ids = hashed_ids([text], self.sizes)[0, 1:]
            return [int(i) for i in ids if i >= 0]
        found: list[int] = published_tokenizer(self.config.text)(text, add_special_tokens=False)["input_ids"]
        return found


def _sizes(config: PolicyConfig) -> Pi0NetworkConfig:
    assert isinstance(config.network, Pi0NetworkConfig)
    return config.network


def _filled(values: Tensor, width: int) -> Tensor:
    """Pad with zeros to the published width."""
    return nn.functional.pad(values, (0, width - values.shape[-1]))
