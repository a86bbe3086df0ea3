"""Stages RoboTwin episodes of a collection, so that it can be stopped and resumed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from recap.errors import DatasetError
from recap.pool.robotwin_write import Joints, Layout, write_episode, write_notes
from recap.run_directory import read_json, write_whole
from recap.types import Episode

_STAGED = "dataset"  # subfolder that becomes the dataset
_STAGED_NOTE = re.compile(r"episode-(\d+)\.json")
_STAGED_FILE = re.compile(r"episode_?(\d+)\.(?:hdf5|json)")


def stage_robotwin(
    staging: Path, index: int, layout: Layout, episode: Episode, joints: Joints | None = None
) -> None:
    """Write one finished episode; its note is written last and marks it as complete."""
    note = _staged_note(staging, index)
    note.unlink(missing_ok=True)  # from here on an earlier episode of this index is incomplete
    write_whole(note, json.dumps(write_episode(staging / _STAGED, index, episode, layout, joints)) + "\n")


def staged_robotwin(staging: Path) -> set[int]:
    """Indices of complete episodes; removes files of interrupted stages, so none may be running."""
    names = (_STAGED_NOTE.fullmatch(path.name) for path in staging.glob("episode-*.json"))
    whole = {int(name[1]) for name in names if name}
    for path in staging.glob(f"{_STAGED}/*/episode*"):
        name = _STAGED_FILE.fullmatch(path.name)
        if name and int(name[1]) not in whole:
            path.unlink()
    return whole


def assemble_robotwin(staging: Path, n_episodes: int, out: Path) -> None:
    """Move the staged episodes to the folder `out`, in one step."""
    folder = staging / _STAGED
    notes = [read_json(_staged_note(staging, index)) for index in range(n_episodes)]
    for index, note in enumerate(notes):
        file = folder / "data" / note["file"]
        if not file.is_file():
            where = _staged_note(staging, index)
            raise DatasetError(f"staged episode {file} is lost: remove {where} and collect it again")
    write_notes(folder, notes)
    folder.rename(out)


def _staged_note(staging: Path, index: int) -> Path:
    return staging / f"episode-{index:06d}.json"
