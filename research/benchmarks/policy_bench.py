"""Timing on a GPU: compilation, CUDA graphs, a time limit, and results written after each row."""

from __future__ import annotations

import gc
import json
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from policy_floor import Ceilings


@dataclass
class Bench:
    """The device, the remaining time, and the results so far."""

    device: torch.device
    out: Path | None
    seconds: float
    rehearse: bool
    started: float = field(default_factory=time.perf_counter)
    result: dict[str, Any] = field(default_factory=lambda: {"rows": []})
    ceilings: Ceilings = field(default_factory=lambda: Ceilings(1e12, 1e11))

    @property
    def cuda(self) -> bool:
        """True if there is a GPU."""
        return self.device.type == "cuda"

    @property
    def left(self) -> float:
        """Remaining seconds."""
        return self.seconds - (time.perf_counter() - self.started)

    def compile_blocks(self, network: Any) -> None:
        """Compile each block separately; all blocks share the compiled code."""
        for block in network.transformer_blocks:
            block.compile(dynamic=False, backend="aot_eager" if self.rehearse else "inductor")

    def sync(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize()

    def time_ms(self, call: Callable[[], Any], n: int = 20, warm_up: int = 2) -> dict[str, float]:
        """Median, minimum and maximum of n calls, each synchronised."""
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
        """The call as one CUDA graph; its input tensors must stay in place. On a CPU the call itself."""
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

    def attempt(self, name: str, needs: float, measure: Callable[[], dict[str, Any]]) -> None:
        """Measure one row. A failure or a lack of time is recorded, and the other rows still run."""
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
        """Free unused memory."""
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()

    def write(self) -> None:
        """Write the results so far."""
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text(json.dumps(self.result, indent=1) + "\n")


def line(row: dict[str, Any]) -> str:
    """A row as text."""
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
