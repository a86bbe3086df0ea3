"""Build the included PushT pools again: collect, pack without images, write into the package.

    python research/scripts/build_standard_pools.py [--out src/recap_worlds/assets]

About four minutes on two cores. The same seeds give the same files.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from recap.cli.one_line import run_script
from recap.cli.terminal import progress_bar
from recap.pool.importers import open_source
from recap.pool.memory import MemoryView
from recap.pool.packed import write_packed
from recap_worlds.pusht.collecting import CollectSpec, collect

# Pools by name; the triangle has the starts of the disc of the first pool at the same goals.
SPECS = {
    "pusht-9x100": [CollectSpec("disc", tuple(map(float, range(-60, 61, 15))), 100, image_size=0)],
    "pusht-25x40": [
        CollectSpec("disc", tuple(map(float, range(-60, 61, 5))), 40, first_seed=110_000, image_size=0)
    ],
    "pusht-triangle": [
        CollectSpec("triangle", (-45.0,), 100, first_seed=100_100, image_size=0),
        CollectSpec("triangle", (45.0,), 100, first_seed=100_700, image_size=0),
    ],
}


def main() -> None:
    """Collect and pack each pool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("src/recap_worlds/assets"))
    parser.add_argument("--only", nargs="*", default=list(SPECS), help="pools by name")
    arguments = parser.parse_args()
    out = arguments.out
    for name in arguments.only:
        specs = SPECS[name]
        with tempfile.TemporaryDirectory() as folder:
            episodes = []
            for number, spec in enumerate(specs):
                dataset = Path(folder) / str(number)
                with progress_bar(name) as progress:
                    collect(spec, dataset, workers=os.cpu_count() or 1, progress=progress)
                episodes += list(open_source(dataset))
            write_packed(MemoryView(episodes), out / f"{name}.safetensors")
        print(f"{out / name}.safetensors: {(out / f'{name}.safetensors').stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    run_script(main)
