"""Packed pools: one file with the same contents as the live view, read without Lance."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from toy_pool import ToyDescriber, same_episode, toy_episode

from recap.errors import DatasetError, InputError
from recap.pool.packed import PackedPool
from recap.pool.store import Pool


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    pool = Pool.create(tmp_path_factory.mktemp("pools") / "pool")
    pool.add([toy_episode("a/ü'", images=True), toy_episode("b", t=3)])
    pool.add([toy_episode("c", t=5)])
    return pool


@pytest.fixture(scope="module")
def packed(pool: Pool) -> Path:
    path = Path(pool.uri).parent / "pool.safetensors"
    pool.pack(path, [ToyDescriber(), ToyDescriber(fingerprint="other", scale=3.0)])
    return path


def test_a_packed_pool_equals_the_live_view(pool: Pool, packed: Path) -> None:
    live, snapshot = pool.view(), PackedPool.open(packed).view()
    assert snapshot.version == live.version
    assert snapshot.episode_ids == live.episode_ids
    assert dict(snapshot.digests) == dict(live.digests)
    for name in live.episode_ids:
        a, b = live.episode(name), snapshot.episode(name)
        assert same_episode(a, b)
        for camera in a.images:
            assert np.array_equal(np.array(a.images[camera]), np.array(b.images[camera]))
    for describer in (ToyDescriber(), ToyDescriber(fingerprint="other", scale=3.0)):
        x, y = live.descriptors(describer), snapshot.descriptors(describer)
        assert (x.fingerprint, x.episode_ids) == (y.fingerprint, y.episode_ids)
        assert np.array_equal(x.starts, y.starts)
        assert list(x.terms) == list(y.terms)
        assert all(np.array_equal(x.terms[term], y.terms[term]) for term in x.terms)


def test_packing_a_packed_pool_again_gives_equal_bytes(pool: Pool, packed: Path) -> None:
    again = packed.with_name("again.safetensors")
    from recap.pool.packed import write_packed

    write_packed(
        PackedPool.open(packed), again, [ToyDescriber(), ToyDescriber(fingerprint="other", scale=3.0)]
    )
    assert again.read_bytes() == packed.read_bytes()


def test_descriptors_that_were_not_packed_are_computed(pool: Pool, packed: Path) -> None:
    describer = ToyDescriber(fingerprint="third", scale=5.0)
    snapshot = PackedPool.open(packed)
    found = snapshot.descriptors(describer)
    assert describer.asked == list(snapshot.episode_ids)
    assert snapshot.descriptors(describer) is found
    live = pool.view().descriptors(describer)
    assert all(np.array_equal(found.terms[term], live.terms[term]) for term in live.terms)
    with pytest.raises(DatasetError, match="pack the pool again"):
        snapshot.descriptors(ToyDescriber(dims={"proprio": 9, "object": 3}))


def test_reading_a_packed_pool_imports_neither_lance_nor_pyarrow_nor_torch(packed: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from recap.pool.packed import PackedPool; "
        f"pool = PackedPool.open(Path({str(packed)!r})); "
        "frames = [list(e.images.values()) for e in pool]; frames[0][0][3]; "
        "print([m for m in ('lance', 'pyarrow', 'torch') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_a_pool_packed_without_images_is_smaller(pool: Pool, packed: Path) -> None:
    small = packed.with_name("small.safetensors")
    pool.pack(small, images=False)
    assert small.stat().st_size < packed.stat().st_size / 2
    assert not PackedPool.open(small).episode("a/ü'").images


def test_a_changed_byte_anywhere_is_an_error(packed: Path) -> None:
    data = packed.read_bytes()
    target = packed.with_name("damaged.safetensors")
    rng = np.random.default_rng(0)
    for position in rng.integers(0, len(data), 60):
        changed = bytearray(data)
        changed[position] ^= 1 << int(rng.integers(8))
        target.write_bytes(changed)
        with pytest.raises(DatasetError):
            _use_all(target)
    target.write_bytes(data[: len(data) // 2])
    with pytest.raises(DatasetError, match="damaged"):
        PackedPool.open(target)


def _use_all(path: Path) -> None:
    pool = PackedPool.open(path)
    for episode in pool:
        for digest in (frames.digest for frames in episode.images.values()):
            # Read the blob itself: the video cache would hide the damage.
            raw = pool._file.get_tensor(f"blob/{digest}").tobytes()
            from recap.pool.files import check

            check(raw, digest, "film")
    for describer in (ToyDescriber(), ToyDescriber(fingerprint="other", scale=3.0)):
        pool.descriptors(describer)
    if pool.version != 3 or len(pool) != 3:
        raise DatasetError("the header has changed")


def test_packing_to_a_full_disk_is_a_one_line_error_and_keeps_the_old_file(pool: Pool, packed: Path) -> None:
    kept, before = packed.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # no file may grow larger
    try:
        with pytest.raises(DatasetError, match=r"cannot write .*File too large.*is kept$"):
            pool.pack(packed)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert packed.read_bytes() == kept
    assert not list(packed.parent.glob(".*partial*"))


def test_a_missing_file_or_episode_is_an_error(tmp_path: Path, packed: Path) -> None:
    with pytest.raises(DatasetError, match="recap pool pack"):
        PackedPool.open(tmp_path / "nothing")
    with pytest.raises(InputError, match="no episode"):
        PackedPool.open(packed).episode("nobody")
