"""Shared by all benchmarks: print results, and write them with a description of the machine."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("gym-pusht", "gymnasium", "mujoco", "numba", "numpy", "pylance", "pymunk")


def arguments(description: str) -> argparse.ArgumentParser:
    """The options of every benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a short version, for a first look")
    parser.add_argument("--json", type=Path, help="write the result here")
    return parser


def machine() -> dict[str, Any]:
    """The machine of the measurement."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        cpu = names[0] if names else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def finish(result: dict[str, Any], path: Path | None) -> None:
    """Print the result, and write it if a path is given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n")


COLORS = ("#1f6feb", "#d1570a", "#2f9e44", "#8250df", "#57606a", "#bf3989")


def plot(path: Path, title: str, axes: tuple[str, str], series: dict[str, list[tuple[float, float]]]) -> None:
    """Lines on two logarithmic axes, as a standalone SVG file."""
    xs, ys = ([p[k] for points in series.values() for p in points] for k in (0, 1))
    low_x, high_x = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)))
    low_y, high_y = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def at(x: float, y: float) -> tuple[float, float]:
        right = 70 + 430 * (math.log10(x) - low_x) / (high_x - low_x)
        return right, 330 - 280 * (math.log10(y) - low_y) / (high_y - low_y)

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 390" font-family="sans-serif"',
        ' font-size="12">',
        '<rect width="680" height="390" fill="white"/>',
        f'<text x="70" y="28" font-size="15">{title}</text>',
        f'<text x="285" y="378" text-anchor="middle">{axes[0]}</text>',
        f'<text x="18" y="190" text-anchor="middle" transform="rotate(-90 18 190)">{axes[1]}</text>',
    ]
    for k in range(low_x, high_x + 1):
        x, y = at(10.0**k, 10.0**low_y)
        parts.append(f'<path d="M{x} {y}V50" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="350" text-anchor="middle">{10**k:,}</text>')
    for k in range(low_y, high_y + 1):
        x, y = at(10.0**low_x, 10.0**k)
        parts.append(f'<path d="M{x} {y}H500" stroke="#ddd"/>')
        parts.append(f'<text x="62" y="{y + 4}" text-anchor="end">{10.0**k:g}</text>')
    for i, (name, points) in enumerate(series.items()):
        color = COLORS[i % len(COLORS)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in points))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in (at(*p) for p in points)
        ]
        parts.append(f'<text x="515" y="{70 + 20 * i}" fill="{color}">{name}</text>')
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", "utf-8")
