"""Recording and masking the self-attention of an unchanged network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from recap.errors import InputError
from recap.policies.config import SamplingConfig
from recap.policies.layout import Layout
from recap.policies.model import Batch, SlotModel
from recap.policies.policy import Generators, TrainedPolicy
from recap.types import ActionChunk, Conditioning, Observation

ACTION = "action"  # the slot whose attention is recorded
RETRIEVED, SHAM, ALL = "retrieved", "sham", "all"
TOLERANCE = 1e-3  # largest relative difference allowed between our output and the network's own


def attention_layers(network: nn.Module) -> list[Any]:
    """The self-attention modules of the blocks, first to last, wherever they are in the network."""
    found = [m.attn1 for m in network.modules() if hasattr(getattr(m, "attn1", None), "set_processor")]
    if not found:
        raise InputError("the network has no blocks with self-attention to look into: use a Cosmos policy")
    return found


def slot_tokens(layout: Layout, name: str) -> slice:
    """The positions of a slot's tokens in the sequence, in row order."""
    each = (layout.size // layout.patch) ** 2
    first = layout.index(name) * each
    return slice(first, first + each)


@dataclass(frozen=True)
class Mask:
    """Tokens that the action slot must not attend to, and the layers.

    As text: `retrieved@3`, `retrieved_action@2+5`, `sham@all` or `sham@3/1` (drawn with seed 1).
    """

    what: str  # `retrieved`, `sham` (as many random other tokens), or the start of a slot name
    layers: tuple[int, ...] | None = None  # None: all layers
    seed: int = 0  # for sham masks

    @classmethod
    def parse(cls, text: str) -> Mask:
        """The inverse of `str`."""
        what, _, rest = text.partition("@")
        layers, _, seed = rest.partition("/")
        try:
            numbers = None if layers == ALL else tuple(int(n) for n in layers.split("+"))
            return cls(what, numbers, int(seed or 0))
        except ValueError:
            raise InputError(
                f"cannot read the mask '{text}': give WHAT@LAYER, such as retrieved@3, sham@2+5 or sham@all"
            ) from None

    def __str__(self) -> str:
        layers = ALL if self.layers is None else "+".join(map(str, self.layers))
        return f"{self.what}@{layers}" + (f"/{self.seed}" if self.seed else "")

    def blocked(self, layout: Layout) -> Tensor:
        """The masked tokens of the sequence: (T,)."""
        tokens = torch.zeros(layout.n_tokens, dtype=torch.bool)
        wanted = RETRIEVED if self.what == SHAM else self.what
        chosen = [
            s for s in layout.slots if (s.retrieved if wanted == RETRIEVED else s.name.startswith(wanted))
        ]
        if not chosen or any(s.name == ACTION for s in chosen):
            names = ", ".join(s.name for s in layout.slots if s.name != ACTION)
            raise InputError(f"nothing to mask as '{self.what}': give retrieved, sham, or one of {names}")
        for slot in chosen:
            tokens[slot_tokens(layout, slot.name)] = True
        return _others(tokens, self.seed) if self.what == SHAM else tokens

    def by_layer(self, model: SlotModel) -> dict[int, Tensor]:
        """Layer -> allowed attention, (1, 1, T, T)."""
        n_layers = len(attention_layers(model.network))
        layers = range(n_layers) if self.layers is None else self.layers
        for layer in layers:
            if not 0 <= layer < n_layers:
                raise InputError(f"there is no layer {layer} to mask: the network has 0…{n_layers - 1}")
        blocked, n = self.blocked(model.layout), model.layout.n_tokens
        allowed = torch.ones(1, 1, n, n, dtype=torch.bool)
        allowed[:, :, slot_tokens(model.layout, ACTION)] = ~blocked
        return dict.fromkeys(layers, allowed)


def _others(tokens: Tensor, seed: int) -> Tensor:
    """As many other tokens, leaving at least one."""
    others = torch.nonzero(~tokens).ravel()
    n = min(int(tokens.sum()), len(others) - 1)
    drawn = others[torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))[:n]]
    return torch.zeros_like(tokens).index_fill_(0, drawn, True)


@dataclass
class Record:
    """Recorded attention of the action slot: one entry per call of a layer."""

    weights: dict[int, list[Tensor]] = field(default_factory=dict)  # layer -> (B, heads, T) for each step

    def stacked(self) -> Tensor:
        """(B, steps, layers, heads, T); rows sum to 1."""
        layers = [torch.stack(self.weights[i], dim=1) for i in sorted(self.weights)]
        return torch.stack(layers, dim=2)


