"""The 2B network: ceilings, a forward and a chunk, in several ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from policy_bench import Bench
from policy_floor import N_STEPS, NOMINAL, Ceilings, forward_flops, synthetic, token_parameters
from policy_lean import InHalf, Lean, lean_block
from torch import Tensor, nn
from torch.nn import functional

from recap.policies.config import PolicyConfig
from recap.policies.wam import WorldActionModel


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
