"""What every benchmark does with its numbers: print them, and write them with the machine they come from."""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("gym-pusht", "gymnasium", "numba", "numpy", "pymunk")


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that all share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a short version, for a first look")
    parser.add_argument("--json", type=Path, help="write the result here")
    return parser


def machine() -> dict[str, Any]:
    """Where the numbers come from."""
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
    """Write the result where asked."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n")
