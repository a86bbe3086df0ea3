"""Packed pools with raw frames: lossless, read one frame at a time, checked for damage."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from toy_pool import toy_episode

from recap.errors import DatasetError
from recap.lazy import Made
from recap.pool.memory import MemoryView
from recap.pool.packed import PackedPool, write_packed


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    episodes = [toy_episode("a", images=True), toy_episode("b", t=3)]
    write_packed(MemoryView(episodes), tmp_path / "pool.safetensors", films=False)
    return tmp_path / "pool.safetensors"


def test_raw_frames_are_read_back_exactly(packed: Path) -> None:
    episode, pool = toy_episode("a", images=True), PackedPool.open(packed)
    found = pool.episode("a").images
    assert set(found) == set(episode.images)
    for camera, frames in episode.images.items():
        assert isinstance(found[camera], Made)
        assert len(found[camera]) == len(frames)
        assert np.array_equal(np.stack(list(found[camera])), np.stack(list(frames)))
        assert np.array_equal(found[camera][-1], frames[-1])
        assert np.array_equal(np.stack(list(found[camera][1:3])), np.stack(list(frames[1:3])))
        with pytest.raises(IndexError):
            found[camera][len(frames)]


def test_equal_views_give_equal_bytes(packed: Path, tmp_path: Path) -> None:
    write_packed(PackedPool.open(packed), tmp_path / "again.safetensors", films=False)
    assert (tmp_path / "again.safetensors").read_bytes() == packed.read_bytes()


def test_a_file_that_was_packed_again_is_read_again(packed: Path) -> None:
    old = [PackedPool.open(packed).episode(name) for name in ("a", "b")]
    assert all(len(film[0]) for film in old[0].images.values())
    more = toy_episode("c", t=4, images=True)
    write_packed(MemoryView([*old, more]), packed, films=False)
    pool = PackedPool.open(packed)
    for name, episode in (("a", toy_episode("a", images=True)), ("c", more)):
        for camera, film in pool.episode(name).images.items():
            assert np.array_equal(film[2], episode.images[camera][2])


def test_changed_frames_are_an_error(packed: Path) -> None:
    data = bytearray(packed.read_bytes())
    frames = next(iter(toy_episode("a", images=True).images.values()))
    at = bytes(data).index(np.stack(list(frames)).tobytes())
    data[at + 5] ^= 1
    packed.write_bytes(data)
    film = next(iter(PackedPool.open(packed).episode("a").images.values()))
    with pytest.raises(DatasetError, match="is damaged: frames have changed"):
        film[0]


def test_reading_raw_frames_imports_neither_lance_nor_a_video_decoder(packed: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from recap.pool.packed import PackedPool\n"
        f"pool = PackedPool.open(Path({str(packed)!r}))\n"
        "print(next(iter(pool.episode('a').images.values()))[0].shape[-1], end=' ')\n"
        "print(sorted({'lance', 'av', 'pyarrow', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "3 []\n"
