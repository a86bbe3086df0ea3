"""How long does a chunk take, and how fast does the policy train, against what the machine could do?

    python benchmarks/policy.py cpu --json docs/results/policy_cpu.json
    python benchmarks/policy.py gpu --out docs/results/policy_gpu.json --seconds 200

`cpu` is the nano policy on two threads: whole chunks and their parts. `gpu` is the 2B network with random
weights on one CUDA GPU: a forward, a chunk of five Euler steps and a training step, each in several ways;
and the nano's training. Beside each time stands the floor: the larger of operations over the matrix rate and
bytes over the copy bandwidth, both measured in the same run.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from recap.policies.config import ImageConfig, NetworkConfig, PolicyConfig
from recap.policies.wam import Batch, WorldActionModel
from recap.training.config import PRESETS

NOMINAL = 989e12  # FLOP/s in bf16, by the H200's datasheet
N_STEPS = 5
# What is applied to the instruction or to a slot's noise level, not to every token.
NOT_PER_TOKEN = ("crossattn_proj", "time_embed", "attn2.to_k", "attn2.to_v")
# What need not be either: a slot has one modulation, and to one token of text all attend alike.
NOT_NEEDED = ("norm1.", "norm2.", "norm3.", "norm_out.", "attn2.")


def token_parameters(network: nn.Module, lean: bool = False) -> int:
    """Weights that every token is multiplied with."""
    left_out = NOT_PER_TOKEN + (NOT_NEEDED if lean else ())
    weights = [(k, p) for k, p in network.named_parameters() if p.ndim == 2]
    return sum(p.numel() for k, p in weights if not any(part in k for part in left_out))


def forward_flops(network: nn.Module, tokens: int, keys: int | None = None, lean: bool = False) -> float:
    """Of one sample: two operations a weight and token, and the attention's two products."""
    config: Any = network.config
    width = config.num_attention_heads * config.attention_head_dim
    attention = 4 * config.num_layers * width * tokens * (tokens if keys is None else keys)
    return 2 * token_parameters(network, lean) * tokens + attention


@dataclass(frozen=True)
class Ceilings:
    """What the machine was measured to do."""

    flops: float  # a second, of a large matrix product
    bytes: float  # a second, read and written, of a large copy

    def floor_ms(self, flops: float, n_bytes: float) -> float:
        """No version takes less."""
        return 1000 * max(flops / self.flops, n_bytes / self.bytes)


def text_width_of(config: PolicyConfig) -> int:
    """Of a token of the instruction."""
    network = config.network
    return network.crossattn_proj_in_channels if network.use_crossattn_projection else network.text_embed_dim


def synthetic(model: WorldActionModel, n: int, device: torch.device) -> Batch:
    """Random slots, all present, and one token of text."""
    values = {s.name: torch.randn(n, *model.shape(s), device=device) for s in model.layout.slots}
    present = torch.ones(n, len(model.layout.slots), dtype=torch.bool, device=device)
    text = torch.randn(n, 1, text_width_of(model.config), device=device)
    weight = torch.ones(n, model.layout["action"].width, device=device)
    return Batch(values, present, text, weight)


def packages(*names: str) -> dict[str, str]:
    """Versions of those that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


# --- cpu: the nano policy ---


def quantiles(
    call: Callable[[int], Any], n: int, before: Callable[[], Any] | None = None
) -> dict[str, float]:
    """Median and 90th percentile of n calls in milliseconds; `before` each, untimed."""
    times = []
    for i in range(n):
        if before is not None:
            before()
        started = time.perf_counter()
        call(i)
        times.append(1000 * (time.perf_counter() - started))
    p90 = float(np.quantile(times, 0.9))
    return {"p50_ms": statistics.median(times), "p90_ms": p90, "least_ms": min(times), "n": n}


def cpu_ceilings(best: Ceilings | None = None) -> Ceilings:
    """A product of 2048×2048 matrices in float32, and a copy of 256 MB: the best time of several."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    source, target = torch.randn(64 * 2**20), torch.empty(64 * 2**20)
    product = quantiles(lambda i: a @ b, 12)["least_ms"]
    moved = quantiles(lambda i: target.copy_(source), 12)["least_ms"]
    found = Ceilings(2 * 2048**3 / product * 1000, 2 * 4 * 64 * 2**20 / moved * 1000)
    if best is None:
        return found
    return Ceilings(max(found.flops, best.flops), max(found.bytes, best.bytes))


def nano(name: str) -> tuple[Any, Any, str]:
    """A policy with its retriever; of fresh weights where there is no checkpoint, which are as fast."""
    from recap.errors import InputError
    from recap.policies.autoencoder import FrameEncoder, build_autoencoder
    from recap.policies.checkpoint import find_checkpoint, from_pretrained
    from recap.policies.policy import RetrievalStamp, Statistics, WamPolicy
    from recap.retrieval.presets import preset
    from recap.retrieval.retriever import Retriever
    from recap.standard_pools import open_pool

    try:
        policy = from_pretrained(find_checkpoint(name))
        weights = f"of {name}"
    except InputError:
        if name not in PRESETS:
            raise
        policy, weights = None, "fresh"
    config = PRESETS[name].policy if policy is None else policy.config
    retriever = Retriever(open_pool(None), *preset(f"pusht-{config.mode}", None))
    if policy is None:
        model = WorldActionModel(config)
        vectors = model.layout.vectors
        zeros = {s.name: np.zeros(s.width, np.float32) for s in vectors}
        ones = {s.name: np.ones(s.width, np.float32) for s in vectors}
        stamp = RetrievalStamp(
            retriever.config.name,
            retriever.describer.fingerprint,
            retriever.config.metric_fingerprint,
            retriever.config.object_name,
        )
        encoder = FrameEncoder(build_autoencoder(config.image.channels)) if config.sees else None
        policy = WamPolicy(model, Statistics(zeros, ones), stamp, encoder)
    return policy, retriever, weights


