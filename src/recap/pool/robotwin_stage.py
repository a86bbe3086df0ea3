"""Finished episodes in RoboTwin's HDF5, kept one by one, so that a collection can be taken up again."""

from __future__ import annotations

import json
import re
from pathlib import Path

from recap.errors import DatasetError
from recap.pool.robotwin_write import Layout, write_episode, write_notes
from recap.run_directory import read_json, write_whole
from recap.types import Episode

_FOLDER = "dataset"  # within the staging directory: what becomes the dataset, files and all
_NOTE = re.compile(r"episode-(\d+)\.json")
_FILE = re.compile(r"episode(\d+)\.(?:hdf5|json)")


def stage_robotwin(staging: Path, index: int, layout: Layout, episode: Episode) -> None:
    """Write one finished episode; its note appears last and says that it is whole."""
    sign = _note(staging, index)
    sign.unlink(missing_ok=True)  # an earlier episode of this index is no longer whole from here on
    note = write_episode(staging / _FOLDER, index, episode, layout)
    write_whole(sign, json.dumps(note) + "\n")


def staged_robotwin(staging: Path) -> set[int]:
    """The whole episodes; removes what interrupted stages left, so call it while none runs."""
    names = (_NOTE.fullmatch(path.name) for path in staging.glob("episode-*.json"))
    whole = {int(name[1]) for name in names if name}
    for path in staging.glob(f"{_FOLDER}/*/episode*"):
        name = _FILE.fullmatch(path.name)
        if name and int(name[1]) not in whole:
            path.unlink()
    return whole


def assemble_robotwin(staging: Path, n_episodes: int, out: Path) -> None:
    """Make the staged episodes the folder `out`, at once."""
    folder = staging / _FOLDER
    for index in range(n_episodes):
        file = folder / f"data/episode{index}.hdf5"
        if not file.is_file():
            raise DatasetError(
                f"staged episode {file} is lost: remove {_note(staging, index)} and collect it again"
            )
    write_notes(folder, [read_json(_note(staging, index)) for index in range(n_episodes)])
    folder.rename(out)


def _note(staging: Path, index: int) -> Path:
    return staging / f"episode-{index:06d}.json"
