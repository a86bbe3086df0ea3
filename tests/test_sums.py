"""SHA256SUMS beside a checkpoint, a snapshot or a dataset, and `recap verify`, which checks them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from episodes import random_episode
from recap.cli.verify import verify
from recap.errors import DatasetError, InputError
from recap.policies.checkpoint import from_pretrained, save_pretrained
from recap.pool.lerobot import assemble, stage_episode
from recap.pool.store import Pool
from toy_policy import toy_config, toy_policy


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint, a snapshot and a dataset, each with its SHA256SUMS."""
    root = tmp_path_factory.mktemp("kept")
    save_pretrained(toy_policy(toy_config(inputs="S")), root / "policy")
    pool = Pool.create(root / "pool")
    pool.add([random_episode(f"demo/{i}", i, n=12) for i in range(3)])
    pool.pack(root / "pool.safetensors")
    stage_episode(root / "staging", 0, random_episode("demo/0", 0, n=12))
    assemble(root / "staging", 1, root / "data")
    found = {"policy": root / "policy", "snapshot": root / "pool.safetensors", "dataset": root / "data"}
    for path in found.values():
        assert ask(path, "--write").exit_code == 0
    return found


def ask(*words: object) -> Result:
    return CliRunner().invoke(verify, [str(word) for word in words], standalone_mode=False)


def flipped(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


@pytest.fixture
def copy(kept: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """Copies that a test may damage."""
    subprocess.run(["cp", "-r", *map(str, kept["policy"].parent.iterdir()), str(tmp_path)], check=True)
    return {name: tmp_path / path.name for name, path in kept.items()}


def test_weights_with_a_flipped_bit_are_refused(copy: dict[str, Path]) -> None:
    weights = copy["policy"] / "model.safetensors"
    sound, rng = weights.read_bytes(), np.random.default_rng(0)
    for at in rng.integers(0, len(sound), 60):
        flipped(weights, int(at), int(rng.integers(8)))
        with pytest.raises(DatasetError, match=r"model\.safetensors"):
            from_pretrained(copy["policy"])
        weights.write_bytes(sound)
    from_pretrained(copy["policy"])


@pytest.mark.parametrize("what", ["policy", "snapshot", "dataset"])
def test_unchanged_files_are_verified(kept: dict[str, Path], what: str) -> None:
    found = ask(kept[what])
    assert (found.return_value, "sound" in found.output) == (0, True), found.output


@pytest.mark.parametrize("what", ["policy", "snapshot", "dataset"])
def test_a_flipped_bit_anywhere_is_found_and_named(copy: dict[str, Path], what: str) -> None:
    path = copy[what]
    files = [f for f in path.rglob("*") if f.is_file()] if path.is_dir() else [path]
    for file in (f for f in files if f.name != "SHA256SUMS"):
        flipped(file, file.stat().st_size // 2)
        found = ask(path)
        assert found.return_value == 1, file
        assert f"changed: {file.relative_to(path) if path.is_dir() else file.name}" in found.output
        flipped(file, file.stat().st_size // 2)
    assert ask(path).return_value == 0


def test_missing_and_additional_files_are_named(copy: dict[str, Path]) -> None:
    (copy["dataset"] / "meta/more.json").write_text("{}")
    (copy["dataset"] / "meta/info.json").rename(copy["dataset"] / "info.json")
    found = ask(copy["dataset"])
    assert found.return_value == 1
    for line in ("missing: meta/info.json", "not listed: meta/more.json", "not listed: info.json"):
        assert line in found.output


def test_the_list_is_readable_by_sha256sum_and_may_be_stored_elsewhere(
    copy: dict[str, Path], tmp_path: Path
) -> None:
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=copy["policy"], check=True)
    elsewhere = tmp_path / "elsewhere"
    (copy["policy"] / "SHA256SUMS").rename(elsewhere)
    assert ask(copy["policy"], "--sums", elsewhere).return_value == 0
    missing = ask(copy["policy"])
    assert isinstance(missing.exception, InputError)
    assert "--write" in str(missing.exception)


def test_a_missing_path_is_an_error(tmp_path: Path) -> None:
    assert isinstance(ask(tmp_path / "none").exception, InputError)


@pytest.mark.parametrize("text", ["", "x", f"{'0' * 64}  ../outside", f"{'0' * 64}  /etc/passwd", "0" * 64])
def test_an_invalid_list_is_refused(copy: dict[str, Path], text: str) -> None:
    (copy["policy"] / "SHA256SUMS").write_text(text)
    assert isinstance(ask(copy["policy"]).exception, DatasetError)
