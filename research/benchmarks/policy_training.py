"""The training step of the 2B network and of the nano policy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from policy_bench import Bench
from policy_floor import NOMINAL, forward_flops, synthetic
from policy_inference import build
from torch import Tensor, nn

from recap.policies.config import PolicyConfig
from recap.policies.lean import fast_attention
from recap.policies.model import Batch
from recap.policies.wam import WorldActionModel


def training_step(
    model: WorldActionModel, batch: Batch, optimizer: torch.optim.Optimizer, mixed: bool
) -> Callable[[], None]:
    """Forward, backward, clipping and optimizer step, as in the trainer."""
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
    """The numbers of a training step. MFU does not count recomputed operations."""
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
        "mfu_goal": simple / seconds / NOMINAL,  # 6·N·T over the nominal rate: for the goal
        "mfu_measured": simple / seconds / bench.ceilings.flops,
        "mfu_executed": executed / seconds / NOMINAL,  # the executed matrix products, with attention
        "mfu_executed_measured": executed / seconds / bench.ceilings.flops,
    }
    if bench.cuda:
        row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return row


def fused_adamw(model: nn.Module) -> torch.optim.Optimizer:
    """The trainer's optimizer as one fused kernel."""
    return torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.99), fused=True)


def training(bench: Bench, config: PolicyConfig, n: int, *, stock: bool = False) -> None:
    """The training step of the 2B network, without and with recomputed activations."""
    model, network = build(config, bench, torch.float32, stock=stock)
    tokens = model.layout.n_tokens
    batch = synthetic(model, n, bench.device)
    optimizer = fused_adamw(model)
    step = training_step(model, batch, optimizer, mixed=True)

    def measure(repeats: int = 5) -> dict[str, Any]:
        optimizer.zero_grad(set_to_none=True)  # free the gradients of a failed step
        with nullcontext() if stock else fast_attention():
            return train_row(bench, step, network, tokens, n, not stock, repeats)

    name = f"train, batch {n}, {'stock' if stock else 'ours'}"
    if stock:
        network.enable_gradient_checkpointing()
        bench.attempt(f"{name}, eager, checkpointing", 15, lambda: measure(repeats=3))
        bench.compile_blocks(network)
        bench.attempt(f"{name}, compiled, checkpointing", 35, measure)
        return
    bench.compile_blocks(network)
    bench.attempt(f"{name}, compiled", 35, measure)
    network.enable_gradient_checkpointing()
    bench.attempt(f"{name}, compiled, checkpointing", 40, measure)
    optimizer.zero_grad(set_to_none=True)


def training_nano(bench: Bench, config: PolicyConfig, n: int) -> None:
    """The training step of the nano policy, with batches on the device."""
    for compiled in (False, True):
        model, network = build(config, bench, torch.float32)
        step = training_step(model, synthetic(model, n, bench.device), fused_adamw(model), mixed=True)
        if compiled:
            bench.compile_blocks(network)
        how = "compiled blocks" if compiled else "eager"

        def measure(step: Any = step, network: Any = network, model: Any = model) -> dict[str, Any]:
            return train_row(bench, step, network, model.layout.n_tokens, n, True, 20)

        bench.attempt(f"nano, train, batch {n}, autocast, {how}", 30 if compiled else 6, measure)
