"""The 2B network: machine limits, a forward pass and a chunk, in several implementations."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from policy_bench import Bench
from policy_floor import N_STEPS, NOMINAL, Ceilings, forward_flops, synthetic, token_parameters
from torch import Tensor, nn
from torch.nn import functional

from recap.policies.config import NetworkConfig, PolicyConfig
from recap.policies.lean_sampling import LeanSampler
from recap.policies.network import build_network
from recap.policies.wam import WorldActionModel


class InHalf(nn.Module):
    """A bfloat16 network for a model with float32 slots."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(
        self,
        hidden_states: Tensor,
        timestep: Tensor,
        encoder_hidden_states: Tensor,
        condition_mask: Tensor,
        return_dict: bool = False,
    ) -> tuple[Tensor, ...]:
        kind = torch.bfloat16
        found: tuple[Tensor, ...] = self.network(
            hidden_states=hidden_states.to(kind),
            timestep=timestep,
            encoder_hidden_states=encoder_hidden_states.to(kind),
            condition_mask=condition_mask.to(kind),
            return_dict=return_dict,
        )
        return found


def joined(parts: dict[str, Tensor]) -> Tensor:
    """All slots as one row."""
    return torch.cat([parts[name].detach().float().flatten() for name in sorted(parts)])


def relative_error(found: dict[str, Tensor], wanted: dict[str, Tensor], noise: dict[str, Tensor]) -> float:
    """The error relative to the distance from the noise to the result."""
    a, b, start = joined(found), joined(wanted), joined(noise)
    return float((a - b).norm() / (b - start).norm())


def gpu_ceilings(bench: Bench) -> None:
    """A large product of random bf16 matrices, a large copy, and attention with each of its kernels."""
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
    bench.write()
    print(
        json.dumps({k: bench.result[k] for k in ("ceilings", "attention_ms")}),
        flush=True,
    )


def build(
    config: PolicyConfig, bench: Bench, dtype: torch.dtype, *, stock: bool = False
) -> tuple[WorldActionModel, Any]:
    """A model with random weights, created on the device; with `stock`, the network of diffusers."""
    torch.manual_seed(0)
    with bench.device:
        assert isinstance(config.network, NetworkConfig)
        model = WorldActionModel(
            config, network=build_network(config.network, config.image.channels) if stock else None
        )
    network = model.network
    if dtype != torch.float32:
        network = network.to(dtype)
    return model, network


def describe(model: WorldActionModel, network: nn.Module) -> dict[str, Any]:
    """The sizes of the network."""
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
def inference(bench: Bench, config: PolicyConfig, label: str, *, peers: bool = False) -> None:
    """A chunk at batch 1: the stock network in several variants, and our sampler."""
    original, network = build(config, bench, torch.float32)
    facts = describe(original, network)
    bench.result[f"layout {label}"] = facts
    print(label, json.dumps(facts), flush=True)
    tokens = facts["tokens"]
    batch = synthetic(original, 1, bench.device)
    noise = original.draw_noise(1, None, bench.device)
    sampling = replace(config.sampling, n_steps=N_STEPS, sampler="euler", temperature=1.0)
    wanted = {k: v.clone() for k, v in original.sample(batch, noise, sampling).items()}  # in float32
    n_bytes = 2 * facts["parameters"]
    floor = bench.ceilings.floor_ms(forward_flops(network, tokens), n_bytes)
    lean_floor = bench.ceilings.floor_ms(forward_flops(network, tokens, lean=True), n_bytes)
    level = torch.full((1,), 0.5, device=bench.device)

    def timed(call: Callable[[], Any], floor_ms: float, *, check: bool = True) -> dict[str, Any]:
        row: dict[str, Any] = {"floor_ms": floor_ms, **bench.time_ms(call)}
        if check:
            row["error"] = relative_error(call(), wanted, noise)
        return row

    def attempt(name: str, needs: float, call: Callable[[], dict[str, Any]]) -> None:
        bench.attempt(f"{label}: {name}", needs, call)

    if peers:
        plain, inner = build(config, bench, torch.bfloat16, stock=True)
        plain.network = InHalf(inner)

        def forward() -> Any:
            return plain(batch, noise, level)

        def chunk() -> Any:
            return plain.sample(batch, noise, sampling)

        attempt("forward, stock, eager", 5, lambda: timed(forward, floor, check=False))
        attempt("chunk of 5, stock, eager", 12, lambda: timed(chunk, N_STEPS * floor))
        bench.compile_blocks(inner)
        attempt(
            "chunk of 5, stock, compiled, one graph",
            40,
            lambda: timed(bench.capture(chunk), N_STEPS * floor),
        )
        del plain, inner, forward, chunk
        bench.clean()

    sampler = LeanSampler(original, torch.bfloat16, compiled=bench.cuda)  # as in the policy on a GPU

    def ours(n: int, *, check: bool = True) -> dict[str, Any]:
        steps = replace(sampling, n_steps=n)
        return timed(lambda: sampler(batch, noise, steps), n * lean_floor, check=check)

    attempt("chunk of 5, ours", 30, lambda: ours(N_STEPS))
    attempt("chunk of 1 step, ours", 10, lambda: ours(1, check=False))