def counted(call: Callable[[], Any]) -> float:
    """Operations of a call, by torch's own count."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter:
        call()
    return float(counter.get_total_flops())


def run_cpu(options: argparse.Namespace) -> None:
    """Whole chunks, their parts, and the floors."""
    from report import finish

    from recap.agent import RetrievalAgent
    from recap.envs.pusht.drawing import BOARD_SIZE
    from recap.evaluation.agents import Trial
    from recap.retrieval.explain import query_at

    torch.set_num_threads(options.threads)
    repeats = options.repeats
    policy, retriever, weights = nano(options.policy)
    model, network = policy.model, policy.model.network
    tokens, n_all = model.layout.n_tokens, sum(p.numel() for p in network.parameters())
    ceilings = cpu_ceilings()
    print(
        f"{options.policy} ({weights} weights): {n_all / 1e6:.1f} M parameters, "
        f"{len(model.layout.slots)} slots, {tokens} tokens; {options.threads} threads"
    )
    view = retriever.source.view()
    ids = view.episode_ids
    episodes = [view.episode(ids[i * len(ids) // 32]) for i in range(32)]
    queries = [query_at(e, len(e) // 2) for e in episodes]
    seen = [q.window[-1] for q in queries]
    n_groups = 4  # so many different calls, one after another
    result: dict[str, Any] = {
        "policy": options.policy,
        "weights": weights,
        "parameters": n_all,
        "slots": [s.name for s in model.layout.slots],
        "tokens": tokens,
        "threads": options.threads,
        "torch": packages("torch", "diffusers"),
        "parts": {},
        "chunks": [],
    }

    def forwards(batch: int, n: int = 1) -> dict[str, float]:
        """Operations and bytes of n forwards."""
        return {"flops": n * batch * forward_flops(network, tokens), "bytes": n * 4 * n_all}

    # The parts.
    parts = result["parts"]
    retriever.retrieve(queries[0])
    parts["retrieve"] = quantiles(lambda i: retriever.retrieve(queries[i % 32]), repeats)
    encode_flops = 0.0
    if policy.config.sees:
        camera = policy.config.image.cameras[0]
        frame = np.array([256.0, 256.0, 0.3])
        images = [o.images[camera] for o in seen]
        latent = policy.encode_frames(images[:1], [frame])
        encode_flops = counted(lambda: policy.encode_frames(images[:1], [frame]))
        decode_flops = counted(lambda: policy.decode_frames(latent))
        n_encoder = sum(p.numel() for p in policy.encoder.network.parameters())
        parts["encode one image"] = {"flops": encode_flops, "bytes": 4 * n_encoder} | quantiles(
            lambda i: policy.encode_frames([images[i % 32]], [frame]), repeats
        )
        parts["decode one image"] = {"flops": decode_flops, "bytes": 4 * n_encoder} | quantiles(
            lambda i: policy.decode_frames(latent), repeats
        )
    cpu = torch.device("cpu")
    counts = {1: repeats} if options.quick else {1: repeats, 8: repeats, 32: max(10, repeats // 5)}
    with torch.inference_mode():
        for batch, n in counts.items():
            made, noise = synthetic(model, batch, cpu), model.draw_noise(batch, None, cpu)
            level = torch.full((batch,), 0.5)
            model(made, noise, level)
            row = forwards(batch) | quantiles(lambda i, b=made, x=noise, at=level: model(b, x, at), n)
            parts[f"one forward, batch {batch}"] = row
    for name, row in parts.items():
        print(f"  {name:<24} {_times(row)}", flush=True)

    # Whole chunks.
    for batch, n in counts.items():
        for n_steps in (1, 2, 5):
            agent = RetrievalAgent(
                retriever,
                policy.with_sampling(n_steps=n_steps),
                n_action_steps=1,  # every call makes a chunk
                limits=(0.0, BOARD_SIZE),
            )
            slots = list(range(batch))

            def fresh(agent: RetrievalAgent = agent, slots: Sequence[int] = slots) -> None:
                for slot in slots:  # a new episode: stage 1 is part of every call
                    agent.reset(slot, Trial("", 0.0, slot))

            def cold(fresh: Callable[[], None] = fresh, agent: RetrievalAgent = agent) -> None:
                fresh()
                agent._latents.clear()

            def chunk(i: int, agent: RetrievalAgent = agent, slots: Sequence[int] = slots) -> None:
                first = i % n_groups * len(slots)
                agent.act(slots, [seen[(first + k) % 32] for k in slots])

            for i in range(n_groups):
                fresh()
                chunk(i)
            shown = policy.config.n_retrieved_frames if policy.config.retrieval else 0
            ways = [("warm", fresh, 1)] + ([("cold", cold, 1 + shown)] if policy.config.sees else [])
            for way, before, n_images in ways:
                row = {
                    "batch": batch,
                    "n_steps": n_steps,
                    "retrieved_latents": way,
                    **forwards(batch, n_steps),
                }
                row["flops"] += batch * n_images * encode_flops
                row |= quantiles(chunk, n, before)
                result["chunks"].append(row)
                print(f"  chunk, batch {batch:>2}, {n_steps} steps, {way}:  {_times(row)}", flush=True)
    ceilings = cpu_ceilings(ceilings)
    result |= {"gflops_per_s": ceilings.flops / 1e9, "gb_per_s": ceilings.bytes / 1e9, "ratios": {}}
    print(f"floors at {ceilings.flops / 1e9:.0f} GFLOP/s and {ceilings.bytes / 1e9:.1f} GB/s:")
    names = [
        f"chunk, batch {r['batch']}, {r['n_steps']} steps, {r['retrieved_latents']}" for r in result["chunks"]
    ]
    for name, row in [*parts.items(), *zip(names, result["chunks"], strict=True)]:
        if "flops" in row:
            row["floor_ms"] = ceilings.floor_ms(row["flops"], row["bytes"])
            result["ratios"][f"{name}, over its floor"] = row["p50_ms"] / row["floor_ms"]
            print(f"  {name:<32} {_times(row)}")
    finish(result, options.json)


def _times(row: dict[str, Any]) -> str:
    floor = f"   floor {row['floor_ms']:7.2f} ms" if "floor_ms" in row else ""
    return f"p50 {row['p50_ms']:8.2f} ms   p90 {row['p90_ms']:8.2f} ms{floor}"


# --- gpu: the 2B network ---


@dataclass
class Bench:
    """The device, the clock, what is left of the time, and what was found so far."""

    device: torch.device
    out: Path | None
    seconds: float
    rehearse: bool
    started: float = field(default_factory=time.perf_counter)
    result: dict[str, Any] = field(default_factory=lambda: {"rows": []})
    ceilings: Ceilings = field(default_factory=lambda: Ceilings(1e12, 1e11))
    attention: Any = None  # its kernels, the fastest first, where that is not the default

    @property
    def cuda(self) -> bool:
        """Whether there is one."""
        return self.device.type == "cuda"

    @property
    def left(self) -> float:
        """Seconds."""
        return self.seconds - (time.perf_counter() - self.started)

    def compile(self, thing: Any) -> Any:
        """A function compiled; a rehearsal traces it only."""
        return torch.compile(thing, dynamic=False, backend="aot_eager" if self.rehearse else "inductor")

    def compile_blocks(self, network: Any) -> None:
        """Each block alone: compiled once, used by all."""
        for block in network.transformer_blocks:
            block.compile(dynamic=False, backend="aot_eager" if self.rehearse else "inductor")

    def sync(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize()

    def time_ms(self, call: Callable[[], Any], n: int = 20, warm_up: int = 2) -> dict[str, float]:
        """Median, least and most of n calls, each waited for."""
        for _ in range(warm_up):
            call()
        self.sync()
        times = []
        for _ in range(2 if self.rehearse else n):
            if self.cuda:
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                call()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end))
            else:
                at = time.perf_counter()
                call()
                times.append(1000 * (time.perf_counter() - at))
        return {
            "ms": statistics.median(times),
            "least_ms": min(times),
            "most_ms": max(times),
            "n": len(times),
        }

    def capture(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """The call as one CUDA graph: what it reads must stay where it is. In a rehearsal the call itself."""
        if not self.cuda:
            return call
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = call()

        def replay() -> Any:
            graph.replay()
            return held

        return replay

    @contextmanager
    def fast_attention(self) -> Iterator[None]:
        """Where compiling happens within it, the chosen kernel is compiled in."""
        if self.attention is None:
            yield
            return
        from torch.nn.attention import sdpa_kernel

        with sdpa_kernel(self.attention, set_priority=True):
            yield

    def attempt(self, name: str, needs: float, measure: Callable[[], dict[str, Any]]) -> None:
        """Measure one row; a failure or a lack of time is written down and the rest goes on."""
        row: dict[str, Any] = {"name": name}
        if self.left < needs:
            row["skipped"] = f"{self.left:.0f} s left, {needs:.0f} wanted"
        else:
            at = time.perf_counter()
            try:
                row |= measure()
                if "floor_ms" in row and "ms" in row:
                    row["times_floor"] = row["ms"] / row["floor_ms"]
            except Exception as error:
                row["failed"] = f"{type(error).__name__}: {str(error)[:300]}"
                row["where"] = traceback.format_exc()[-1200:]
            row["took_s"] = round(time.perf_counter() - at, 1)
        self.clean()
        self.result["rows"].append(row)
        self.write()
        print(f"[{time.perf_counter() - self.started:5.1f} s] {line(row)}", flush=True)

    def clean(self) -> None:
        """Give back what nobody holds."""
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()

    def write(self) -> None:
        """What there is so far."""
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text(json.dumps(self.result, indent=1) + "\n")


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    words = f"{row['name']:<64}"
    if "skipped" in row or "failed" in row:
        return words + (
            "skipped: " + row["skipped"] if "skipped" in row else "FAILED: " + row["failed"][:160]
        )
    if "ms" in row:
        words += f" {row['ms']:8.2f} ms"
    if "floor_ms" in row:
        words += f"  floor {row['floor_ms']:7.2f}"
    for key, text in (
        ("error", "  error {:.1e}"),
        ("samples_per_s", "  {:.1f} samples/s"),
        ("tokens_per_s", "  {:.0f} tokens/s"),
        ("peak_gib", "  {:.1f} GiB"),
        ("mfu_goal", "  6NT/nominal {:.1%}"),
        ("mfu_measured", "  6NT/measured {:.1%}"),
        ("mfu_executed", "  executed/nominal {:.1%}"),
    ):
        if key in row:
            words += text.format(row[key])
    return words


class InHalf(nn.Module):
    """A network of 16-bit weights for a model whose slots are float32; text projected already if told so."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.text: Tensor | None = None

    def forward(
        self,
        hidden_states: Tensor,
        timestep: Tensor,
        encoder_hidden_states: Tensor,
        condition_mask: Tensor,
        return_dict: bool = False,
    ) -> tuple[Tensor, ...]:
        kind = torch.bfloat16
        text = encoder_hidden_states.to(kind) if self.text is None else self.text
        found: tuple[Tensor, ...] = self.network(
            hidden_states=hidden_states.to(kind),
            timestep=timestep,
            encoder_hidden_states=text,
            condition_mask=condition_mask.to(kind),
            return_dict=return_dict,
        )
        return found

    @contextmanager
    def projected(self, text: Tensor) -> Iterator[None]:
        """The instruction's projection done once, outside the steps."""
        inner: Any = self.network
        self.text = inner.crossattn_proj(text.to(torch.bfloat16))
        inner.register_to_config(use_crossattn_projection=False)
        try:
            yield
        finally:
            inner.register_to_config(use_crossattn_projection=True)
            self.text = None


