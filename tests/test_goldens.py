"""Golden values: numbers and files that code changes must not alter."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from goldens.compute import BITS, NEAR, SHA, compute
from goldens.make import FILE, FINGERPRINT, fingerprint

FILE_SHA256 = "189445f0b3931ccf5fa83fe271aaeddaf594aa0faaa303785e0326379c20fc70"
TOLERANCE = 1e-5
# Fingerprints cover names of settings, which renaming changes. So does the server's metadata.
RENAMED = ("describer", "metric", "metadata")
# Arm poses are computed with BLAS, which chooses its kernels by CPU model. The fingerprint has only the CPU's
# features: another model with the same features rounded differently, by 6e-13.
BY_BLAS = ("dualarm", "robotwin")
# Values that depend on which demonstration of a scene was retrieved.
OF_A_MATCH = ("refs", "last_refs", "distances", "costs", "candidates")
OF_A_MATCH += ("actions", "proprio", "objects", "goals", "frames", "valid")


@pytest.fixture(scope="module")
def goldens() -> dict[str, NDArray[Any]]:
    """The golden values by `group:name`."""
    with np.load(FILE, allow_pickle=False) as file:
        return dict(file)


def differences(
    group: str, goldens: dict[str, NDArray[Any]], found: dict[str, NDArray[Any] | str], exact: bool
) -> list[str]:
    """The names whose values differ from the goldens."""
    kept = {name.removeprefix(f"{group}:"): v for name, v in goldens.items() if name.startswith(f"{group}:")}
    assert set(found) == set(kept)
    compared = {name: value for name, value in kept.items() if name not in RENAMED}

    by_blas = {name for name in compared if any(word in f"{group}/{name}" for word in BY_BLAS)}
    by_twin = by_blas & of_other_twins(kept, found)
    return [
        name
        for name, value in compared.items()
        if name not in by_twin
        and not same(name, value, np.asarray(found[name]), exact and name not in by_blas)
    ]


def of_other_twins(kept: dict[str, NDArray[Any]], found: dict[str, NDArray[Any] | str]) -> set[str]:
    """The names that depend on the retrieved twin, if candidates differ only in their robot.

    Two robots' demonstrations of a scene start at equal distance, so that the last bit decides between them.
    """

    def scenes(candidates: object) -> list[str]:
        return [name.rsplit("/", 1)[0] for name in str(candidates).replace("\n", " | ").split(" | ")]

    lists = [name for name in kept if name.endswith("candidates")]
    if all(str(kept[name]) == str(found[name]) for name in lists):
        return set()
    if any(scenes(kept[name]) != scenes(found[name]) for name in lists):
        return set()
    return {name for name in kept if name.split("/")[-1].split("#")[0] in OF_A_MATCH}


def same(name: str, kept: NDArray[Any], found: NDArray[Any], exact: bool) -> bool:
    """True if a value equals its golden; hashes are skipped where bits may differ."""
    if not exact and name.endswith(SHA):
        return True
    if kept.shape != found.shape or kept.dtype.kind != found.dtype.kind:
        return False
    if kept.dtype.kind != "f":
        return np.array_equal(kept, found)
    if exact:
        return kept.dtype == found.dtype and np.array_equal(kept, found, equal_nan=True)
    return np.allclose(found, kept, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def test_the_golden_file_is_unchanged() -> None:
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == FILE_SHA256


def test_every_golden_belongs_to_one_group(goldens: dict[str, NDArray[Any]]) -> None:
    groups = {name.split(":")[0] for name in goldens if name != FINGERPRINT}
    assert groups == {*BITS, *NEAR}
    assert not set(BITS) & set(NEAR)


@pytest.mark.parametrize("group", BITS)
def test_values_equal_the_goldens_bit_for_bit(
    group: str, goldens: dict[str, NDArray[Any]], tmp_path: Path
) -> None:
    """Bit for bit on a CPU like that of the goldens, otherwise to 1e-5 and without the hashes.

    libm and BLAS choose variants by CPU, which round the last bits differently.
    """
    exact = str(goldens[FINGERPRINT]) == fingerprint()
    assert not differences(group, goldens, compute(group, tmp_path), exact)


def test_only_a_twin_of_the_same_scene_may_replace_a_retrieved_match() -> None:
    group = "retrieved/dualarm-single"
    names = {"candidates": "dualarm/a/1/ur5e | dualarm/b/2/ur5e", "refs": "dualarm/a/1/ur5e 3"}
    kept = {f"{group}:matches/{name}": np.array(text) for name, text in names.items()}
    twin = {
        "matches/candidates": "dualarm/a/1/viperx | dualarm/b/2/ur5e",
        "matches/refs": "dualarm/a/1/viperx 3",
    }
    assert differences(group, kept, dict(twin), exact=True) == []
    other_scene = twin | {"matches/candidates": "dualarm/a/2/viperx | dualarm/b/2/ur5e"}
    assert differences(group, kept, dict(other_scene), exact=True) == ["matches/candidates", "matches/refs"]
    same_scenes = {f"matches/{name}": text for name, text in names.items()} | {
        "matches/refs": "dualarm/a/1/ur5e 4"
    }
    assert differences(group, kept, dict(same_scenes), exact=True) == ["matches/refs"]


@pytest.mark.parametrize("group", NEAR)
def test_values_are_near_the_goldens(group: str, goldens: dict[str, NDArray[Any]], tmp_path: Path) -> None:
    """To 1e-5 on any machine."""
    assert not differences(group, goldens, compute(group, tmp_path), exact=False)
