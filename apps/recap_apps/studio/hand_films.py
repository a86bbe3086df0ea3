"""Films of hands from `recap lift`: landmarks, quality, and whether a person accepts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError
from recap.pool.importers.source import as_dataset_error, read_text
from recap.pool.importers.tracked import VIDEO, episode_folders
from recap.pool.store import Pool
from recap.video import video_length, video_size
from recap_apps.studio.library import Library, SourceLibrary
from recap_hands.landmarks import Landmarks, load_landmarks

LANDMARKS, QUALITY = "landmarks.npz", "quality.json"
TIPS = (4, 8)  # landmarks of thumb and index finger; the tool is between them
MAX_FRAMES = 20_000


class HandFilms:
    """The folders of a lifted recording.

    Args:
        into: the pool for accepted films; none: films cannot be accepted.
    """

    def __init__(self, library: Library, into: str | None = None) -> None:
        self.folders: dict[str, Path] = {}
        self.library, self.into = library, into
        if isinstance(library, SourceLibrary) and library.source.format == "tracked":
            root = library.source.path
            for folder in episode_folders(root):
                if (folder / LANDMARKS).is_file() and (folder / VIDEO).is_file():
                    name = folder.name if folder == root else f"{root.name}/{folder.name}"
                    self.folders[name] = folder
        if into is not None and not self.folders:
            raise InputError("--into takes films of hands: give a folder that recap lift wrote as PATH")
        self._pool = None if into is None else Pool.open(into)
        self._rejected: set[str] = set()

    def list(self) -> dict[str, Any]:
        """Each film with its task, the quality of tracking, and the decision."""
        return {"films": [self._line(name) for name in self.folders], "into": self.into}

    def _line(self, name: str) -> dict[str, Any]:
        folder = self.folders[name]
        try:
            task = read_text(folder / "task.txt").strip() if (folder / "task.txt").is_file() else ""
            hands = _quality(folder).get("hands", {})
            seen = [float(hand["coverage"]) for hand in hands.values()]
            return {
                "name": name,
                "task": task,
                "coverage": min(seen, default=None),
                "state": self._state(name),
            }
        except (DatasetError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            return {"name": name, "task": "", "coverage": None, "problem": " ".join(str(error).split())[:300]}

    def _state(self, name: str) -> str:
        if self._pool is not None and any(name in (i, i.rpartition("/")[0]) for i in self._pool.ids()):
            return "accepted"
        return "rejected" if name in self._rejected else ""

    def show(self, name: str) -> dict[str, Any]:
        """A film with its landmarks as shares of its width and height, gaps and quality figures."""
        folder = self.folder(name)
        with as_dataset_error(folder):
            found = load_landmarks(folder / LANDMARKS)
            n = len(found.times)
            if n > MAX_FRAMES:
                raise DatasetError(f"{folder} has {n} frames, more than {MAX_FRAMES}: lift it in parts")
            fps = float(1 / np.median(np.diff(found.times)))
            shown = video_size(folder / VIDEO)
            quality = _quality(folder)
            speed = float(quality.get("speed") or 1)
            return {
                **self._line(name),
                "n_frames": n,
                "n_film": video_length(folder / VIDEO, fps / speed),
                "fps": fps / speed,  # of the video next to it, which has the robot's speed
                "size": [shown[1], shown[0]],
                "hands": {side: _marks(found, side) for side in found.hands},
                "times": [round(float(t), 4) for t in found.times],
                "quality": quality,
            }

    def folder(self, name: str) -> Path:
        """The film's folder."""
        if name not in self.folders:
            raise InputError(f"there is no film {name[:200]!a} here", code="studio.film")
        return self.folders[name]

    def film(self, name: str) -> Path:
        """The film's video."""
        return self.folder(name) / VIDEO

    def accept(self, name: str) -> dict[str, Any]:
        """Add its demonstrations to the chosen pool, like `recap pool add`."""
        self.folder(name)
        if self._pool is None:
            raise InputError("no pool is chosen: start with --into POOL", code="studio.read_only")
        assert isinstance(self.library, SourceLibrary)
        episodes = [episode for episode in self.library.source if episode.scene_id == name]
        added = self._pool.add_missing(episodes)
        self._rejected.discard(name)
        return {"added": added, "version": self._pool.version, "into": self.into}

    def reject(self, name: str) -> dict[str, Any]:
        """Mark it as rejected; nothing is written or deleted."""
        self.folder(name)
        if self._state(name) == "accepted":
            raise InputError(f"{name!a} is in the pool already: recap pool rm takes it out")
        self._rejected.add(name)
        return {"added": 0}


def _marks(found: Landmarks, side: str) -> dict[str, Any]:
    """Landmarks (t, 21, 2) as shares, with the point between thumb and index finger; null without a hand."""
    height, width = found.size
    pixels = found.hands[side].pixels / [width, height]
    tool = pixels[:, TIPS].mean(axis=1)
    return {"marks": [_flat(row) for row in pixels], "tool": [_flat(row) for row in tool]}


def _flat(row: NDArray[Any]) -> list[float] | None:
    values = row.ravel()
    return [round(float(v), 4) for v in values] if np.isfinite(values).all() else None


def _quality(folder: Path) -> dict[str, Any]:
    if not (folder / QUALITY).is_file():
        return {}
    found = json.loads(read_text(folder / QUALITY))
    if not isinstance(found, dict):
        raise DatasetError(f"{folder / QUALITY} is no map: lift the film again")
    return found
