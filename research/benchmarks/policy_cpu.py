"""The nano policy on CPU threads: whole chunks and their parts."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from policy_floor import (
    Ceilings,
    forward_flops,
    packages,
    synthetic,
)

from recap.policies.wam import WorldActionModel
from recap_worlds.pusht.recipes import RECIPES
from recap_worlds.pusht.suite import PushTSuite, context_of


def quantiles(
    call: Callable[[int], Any], n: int, before: Callable[[], Any] | None = None
) -> dict[str, float]:
    """Median and 90th percentile of n calls in milliseconds; `before` runs untimed before each."""
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
    """A product of 2048×2048 float32 matrices and a copy of 256 MB: the best of several times."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    source, target = torch.randn(64 * 2**20), torch.empty(64 * 2**20)
    product = quantiles(lambda i: a @ b, 12)["least_ms"]
    moved = quantiles(lambda i: target.copy_(source), 12)["least_ms"]
    found = Ceilings(2 * 2048**3 / product * 1000, 2 * 4 * 64 * 2**20 / moved * 1000)
    if best is None:
        return found
    return Ceilings(max(found.flops, best.flops), max(found.bytes, best.bytes))


def nano(name: str) -> tuple[Any, Any, str]:
    """A policy with its retriever; random weights if there is no checkpoint, which are as fast."""
    from recap.errors import InputError
    from recap.policies.autoencoder import FrameEncoder, build_autoencoder
    from recap.policies.checkpoint import find_checkpoint, from_pretrained
    from recap.policies.policy import RetrievalStamp, Statistics, TrainedPolicy
    from recap.pool.opening import open_pool
    from recap.retrieval.presets import find_retrieval
    from recap.retrieval.retriever import Retriever

    try:
        policy = from_pretrained(find_checkpoint(name))
        weights = f"of {name}"
    except InputError:
        if name not in RECIPES:
            raise
        policy, weights = None, "fresh"
    config = RECIPES[name].policy if policy is None else policy.config
    pool = open_pool(str(PushTSuite.default_pool))
    retriever = Retriever(pool, *find_retrieval(config.retrieval_name, config.robot))
    if policy is None:
        model = WorldActionModel(config)
        vectors = model.layout.vectors
        zeros = {s.name: np.zeros(s.width, np.float32) for s in vectors}
        ones = {s.name: np.ones(s.width, np.float32) for s in vectors}
        stamp = RetrievalStamp(
            retriever.config.name,
            retriever.describer.fingerprint,
            retriever.config.metric_fingerprint,
            dict(retriever.config.scales),
        )
        encoder = FrameEncoder(build_autoencoder(config.image.channels)) if config.sees else None
        policy = TrainedPolicy(model, Statistics(zeros, ones), stamp, encoder)
    return policy, retriever, weights


def counted(call: Callable[[], Any]) -> float:
    """Operations of a call, as counted by torch."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter:
        call()
    return float(counter.get_total_flops())


def run_cpu(options: argparse.Namespace) -> None:
    """Measure whole chunks, their parts, and the lower bounds."""
    from report import finish

    from recap.agent import RetrievalAgent
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
    n_groups = 4  # several different calls in turn
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
        """Operations and bytes of n forward passes."""
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
        latent = policy.encode_frames(images[:1], [frame], [camera])
        encode_flops = counted(lambda: policy.encode_frames(images[:1], [frame], [camera]))
        decode_flops = counted(lambda: policy.decode_frames(latent))
        n_encoder = sum(p.numel() for p in policy.encoder.network.parameters())
        parts["encode one image"] = {"flops": encode_flops, "bytes": 4 * n_encoder} | quantiles(
            lambda i: policy.encode_frames([images[i % 32]], [frame], [camera]), repeats
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
                context=context_of("tee", policy.config.embodiment or "triangle"),
            )
            slots = list(range(batch))

            def fresh(agent: RetrievalAgent = agent, slots: Sequence[int] = slots) -> None:
                for slot in slots:  # a new episode: every call includes stage 1
                    agent.reset(slot, Trial("", slot))

            def cold(fresh: Callable[[], None] = fresh, agent: RetrievalAgent = agent) -> None:
                fresh()
                agent.predictor.latents.forget()

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
