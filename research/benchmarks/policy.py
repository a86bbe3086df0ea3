"""How long does a chunk take, and how fast does the policy train, compared with the machine's limits?

    python research/benchmarks/policy.py cpu --json docs/results/policy_cpu.json
    python research/benchmarks/policy.py gpu --out docs/results/policy_gpu.json --seconds 200

`cpu` measures the nano policy on two threads: whole chunks and their parts. `gpu` measures the 2B network
with random weights on one CUDA GPU: a forward pass, a chunk of five Euler steps and a training step, each in
several ways; and the nano's training. Each time is compared with a lower bound: the larger of operations over
the matrix rate and bytes over the copy bandwidth, both measured in the same run.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from policy_bench import Bench, line
from policy_cpu import run_cpu
from policy_floor import packages
from policy_inference import gpu_ceilings, inference
from policy_training import training, training_nano

from recap.cli.one_line import run_script
from recap.policies.config import NetworkConfig
from recap_worlds.pusht.recipes import RECIPES


def run_gpu(options: argparse.Namespace) -> None:
    """Run every variant, the most important first, until the time is over."""
    device = torch.device("cpu" if options.rehearse else "cuda")
    from diffusers.utils import logging

    logging.set_verbosity_error()
    bench = Bench(device, options.out, options.seconds, options.rehearse)
    small, n_small, n_large = RECIPES["pusht-nano"].policy, 512, 16
    large = RECIPES["cosmos-2b"].policy
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
        large = replace(large, network=tiny, image=replace(large.image, size=32), chunk_size=4)
        small, n_small, n_large = RECIPES["debug"].policy, 4, 2
    bench.result["machine"] = {
        "device": "cpu (a rehearsal)" if options.rehearse else torch.cuda.get_device_name(),
        "packages": packages("torch", "triton", "diffusers"),
    }
    bench.result["about"] = {
        "floor_ms": "the larger of operations over the measured matrix rate and bytes over the copy rate",
        "error": "of a chunk against the same network in float32, over the way gone from the noise",
        "stock": "the network as diffusers computes it",
        "ours": "equal up to rounding: modulation once a slot, cross-attention to one token as a constant",
        "mfu_goal": "6·parameters·tokens over 989 TFLOP/s, without attention and without what is recomputed",
        "mfu_executed": "three times the forward's products, attention included, over 989 TFLOP/s",
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
    phase("inference", 0, lambda: inference(bench, large, "cosmos-2b", peers=not options.quick))
    phase("training", 20, lambda: training(bench, large, n_large))
    phase("training, stock", 20, lambda: training(bench, large, n_large, stock=True))
    phase("training of the nano", 8, lambda: training_nano(bench, small, n_small))
    phase("1,960 tokens", 30, lambda: inference(bench, more, "cosmos-2b, 10 slots"))
    phase("fewer tokens", 30, lambda: inference(bench, fewer, f"cosmos-2b, {size} px"))
    bench.result["seconds"] = round(time.perf_counter() - bench.started, 1)
    bench.write()
    print("\n" + "\n".join(line(row) for row in bench.result["rows"]))


def main() -> None:
    """Run one of the two commands."""
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
    gpu.add_argument("--quick", action="store_true", help="our own chunk before anything else")
    gpu.add_argument("--rehearse", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    run_cpu(options) if options.part == "cpu" else run_gpu(options)


if __name__ == "__main__":
    run_script(main)