def linear(x: Tensor, weight: Any) -> Tensor:
    """A product with a weight (out, in) in 16 bits, or with one in 8 bits and its scales a row."""
    if isinstance(weight, Tensor):
        return functional.linear(x, weight)
    eight, scale = weight
    flat = x.reshape(-1, x.shape[-1])
    own = (flat.abs().amax(dim=1, keepdim=True).float() / 448).clamp_min(1e-12)
    small = (flat.float() / own).clamp(-448, 448).to(torch.float8_e4m3fn)
    if x.device.type == "cpu":  # a rehearsal
        out = ((small.float() * own) @ (eight.float() * scale.t()).t()).to(x.dtype)
    else:
        out = torch._scaled_mm(
            small, eight.t(), scale_a=own, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    return out.reshape(*x.shape[:-1], out.shape[-1])


def in_eight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight (out, in) in 8 bits, and its scales (1, out)."""
    scale = (weight.abs().amax(dim=1, keepdim=True).float() / 448).clamp_min(1e-12)
    return (weight.float() / scale).to(torch.float8_e4m3fn), scale.t().contiguous()


def rms(x: Tensor, weight: Tensor) -> Tensor:
    """As diffusers has it."""
    scaled = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    return scaled.to(weight.dtype) * weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, as diffusers has them."""
    a, b = x.chunk(2, dim=-1)
    return (x.float() * cos + torch.cat([-b, a], dim=-1).float() * sin).to(x.dtype)


def lean_block(
    x: Tensor,
    weights: tuple[Any, ...],
    modulation: tuple[Tensor, ...],
    cross: Tensor,
    cos: Tensor,
    sin: Tensor,
    past: tuple[Tensor, Tensor] | None,
    n_heads: int,
    n_kept: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """A block whose modulation comes a slot, and whose cross-attention to one token is a constant.

    Args:
        x: (B, S, C).
        modulation: three of (B, T, 3C), before self-attention, cross-attention and the MLP.
        cross: (B, 1, C) what cross-attention gives to every token.
        past: keys and values of tokens before these.
        n_kept: slots, the last ones, that are needed after the attention.
    """
    qkv, norm_q, norm_k, out, up, down = weights
    b, s, c = x.shape
    per_slot = s // modulation[0].shape[1]

    def shaped(m: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
        shift, scale, gate = m[:, -n:].chunk(3, dim=-1)
        wide = [
            v[:, :, None].expand(-1, -1, per_slot, -1).reshape(b, n * per_slot, c)
            for v in (shift, scale, gate)
        ]
        return wide[0], wide[1], wide[2]

    n_slots = s // per_slot
    shift, scale, gate = shaped(modulation[0], n_slots)
    normed = functional.layer_norm(x, (c,), eps=1e-6) * (1 + scale) + shift
    q, k, v = (
        part.unflatten(2, (n_heads, -1)).transpose(1, 2) for part in linear(normed, qkv).chunk(3, dim=-1)
    )
    q, k = rotate(rms(q, norm_q), cos, sin), rotate(rms(k, norm_k), cos, sin)
    if n_kept < n_slots:
        q, x, gate = (part[..., -n_kept * per_slot :, :] for part in (q, x, gate))
    keys, values = (k, v) if past is None else (torch.cat([past[0], k], 2), torch.cat([past[1], v], 2))
    found = functional.scaled_dot_product_attention(q, keys, values).transpose(1, 2).flatten(2, 3)
    x = x + gate * linear(found, out)
    _, _, gate = shaped(modulation[1], n_kept)
    x = x + gate * cross
    shift, scale, gate = shaped(modulation[2], n_kept)
    normed = functional.layer_norm(x, (c,), eps=1e-6) * (1 + scale) + shift
    return x + gate * linear(functional.gelu(linear(normed, up)), down), k, v


class Lean:
    """The same network with what need not be computed left out; equal up to rounding for one token of text.

    Left out: the modulation of every token but one a slot; queries, keys and outputs of cross-attention to
    one token; what the last block and the last layer make of slots that are not denoised. The instruction,
    the modulation of all steps and the embedding of the given slots are computed once a chunk.
    """

    def __init__(self, model: WorldActionModel, network: Any, block: Any, *, eight: bool = False) -> None:
        self.model, self.network, self.block = model, network, block
        self.n_heads: int = network.config.num_attention_heads
        turn = in_eight if eight else (lambda w: w)
        self.weights, ones, twos = [], [], []
        for part in network.transformer_blocks:
            a = part.attn1
            qkv = torch.cat([a.to_q.weight, a.to_k.weight, a.to_v.weight])
            up, down = part.ff.net[0].proj.weight, part.ff.net[2].weight
            big = [turn(w.detach()) for w in (qkv, a.to_out[0].weight, up, down)]
            self.weights.append((big[0], a.norm_q.weight, a.norm_k.weight, *big[1:]))
            norms = (part.norm1, part.norm2, part.norm3)
            ones += [norm.linear_1.weight.t() for norm in norms]
            twos += [norm.linear_2.weight.t() for norm in norms]
        self.one, self.two = torch.stack(ones).detach(), torch.stack(twos).detach()  # (3L, C, r), (3L, r, 3C)
        slots = model.layout.slots
        self.n_given = sum(not s.denoised for s in slots)
        assert not any(s.denoised for s in slots[: self.n_given])  # the denoised ones come last

    def embed(self, frames: Tensor, given: Tensor) -> Tensor:
        """Latent frames (B, c, T, h, w) as tokens, with the mask channels of `call_network`."""
        b, _, t, h, w = frames.shape
        mask = given.to(frames.dtype)[:, None, :, None, None].expand(b, 1, t, h, w)
        parts = [frames, mask]
        if self.model.config.network.concat_padding_mask:
            parts.append(torch.zeros_like(mask))
        whole = torch.cat(parts, dim=1).to(self.one.dtype)
        tokens: Tensor = self.network.patch_embed(whole).flatten(1, 3)
        return tokens

    def modulate(self, levels: Tensor) -> tuple[Tensor, Tensor]:
        """Of noise levels (n, B, T): (3L, n, B, T, 3C) for the blocks, (n, B, T, 2C) for the last layer."""
        shape = levels.shape
        scale = self.model.config.network.time_scale
        shift, embedded = self.network.time_embed(self.one, (levels * scale).flatten())
        made = (
            torch.bmm(torch.bmm(functional.silu(embedded).expand(len(self.one), -1, -1), self.one), self.two)
            + shift
        )
        last = self.network.norm_out
        out = last.linear_2(last.linear_1(functional.silu(embedded)))
        out = out + shift[:, : out.shape[-1]]
        return made.view(len(made), *shape, -1), out.view(*shape, -1)

    def finish(self, x: Tensor, modulation: Tensor) -> Tensor:
        """Tokens of the last slots as latent frames (B, c, n, h, w)."""
        shift, scale = modulation.chunk(2, dim=-1)
        b, n, c = len(x), modulation.shape[1], x.shape[-1]
        normed = functional.layer_norm(x, (c,), eps=1e-6).view(b, n, -1, c)
        tokens = self.network.proj_out(normed * (1 + scale[:, :, None]) + shift[:, :, None])
        patch, size = self.model.layout.patch, self.model.layout.size
        grid = tokens.view(b, n, size // patch, size // patch, patch, patch, -1)
        return grid.permute(0, 6, 1, 2, 4, 3, 5).reshape(b, -1, n, size, size)

    def sample(self, batch: Batch, noise: dict[str, Tensor], n_steps: int, cached: bool) -> dict[str, Tensor]:
        """Euler steps; `cached` computes the given slots in the first step only, which is not exact."""
        model, network = self.model, self.network
        n, device = len(batch), batch.present.device
        text = batch.text.to(self.one.dtype)
        if network.config.use_crossattn_projection:
            text = network.crossattn_proj(text)
        crosses = [b.attn2.to_out[0](b.attn2.to_v(text)) for b in network.transformer_blocks]
        steps = torch.linspace(1, 0, n_steps + 1).tolist()
        ones = torch.ones(n, device=device)
        frames, given, levels = model.assemble(batch, noise, ones)
        n_given, n_moving = self.n_given, len(model.layout.slots) - self.n_given
        each = []
        for at in steps[:-1]:
            here = levels.clone()
            here[:, n_given:] = at
            each.append(here)
        modulation, last = self.modulate(torch.stack(each))
        cos, sin = network.rope(frames)
        fixed = self.embed(frames[:, :, :n_given], given[:, :n_given])
        per_slot = fixed.shape[1] // n_given
        moving, pasts = dict(noise), []
        for i, (at, following) in enumerate(pairwise(steps)):
            parts = [
                model.layout.write(moving[s.name]) if s.kind == "vector" else moving[s.name]
                for s in model.denoised
            ]
            x = self.embed(torch.stack(parts, dim=2), torch.zeros(n, n_moving, device=device))
            again = cached and i > 0
            first = n_given if again else 0
            if not again:
                x = torch.cat([fixed, x], dim=1)
            for j, weights in enumerate(self.weights):
                mods = tuple(modulation[3 * j + k, i, :, first:] for k in range(3))
                final = j == len(self.weights) - 1
                kept = n_moving if final or again else n_given + n_moving
                x, k, v = self.block(
                    x,
                    weights,
                    mods,
                    crosses[j],
                    cos[first * per_slot :],
                    sin[first * per_slot :],
                    pasts[j] if again else None,
                    self.n_heads,
                    kept,
                )
                if cached and i == 0:
                    pasts.append((k[:, :, : n_given * per_slot], v[:, :, : n_given * per_slot]))
            out = self.finish(x, last[i, :, n_given:]).float()
            for k, slot in enumerate(model.denoised):
                found = out[:, :, k] if slot.kind == "image" else model.layout.read(out[:, :, k], slot.width)
                moving[slot.name] = moving[slot.name] + (following - at) * found
        return moving


def joined(parts: dict[str, Tensor]) -> Tensor:
    """All slots in one row."""
    return torch.cat([parts[name].detach().float().flatten() for name in sorted(parts)])


def relative_error(found: dict[str, Tensor], wanted: dict[str, Tensor], noise: dict[str, Tensor]) -> float:
    """Of what the network did: the distance over the way that was gone from the noise."""
    a, b, start = joined(found), joined(wanted), joined(noise)
    return float((a - b).norm() / (b - start).norm())


def gpu_ceilings(bench: Bench) -> None:
    """A large product of random bf16 matrices, a large copy, and attention by each of its kernels."""
    n, m = (256, 2**20) if bench.rehearse else (8192, 2**31)
    device = bench.device
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = bench.time_ms(lambda: a @ b, 20, 5)["ms"]
    source = torch.randint(0, 255, (m,), device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    moved = bench.time_ms(lambda: target.copy_(source), 10, 3)["ms"]
    bench.ceilings = Ceilings(2 * n**3 / product * 1000, 2 * m / moved * 1000)
    bench.result["ceilings"] = {
        "bf16_tflops_per_s": bench.ceilings.flops / 1e12,
        "nominal_bf16_tflops_per_s": NOMINAL / 1e12,
        "copy_tb_per_s": bench.ceilings.bytes / 1e12,
    }
    a = b = source = target = None
    s, width = (64, 64) if bench.rehearse else (1764, 2048)
    x = torch.randn(s, width, device=device, dtype=torch.bfloat16)
    w = torch.randn(4 * width, width, device=device, dtype=torch.bfloat16)
    ms = bench.time_ms(lambda: [functional.linear(x, w) for _ in range(10)], 20, 5)["ms"] / 10
    bench.result["ceilings"]["mlp_shaped_tflops_per_s"] = 2 * s * 4 * width**2 / ms / 1e9
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shape = (1, s, 2, 32) if bench.rehearse else (1, s, 16, 128)
    q, k, v = (torch.randn(shape, device=device, dtype=torch.bfloat16).transpose(1, 2) for _ in range(3))

    def attend() -> None:
        for _ in range(10):
            functional.scaled_dot_product_attention(q, k, v)

    times: dict[str, float] = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        try:
            with sdpa_kernel(backend):
                times[backend.name] = bench.time_ms(attend, 20, 5)["ms"] / 10
        except RuntimeError as error:
            print(f"attention {backend.name}: {str(error).splitlines()[0][:100]}")
    bench.result["attention_ms"] = times
    if times.get("CUDNN_ATTENTION", 1e9) < 0.95 * times.get("FLASH_ATTENTION", 1e9) and bench.cuda:
        bench.attention = [
            SDPBackend.CUDNN_ATTENTION,
            SDPBackend.FLASH_ATTENTION,
            SDPBackend.EFFICIENT_ATTENTION,
            SDPBackend.MATH,
        ]
    bench.result["attention_of_lean"] = "default" if bench.attention is None else bench.attention[0].name
    bench.write()
    print(
        json.dumps({k: bench.result[k] for k in ("ceilings", "attention_ms", "attention_of_lean")}),
        flush=True,
    )


def build(config: PolicyConfig, bench: Bench, dtype: torch.dtype) -> tuple[WorldActionModel, Any]:
    """A model of random weights, made on the device."""
    torch.manual_seed(0)
    with bench.device:
        model = WorldActionModel(config)
    network = model.network
    if dtype != torch.float32:
        network = network.to(dtype)
    return model, network


def describe(model: WorldActionModel, network: nn.Module) -> dict[str, Any]:
    """Sizes."""
    return {
        "slots": [f"{s.name}{' *' if s.denoised else ''}" for s in model.layout.slots],
        "tokens": model.layout.n_tokens,
        "parameters": sum(p.numel() for p in network.parameters()),
        "parameters_per_token": token_parameters(network),
        "parameters_per_token_lean": token_parameters(network, lean=True),
        "forward_tflop": forward_flops(network, model.layout.n_tokens) / 1e12,
        "forward_tflop_lean": forward_flops(network, model.layout.n_tokens, lean=True) / 1e12,
    }


@torch.inference_mode()
def inference(bench: Bench, config: PolicyConfig, label: str, ways: str = "lean") -> None:
    """A forward and a chunk at batch 1: in `all` ways but `fp8`, in the `lean` ones, or in `fp8`."""
    original, network = build(config, bench, torch.float32)
    facts = describe(original, network)
    bench.result[f"layout {label}"] = facts
    print(label, json.dumps(facts), flush=True)
    tokens = facts["tokens"]
    batch = synthetic(original, 1, bench.device)
    noise = original.draw_noise(1, None, bench.device)
    sampling = replace(config.sampling, n_steps=N_STEPS, sampler="euler", temperature=1.0)
    wanted = {k: v.clone() for k, v in original.sample(batch, noise, sampling).items()}  # in float32
    half = network.to(torch.bfloat16)
    wrapped = InHalf(half)
    model = WorldActionModel(config, network=wrapped)
    bench.clean()
    n_bytes = 2 * facts["parameters"]
    floor = bench.ceilings.floor_ms(forward_flops(half, tokens), n_bytes)
    lean_floor = bench.ceilings.floor_ms(forward_flops(half, tokens, lean=True), n_bytes)
    level = torch.full((1,), 0.5, device=bench.device)

    def forward() -> Any:
        return model(batch, noise, level)

    def chunk() -> Any:
        return model.sample(batch, noise, sampling)

    def timed(call: Callable[[], Any], floor_ms: float, *, graph: bool, check: bool) -> dict[str, Any]:
        called = bench.capture(call) if graph else call
        row: dict[str, Any] = {"floor_ms": floor_ms, **bench.time_ms(called)}
        if check:
            row["error"] = relative_error(called(), wanted, noise)
        return row

    def plain(name: str, call: Callable[[], Any], needs: float, n: int, graph: bool, check: bool) -> None:
        bench.attempt(f"{label}: {name}", needs, lambda: timed(call, n * floor, graph=graph, check=check))

    if ways == "all":
        plain("forward, eager", forward, 5, 1, False, False)
        plain("chunk of 5, eager", chunk, 12, N_STEPS, False, True)
        bench.compile_blocks(half)
        plain("forward, compiled", forward, 30, 1, False, False)
        plain("forward, compiled, graph", forward, 20, 1, True, False)
        plain("chunk of 5, compiled", chunk, 20, N_STEPS, False, True)
        plain("chunk of 5, compiled, one graph", chunk, 20, N_STEPS, True, True)

        def once() -> dict[str, Any]:
            with wrapped.projected(batch.text):
                row = timed(chunk, N_STEPS * floor, graph=True, check=True)
            return row

        bench.attempt(f"{label}: chunk of 5, compiled, one graph, text projected once", 15, once)

    def lean(cached: bool, eight: bool = False, forward_only: bool = False) -> dict[str, Any]:
        made = Lean(original, half, block, eight=eight)
        n = 1 if forward_only else N_STEPS
        floor_ms = n * lean_floor
        if cached:
            few = len(original.denoised) * tokens // len(original.layout.slots)
            later = bench.ceilings.floor_ms(forward_flops(half, few, tokens, lean=True), n_bytes)
            floor_ms = lean_floor + (n - 1) * later
        if eight:
            floor_ms /= 2  # the matrix rate doubles, nominally
        with bench.fast_attention():
            return timed(
                lambda: made.sample(batch, noise, n, cached), floor_ms, graph=True, check=not forward_only
            )

    block = bench.compile(lean_block)
    name = f"{label}: chunk of 5, lean"
    if ways == "fp8":
        bench.attempt(f"{name}, fp8, one graph", 20, lambda: lean(False, eight=True))
        bench.attempt(f"{name}, fp8, given slots once (NOT exact)", 12, lambda: lean(True, eight=True))
        return
    bench.attempt(f"{name}, one graph", 25, lambda: lean(False))
    if bench.attention is not None and "failed" in bench.result["rows"][-1]:
        bench.attention = None
        torch._dynamo.reset()
        bench.attempt(f"{name}, default attention, one graph", 25, lambda: lean(False))
    if ways == "all":
        bench.attempt(f"{label}: forward (one step), lean, graph", 8, lambda: lean(False, forward_only=True))
    bench.attempt(f"{name}, given slots once (NOT exact)", 15, lambda: lean(True))


class SlotNorm(nn.Module):
    """Stands in for a block's norm: the modulation of one token a slot, spread over the slot."""

    per_slot: int
    norm: nn.Module
    activation: nn.Module
    linear_1: nn.Module
    linear_2: nn.Module

    def forward(
        self, hidden_states: Tensor, embedded_timestep: Tensor, temb: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        few = self.linear_2(self.linear_1(self.activation(embedded_timestep[:, :: self.per_slot])))
        if temb is not None:
            few = few + temb[:, :: self.per_slot]
        b, s, _ = hidden_states.shape
        wide = few[:, :, None].expand(-1, -1, self.per_slot, -1).reshape(b, s, -1)
        shift, scale, gate = wide.chunk(3, dim=-1)
        return self.norm(hidden_states) * (1 + scale) + shift, gate


class OneToken:
    """Cross-attention to one token: its value, whatever the query."""

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        image_rotary_emb: Tensor | None = None,
    ) -> Tensor:
        assert encoder_hidden_states is not None
        found: Tensor = attn.to_out[0](attn.to_v(encoder_hidden_states))
        return found


def make_lean(network: Any, per_slot: int) -> None:
    """The network as it is trained, without what need not be computed for one token of text."""
    for block in network.transformer_blocks:
        for norm in (block.norm1, block.norm2, block.norm3):
            norm.__class__ = SlotNorm
            norm.per_slot = per_slot
        block.attn2.set_processor(OneToken())


def training_step(
    model: WorldActionModel, batch: Batch, optimizer: torch.optim.Optimizer, mixed: bool
) -> Callable[[], None]:
    """Forward, backward, clipping and the optimizer, as the trainer does it."""
    device = batch.present.device
    parameters = list(model.parameters())

    def step() -> None:
        noise = model.draw_noise(len(batch), None, device)
        level = torch.rand(len(batch), device=device)
        with torch.autocast(device.type, torch.bfloat16) if mixed else nullcontext():
            losses = model.losses(batch, noise, level)
        total = sum(loss.mean() * (16.0 if name == "action" else 1.0) for name, loss in losses.items())
        assert isinstance(total, Tensor)
        total.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def train_row(
    bench: Bench, step: Callable[[], None], network: nn.Module, tokens: int, n: int, lean: bool, repeats: int
) -> dict[str, Any]:
    """A training step's figures. MFU never counts what is recomputed."""
    if bench.cuda:
        torch.cuda.reset_peak_memory_stats()
    row: dict[str, Any] = dict(bench.time_ms(step, repeats, 2))
    seconds = row["ms"] / 1000
    n_all = sum(p.numel() for p in network.parameters())
    executed = 3 * n * forward_flops(network, tokens, lean=lean)
    simple = 6 * n_all * n * tokens
    row |= {
        "floor_ms": 1000 * executed / bench.ceilings.flops,
        "batch": n,
        "samples_per_s": n / seconds,
        "tokens_per_s": n * tokens / seconds,
        "mfu_goal": simple / seconds / NOMINAL,  # 6·N·T against the nominal rate: the figure for the goal
        "mfu_measured": simple / seconds / bench.ceilings.flops,
        "mfu_executed": executed / seconds / NOMINAL,  # the products that are done, with attention
        "mfu_executed_measured": executed / seconds / bench.ceilings.flops,
    }
    if bench.cuda:
        row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return row


def fused_adamw(model: nn.Module) -> torch.optim.Optimizer:
    """The trainer's optimizer, in one kernel."""
    return torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.99), fused=True)


def training(bench: Bench, config: PolicyConfig, n: int) -> None:
    """The 2B network's training step, in order of importance."""
    model, network = build(config, bench, torch.float32)
    tokens = model.layout.n_tokens
    per_slot = tokens // len(model.layout.slots)
    batch = synthetic(model, n, bench.device)
    optimizer = fused_adamw(model)
    step = training_step(model, batch, optimizer, mixed=True)

    def measure(lean: bool = False, repeats: int = 5) -> dict[str, Any]:
        optimizer.zero_grad(set_to_none=True)  # what a failed one left
        with bench.fast_attention() if lean else nullcontext():
            return train_row(bench, step, network, tokens, n, lean, repeats)

    name = f"train, batch {n}, autocast"
    network.enable_gradient_checkpointing()
    bench.attempt(f"{name}, eager, checkpointing", 15, lambda: measure(repeats=3))
    bench.compile_blocks(network)
    bench.attempt(f"{name}, compiled, checkpointing", 35, measure)
    network.disable_gradient_checkpointing()
    bench.attempt(f"{name}, compiled", 12, measure)
    make_lean(network, per_slot)
    torch._dynamo.reset()
    bench.attempt(f"{name}, compiled, lean", 35, lambda: measure(True))
    network.enable_gradient_checkpointing()
    bench.attempt(f"{name}, compiled, lean, checkpointing", 60, lambda: measure(True))
    optimizer.zero_grad(set_to_none=True)


def training_in_half(bench: Bench, config: PolicyConfig, n: int) -> None:
    """The same with weights and moments in 16 bits: an upper bound on speed, not how one would train."""
    model, network = build(config, bench, torch.bfloat16)
    model.network = InHalf(network)
    tokens = model.layout.n_tokens
    make_lean(network, tokens // len(model.layout.slots))
    bench.compile_blocks(network)
    step = training_step(model, synthetic(model, n, bench.device), fused_adamw(model), mixed=False)

    def measure() -> dict[str, Any]:
        with bench.fast_attention():
            return train_row(bench, step, network, tokens, n, True, 5)

    bench.attempt(f"train, batch {n}, bf16 weights, compiled, lean", 35, measure)


def training_eager(bench: Bench, config: PolicyConfig, n: int) -> None:
    """Eager and nothing recomputed: whether it fits at all."""
    model, network = build(config, bench, torch.float32)
    step = training_step(model, synthetic(model, n, bench.device), fused_adamw(model), mixed=True)
    tokens = model.layout.n_tokens
    bench.attempt(
        f"train, batch {n}, autocast, eager", 12, lambda: train_row(bench, step, network, tokens, n, False, 3)
    )


def training_nano(bench: Bench, config: PolicyConfig, n: int) -> None:
    """The nano's training step on batches that are on the device already."""
    for compiled in (False, True):
        model, network = build(config, bench, torch.float32)
        step = training_step(model, synthetic(model, n, bench.device), fused_adamw(model), mixed=True)
        if compiled:
            bench.compile_blocks(network)
        how = "compiled blocks" if compiled else "eager"

        def measure(step: Any = step, network: Any = network, model: Any = model) -> dict[str, Any]:
            return train_row(bench, step, network, model.layout.n_tokens, n, False, 20)

        bench.attempt(f"nano, train, batch {n}, autocast, {how}", 30 if compiled else 6, measure)


def run_gpu(options: argparse.Namespace) -> None:
    """Every variant, the most important first, until the time is up."""
    device = torch.device("cpu" if options.rehearse else "cuda")
    from diffusers.utils import logging

    logging.set_verbosity_error()
    bench = Bench(device, options.out, options.seconds, options.rehearse)
    small, n_small, n_large = PRESETS["pusht-nano"].policy, 512, 16
    large = PRESETS["cosmos-2b"].policy
    if options.rehearse:
        torch.set_num_threads(1)
        tiny = NetworkConfig(
            num_attention_heads=2,
            attention_head_dim=32,
            num_layers=3,
            text_embed_dim=64,
            adaln_lora_dim=16,
            concat_padding_mask=True,
            use_crossattn_projection=True,
            crossattn_proj_in_channels=96,
            encoder_hidden_states_channels=64,
        )
        large = replace(large, network=tiny, image=ImageConfig(size=32), chunk_size=4)
        small, n_small, n_large = PRESETS["debug"].policy, 4, 2
    bench.result["machine"] = {
        "device": "cpu (a rehearsal)" if options.rehearse else torch.cuda.get_device_name(),
        "packages": packages("torch", "triton", "diffusers"),
    }
    bench.result["about"] = {
        "floor_ms": "the larger of operations over the measured matrix rate and bytes over the copy rate",
        "error": "of a chunk against the same network in float32, over the way gone from the noise",
        "lean": "equal up to rounding: modulation once a slot, cross-attention to one token as a constant",
        "mfu_goal": "6·parameters·tokens over 989 TFLOP/s, without attention and without what is recomputed",
        "mfu_executed": "three times the forward's products, attention included, over 989 TFLOP/s",
        "random weights": "the error of computing given slots once says little about a trained network",
    }

    def phase(name: str, needs: float, call: Callable[[], None]) -> None:
        if bench.left < needs:
            bench.result["rows"].append({"name": name, "skipped": f"{bench.left:.0f} s left"})
            return
        try:
            call()
        except Exception as error:
            why = f"{type(error).__name__}: {str(error)[:300]}"
            bench.result["rows"].append({"name": name, "failed": why})
            traceback.print_exc()
        torch._dynamo.reset()
        bench.clean()
        bench.write()

    more = replace(large, n_retrieved_frames=3)  # 10 slots: the prototype's 1,960 tokens
    size = large.image.size * 9 // 14 // 16 * 16  # 144 px for 224
    fewer = replace(large, image=replace(large.image, size=size))
    phase("ceilings", 0, lambda: gpu_ceilings(bench))
    phase("inference", 0, lambda: inference(bench, large, "cosmos-2b", "all"))
    phase("training", 20, lambda: training(bench, large, n_large))
    phase("training of the nano", 8, lambda: training_nano(bench, small, n_small))
    phase("fp8", 25, lambda: inference(bench, large, "cosmos-2b", "fp8"))
    phase("1,960 tokens", 30, lambda: inference(bench, more, "cosmos-2b, 10 slots"))
    phase("training in half", 35, lambda: training_in_half(bench, large, n_large))
    phase("fewer tokens", 30, lambda: inference(bench, fewer, f"cosmos-2b, {size} px"))
    phase("training, eager", 15, lambda: training_eager(bench, large, n_large))
    bench.result["seconds"] = round(time.perf_counter() - bench.started, 1)
    bench.write()
    print("\n" + "\n".join(line(row) for row in bench.result["rows"]))


def main() -> None:
    """One of the two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    cpu = parts.add_parser("cpu", help="the nano policy's chunks")
    cpu.add_argument("--policy", default="pusht-nano", help="a checkpoint, or a training preset")
    cpu.add_argument("--threads", type=int, default=2)
    cpu.add_argument("--quick", action="store_true", help="batch 1 only")
    cpu.add_argument("--repeats", type=int, default=50)
    cpu.add_argument("--json", type=Path, help="write the result here")
    gpu = parts.add_parser("gpu", help="the 2B network")
    gpu.add_argument("--out", type=Path, help="write the result here, as it goes")
    gpu.add_argument("--seconds", type=float, default=200.0, help="what does not fit is left out")
    gpu.add_argument("--rehearse", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    run_cpu(options) if options.part == "cpu" else run_gpu(options)


if __name__ == "__main__":
    main()
