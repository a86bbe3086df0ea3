"""The video cache in the temporary folder: private to the user, and of a bounded size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recap.pool import files
from recap.pool.files import cached, sha256


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def keep(data: bytes) -> Path:
    return cached(sha256(data), "blobs/x.mp4", lambda: data)


def test_the_cache_folder_is_private_to_its_owner(temporary: Path) -> None:
    path = keep(b"film")
    assert path.read_bytes() == b"film"
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_world_writable_cache_folder_is_made_private(temporary: Path) -> None:
    folder = temporary / f"recap-blobs-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    keep(b"film")
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_symlink_in_place_of_the_cache_folder_is_refused(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (temporary / f"recap-blobs-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="TMPDIR"):
        keep(b"film")
    assert not list(elsewhere.iterdir())


def test_a_cache_folder_of_another_user_is_refused(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(b"film")
    other = os.getuid() + 1
    (temporary / f"recap-blobs-{os.getuid()}").rename(temporary / f"recap-blobs-{other}")
    monkeypatch.setattr(os, "getuid", lambda: other)
    with pytest.raises(PermissionError, match="TMPDIR"):
        keep(b"other")


def test_the_cache_stays_below_its_limit_and_drops_the_oldest_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_CACHE_BYTES", 10_000)
    kept = []
    for i in range(40):
        kept.append(keep(bytes([i]) * 1000))
        os.utime(kept[-1], (1000 + i, 1000 + i))  # as if one second apart
    there = [path for path in kept if path.exists()]
    assert sum(path.stat().st_size for path in there) <= 10_000
    assert there == kept[-len(there) :], "the oldest are dropped first"
    assert keep(bytes([0]) * 1000).read_bytes() == bytes(1000), "a dropped file is fetched again"


def test_a_recently_used_file_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_CACHE_BYTES", 3000)
    used = keep(b"a" * 1000)
    os.utime(used, (1, 1))
    for letter in (b"b", b"c", b"d", b"e"):
        keep(b"a" * 1000)
        keep(letter * 1000)
        assert used.exists()
