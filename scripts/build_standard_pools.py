"""Make the standard PushT pools anew: collect, pack without images, write into the package.

    python scripts/build_standard_pools.py [--out src/recap/assets]

About four minutes on two cores. The same seeds give the same files.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from recap.cli.terminal import progress_bar
from recap.collection import CollectSpec, collect
from recap.pool.lerobot import LeRobotDataset
from recap.pool.packed import write_packed
from recap.pool.view import Describer
from recap.types import Descriptors, Episode

SPECS = {
    "pusht-9x100": CollectSpec("disc", tuple(map(float, range(-60, 61, 15))), 100, image_size=0),
    "pusht-25x40": CollectSpec(
        "disc", tuple(map(float, range(-60, 61, 5))), 40, first_seed=110_000, image_size=0
    ),
}


class DatasetView:
    """A dataset on disk as one version of a pool."""

    version = 1

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self._episodes = {episode.id: episode for episode in episodes}
        self.episode_ids = tuple(self._episodes)

    def episode(self, episode_id: str) -> Episode:
        """One of them."""
        return self._episodes[episode_id]

    def descriptors(self, describer: Describer) -> Descriptors:
        """Not kept in the packed file: describing these takes less than a second."""
        raise AssertionError("packed without describers")


def main() -> None:
    """Collect and pack each of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("src/recap/assets"))
    out = parser.parse_args().out
    for name, spec in SPECS.items():
        with tempfile.TemporaryDirectory() as folder:
            dataset = Path(folder) / name
            with progress_bar(name) as progress:
                collect(spec, dataset, workers=os.cpu_count() or 1, progress=progress)
            write_packed(DatasetView(list(LeRobotDataset.open(dataset))), out / f"{name}.safetensors")
        print(f"{out / name}.safetensors: {(out / f'{name}.safetensors').stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
