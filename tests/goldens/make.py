"""Write goldens.npz, once: `python tests/goldens/make.py`. It is never made anew."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core._multiarray_umath import __cpu_features__  # type: ignore[import-not-found]
from numpy.typing import NDArray

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from goldens.compute import BITS, NEAR, compute

FILE = Path(__file__).with_name("goldens.npz")
FINGERPRINT = "fingerprint"


def fingerprint() -> str:
    """What bits depend on beside the code: the CPU, the C library and versions."""
    parts = {
        "cpu": sorted(name for name, there in __cpu_features__.items() if there),
        "libc": " ".join(platform.libc_ver()),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    return json.dumps(parts, sort_keys=True)


def everything() -> dict[str, NDArray[Any]]:
    """All groups, each value under the name of its group."""
    found: dict[str, NDArray[Any]] = {FINGERPRINT: np.array(fingerprint())}
    for group in (*BITS, *NEAR):
        with tempfile.TemporaryDirectory() as work:
            values = compute(group, Path(work))
        found |= {f"{group}:{name}": np.asarray(value) for name, value in values.items()}
    return found


def main() -> int:
    """Refuse where there is a file, else write it."""
    if FILE.exists():
        print(f"{FILE} exists: goldens are never made anew", file=sys.stderr)
        return 1
    np.savez_compressed(FILE, allow_pickle=False, **everything())
    print(f"{FILE}: {FILE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