@contextmanager
def watched(
    model: SlotModel, record: Record | None = None, masks: Sequence[Mapping[int, Tensor]] = ()
) -> Iterator[None]:
    """Context in which layers record their attention and apply the masks; afterwards they are restored."""
    layers = attention_layers(model.network)
    before = [layer.processor for layer in layers]
    rows = slot_tokens(model.layout, ACTION)
    try:
        for number, layer in enumerate(layers):
            allowed = [mask[number] for mask in masks if number in mask]
            both = torch.stack(allowed).all(dim=0) if allowed else None
            if record is not None or both is not None:
                layer.set_processor(_Watcher(layer.processor, number, rows, both, record))
        yield
    finally:
        for layer, processor in zip(layers, before, strict=True):
            layer.set_processor(processor)


class _Watcher:
    """Calls the stock processor, and calculates the attention of the action slot in addition."""

    def __init__(
        self, stock: Any, number: int, rows: slice, allowed: Tensor | None, record: Record | None
    ) -> None:
        self.stock, self.number, self.rows, self.allowed, self.record = stock, number, rows, allowed, record

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        image_rotary_emb: Any = None,
    ) -> Tensor:
        """The output of the stock processor."""
        if self.allowed is not None:
            attention_mask = self.allowed.to(hidden_states.device)
        out: Tensor = self.stock(attn, hidden_states, encoder_hidden_states, attention_mask, image_rotary_emb)
        if self.record is not None:
            weights, own = _look(attn, hidden_states, self.rows, attention_mask, image_rotary_emb)
            there = out[:, self.rows].float()
            if float((own - there).abs().max()) > TOLERANCE * max(1.0, float(there.abs().max())):
                raise InputError(
                    f"layer {self.number} computes attention otherwise than the probe: use a Cosmos network "
                    "in 32 bits with diffusers' own processors"
                )
            self.record.weights.setdefault(self.number, []).append(weights.mean(dim=2).float().cpu())
        return out


def _look(attn: Any, hidden: Tensor, rows: slice, allowed: Tensor | None, rope: Any) -> tuple[Tensor, Tensor]:
    """Attention of some rows (B, heads, rows, T), and the layer's output for them."""
    from diffusers.models.embeddings import apply_rotary_emb

    def heads(x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], attn.heads, -1).transpose(1, 2)

    query = attn.norm_q(heads(attn.to_q(hidden[:, rows])))
    key, value = attn.norm_k(heads(attn.to_k(hidden))), heads(attn.to_v(hidden))
    if rope is not None:
        turn = {"use_real": True, "use_real_unbind_dim": -2}
        query = apply_rotary_emb(query, tuple(part[rows] for part in rope), **turn)
        key = apply_rotary_emb(key, rope, **turn)
    logits = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
    if allowed is not None:
        logits = logits.masked_fill(~allowed[:, :, rows], -torch.inf)
    weights = logits.softmax(dim=-1)
    out = (weights @ value).transpose(1, 2).flatten(2, 3)
    return weights, attn.to_out[0](out).float()


class WatchedPolicy(TrainedPolicy):
    """The same policy with masked or recorded attention; everything else is shared."""

    def __init__(self, policy: TrainedPolicy, masks: Sequence[Mask] = (), *, note: bool = False) -> None:
        self.__dict__.update(policy.__dict__)
        # Of the last call: (steps, layers, heads, T) for each chunk.
        self.noted: list[tuple[ActionChunk, Tensor]] = []
        self._masks = [mask.by_layer(self.model) for mask in masks]
        self._note = note

    def sample(self, batch: Batch, noise: dict[str, Tensor], config: SamplingConfig) -> dict[str, Tensor]:
        """Sample with the network itself, whose layers are watched."""
        return self.model.sample(batch, noise, config)

    def predict_action_chunk(
        self, observations: Sequence[Observation], given: Sequence[Conditioning], generator: Generators = None
    ) -> list[ActionChunk]:
        """One chunk for each observation."""
        record = Record() if self._note else None
        with watched(self.model, record, self._masks):
            chunks = super().predict_action_chunk(observations, given, generator)
        if record is not None and chunks:
            self.noted = list(zip(chunks, record.stacked(), strict=True))
        return chunks


def masked(policy: TrainedPolicy, text: str) -> WatchedPolicy:
    """The policy with a mask applied: the entry point of `recap eval --mask`."""
    return WatchedPolicy(policy, [Mask.parse(text)])
