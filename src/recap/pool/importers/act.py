"""Reads ACT and ALOHA HDF5, one file per episode: `observations/qpos`, `action`, `observations/images/*`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recap.errors import DatasetError, InputError
from recap.pool.importers import hdf5
from recap.pool.importers.mapping import IMAGE, check_name
from recap.pool.importers.robotwin import episode_files
from recap.pool.importers.source import RawEpisode, Reader, check_fps

STATE, ACTION, IMAGES = "observations/qpos", "action", "observations/images/"


def recognises(file: Any) -> bool:
    """True if an open HDF5 file has this layout."""
    return hdf5.has(file, STATE) and hdf5.has(file, ACTION)


class ActReader(Reader):
    """One episode or a folder of episodes; images are arrays, or JPEGs padded to one length."""

    def __init__(self, path: Path, fps: float | None = None) -> None:
        self.path = path
        self._files = episode_files(path)
        if not self._files:
            raise DatasetError(f"{path} has no episode_0.hdf5; it is no ACT folder")
        if fps is None:
            raise InputError(f"{path} does not say its frame rate: give it, as in --fps 50 (ALOHA's)")
        self.fps = check_fps(fps)
        with hdf5.opened(hdf5.first_readable(self._files)) as file:
            if not recognises(file):
                raise DatasetError(f"{path} has no {STATE} and {ACTION}; it is no ACT file")
            self.keys = hdf5.walk(file)

    def __len__(self) -> int:
        return len(self._files)

    def lengths(self) -> Sequence[int]:
        """From the shapes of the actions; 0 if a file cannot be read."""
        return [hdf5.length(path, ACTION) for path in self._files]

    def default_mapping(self) -> Mapping[str, str]:
        """Joints and all cameras."""
        cameras = [key for key, info in self.keys.items() if info.kind == "images" and key.startswith(IMAGES)]
        names = {IMAGE + check_name("camera", key.removeprefix(IMAGES)): key for key in cameras}
        return {"proprio": STATE, "action": ACTION, **names}

    def read(self, index: int, numbers: Collection[str], images: Collection[str]) -> RawEpisode:
        path = self._files[index]
        with hdf5.opened(path) as file:
            values = {key: hdf5.read_numbers(file, key) for key in numbers}
            frames = {key: hdf5.frames(path, file, key) for key in images}
            n = hdf5.member(file, ACTION).shape[0]
        name = f"{path.absolute().parent.name}/{path.stem}"
        return RawEpisode(
            id=name,
            scene_id=name,
            fps=self.fps,
            timestamps=np.arange(n) / self.fps,
            numbers=values,
            images=frames,
            action_space="absolute joint targets",
            source=f"act:{path.name}",
        )
