"""A list of SHA-256 beside a checkpoint, a snapshot or a dataset, and `recap verify`, which checks it."""

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
    """One of each, with its list."""
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
    """The same, to be damaged."""
    subprocess.run(["cp", "-r", *map(str, kept["policy"].parent.iterdir()), str(tmp_path)], check=True)
    return {name: tmp_path / path.name for name, path in kept.items()}


def test_sixty_flipped_bits_of_weights_are_all_refused(copy: dict[str, Path]) -> None:
    weights = copy["policy"] / "model.safetensors"
    sound, rng = weights.read_bytes(), np.random.default_rng(0)
    for at in rng.integers(0, len(sound), 60):
        flipped(weights, int(at), int(rng.integers(8)))
        with pytest.raises(DatasetError, match=r"model\.safetensors"):
            from_pretrained(copy["policy"])
        weights.write_bytes(sound)
    from_pretrained(copy["policy"])


@pytest.mark.parametrize("what", ["policy", "snapshot", "dataset"])
def test_what_is_as_it_was_is_sound(kept: dict[str, Path], what: str) -> None:
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


def test_what_is_missing_or_was_put_there_is_named(copy: dict[str, Path]) -> None:
    (copy["dataset"] / "meta/more.json").write_text("{}")
    (copy["dataset"] / "meta/info.json").rename(copy["dataset"] / "info.json")
    found = ask(copy["dataset"])
    assert found.return_value == 1
    for line in ("missing: meta/info.json", "not listed: meta/more.json", "not listed: info.json"):
        assert line in found.output


def test_the_list_is_one_that_sha256sum_reads_and_may_be_kept_elsewhere(
    copy: dict[str, Path], tmp_path: Path
) -> None:
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=copy["policy"], check=True)
    elsewhere = tmp_path / "elsewhere"
    (copy["policy"] / "SHA256SUMS").rename(elsewhere)
    assert ask(copy["policy"], "--sums", elsewhere).return_value == 0
    missing = ask(copy["policy"])
    assert isinstance(missing.exception, InputError)
    assert "--write" in str(missing.exception)


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    assert isinstance(ask(tmp_path / "none").exception, InputError)


@pytest.mark.parametrize("text", ["", "x", f"{'0' * 64}  ../outside", f"{'0' * 64}  /etc/passwd", "0" * 64])
def test_a_list_that_is_none_is_refused(copy: dict[str, Path], text: str) -> None:
    (copy["policy"] / "SHA256SUMS").write_text(text)
    assert isinstance(ask(copy["policy"]).exception, DatasetError)
