"""Numbers and files that no change of the code may move, compared with what was computed before it."""

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
# Names, not numbers: fingerprints cover names of settings, which the move changes, and so does what a server
# says of itself.
RENAMED = ("describer", "metric", "metadata")
# Poses of the arms pass through BLAS, which picks its kernels by the model of the CPU.
# The fingerprint does not name it: one with the same features rounded otherwise, by 6e-13.
BY_BLAS = ("dualarm", "robotwin")
# What depends on which demonstration of a scene was retrieved.
OF_A_MATCH = ("refs", "last_refs", "distances", "costs", "candidates")
OF_A_MATCH += ("actions", "proprio", "objects", "goals", "frames", "valid")


@pytest.fixture(scope="module")
def goldens() -> dict[str, NDArray[Any]]:
    """What is kept, by `group:name`."""
    with np.load(FILE, allow_pickle=False) as file:
        return dict(file)


def differences(
    group: str, goldens: dict[str, NDArray[Any]], found: dict[str, NDArray[Any] | str], exact: bool
) -> list[str]:
    """The names whose values are others than those kept."""
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
    """The names that say which twin was retrieved, where candidates are of the same scenes but other robots.

    Two robots' demonstrations of one scene begin equally far away, so that the last bit chooses between them.
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
    """Whether a value is as it was kept; a hash says nothing where bits may differ."""
    if not exact and name.endswith(SHA):
        return True
    if kept.shape != found.shape or kept.dtype.kind != found.dtype.kind:
        return False
    if kept.dtype.kind != "f":
        return np.array_equal(kept, found)
    if exact:
        return kept.dtype == found.dtype and np.array_equal(kept, found, equal_nan=True)
    return np.allclose(found, kept, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def test_the_goldens_are_those_that_were_made() -> None:
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == FILE_SHA256


def test_every_golden_is_of_a_group(goldens: dict[str, NDArray[Any]]) -> None:
    groups = {name.split(":")[0] for name in goldens if name != FINGERPRINT}
    assert groups == {*BITS, *NEAR}
    assert not set(BITS) & set(NEAR)


@pytest.mark.parametrize("group", BITS)
def test_bits_are_as_they_were(group: str, goldens: dict[str, NDArray[Any]], tmp_path: Path) -> None:
    """Bit by bit on a machine like that of the goldens, elsewhere to 1e-5 and without the hashes.

    Variants of libm and BLAS are chosen by the CPU, and round the last bits in their own way.
    """
    exact = str(goldens[FINGERPRINT]) == fingerprint()
    assert not differences(group, goldens, compute(group, tmp_path), exact)


def test_only_a_twin_of_the_same_scene_may_be_retrieved_instead() -> None:
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
def test_numbers_are_as_they_were(group: str, goldens: dict[str, NDArray[Any]], tmp_path: Path) -> None:
    """To 1e-5 on any machine."""
    assert not differences(group, goldens, compute(group, tmp_path), exact=False)
