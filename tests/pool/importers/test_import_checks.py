"""Each check finds its fault, and a good demonstration has no findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_files import gripper, image, path_of, poses

from recap.errors import DatasetError
from recap.geometry3 import encode_arms
from recap.pool.importers.checks import check_dataset, check_episode
from recap.types import F32, Episode

N = 24


def single(values: Any) -> F32:
    return np.asarray(values, dtype=np.float32)


def following(values: F32) -> F32:
    return np.concatenate([values[1:], values[-1:]])


def plain(number: int = 0) -> Episode:
    """A good planar demonstration."""
    state = single(path_of(N, number, 2))
    return Episode(
        id=f"demo-{number}",
        scene_id="scene",
        task="push",
        embodiment="disc",
        fps=10,
        timestamps=np.arange(N) / 10,
        proprio=state,
        actions=following(state),
        objects={"block": single(path_of(N, number + 50, 3))},
        goal=single([1, 2, 3]),
        images={"top": [image(i) for i in range(N)]},
        action_space="position",
    )


def dual(number: int = 0) -> Episode:
    """A good demonstration with two arms."""
    state = single(encode_arms(poses(N, number), gripper(N), poses(N, number + 1), gripper(N)))
    return replace(plain(number), proprio=state, actions=following(state))


def both(episode: Episode, values: Any) -> Episode:
    """The same change in state and action, so that they still agree."""
    return replace(episode, proprio=single(values), actions=following(single(values)))


def changed(values: F32, where: Any, value: float) -> F32:
    copy = values.copy()
    copy[where] = value
    return copy


@pytest.mark.parametrize("make", [plain, dual])
def test_a_good_demonstration_has_no_findings(make: Callable[[int], Episode]) -> None:
    for number in range(5):
        assert check_episode(make(number)) == []
    assert check_dataset(make(number) for number in range(5)) == []


class Broken(Sequence[Any]):
    def __len__(self) -> int:
        return N

    def __getitem__(self, index: Any) -> Any:
        raise DatasetError("frame 0 is damaged")


good, arms = plain(), dual()
state, times = good.proprio, good.timestamps
joints = single(path_of(N, 3, 7))
step = np.diff(state, axis=0, append=state[-1:])
noise = np.random.default_rng(0).normal(size=(N, 2)) * 1e-5

idle = np.tile(single([0, 0, 0, 1, 0, 0, 0, 1, 0, 0]), (N, 1))
moment = replace(both(good, state[:1]), timestamps=np.zeros(1), objects={}, images={})
degrees = {"block": single(90 * path_of(N))}

CASES: dict[str, tuple[Episode, str]] = {
    "rows": (replace(good, actions=state[:-1]), "error shape action"),
    "flat": (replace(good, proprio=state[:, 0]), "error shape proprio"),
    "narrow": (replace(good, proprio=state[:, :0]), "error shape proprio"),
    "object": (replace(good, objects={"block": single(path_of(N - 1))}), "error shape object:block"),
    "goal": (replace(good, goal=single([[1, 2, 3]])), "error shape goal"),
    "dtype": (replace(good, proprio=state.astype(np.float64)), "error dtype proprio"),
    "times32": (replace(good, timestamps=single(good.timestamps)), "error dtype timestamps"),  # type: ignore[arg-type]
    "short": (moment, "error short timestamps"),
    "nan": (replace(good, proprio=changed(state, (3, 0), np.nan)), "error not-finite proprio"),
    "infinite": (replace(good, goal=single([np.inf, 0, 0])), "error not-finite goal"),
    "rate": (replace(good, fps=0.0), "error fps fps"),
    "order": (replace(good, timestamps=np.maximum(good.timestamps, 0.3)), "error time-order timestamps"),
    "slow": (replace(good, fps=0.1, timestamps=times * 100), "warning fps-odd fps"),
    "milliseconds": (replace(good, timestamps=times * 1000), "error fps-differs timestamps"),
    "gap": (replace(good, timestamps=good.timestamps + (np.arange(N) > 9)), "warning time-gap timestamps"),
    "count": (replace(good, images={"top": [image()] * (N - 1)}), "error image-count image:top"),
    "grey": (replace(good, images={"top": [image()[:, :, 0]] * N}), "error image-shape image:top"),
    "float": (replace(good, images={"top": [image() / 255] * N}), "error image-shape image:top"),  # type: ignore[list-item]
    "damaged": (replace(good, images={"top": Broken()}), "error image-damaged image:top"),
    "no words": (replace(good, task="  "), "warning task-empty task"),
    "still": (replace(both(good, state * 0 + 3), objects={}), "error still proprio"),
    "still robot": (both(good, state * 0 + 3), "warning still-robot proprio"),
    "constant": (both(good, changed(joints, (slice(None), 4), 0.5)), "warning constant proprio"),
    "repeats": (both(good, np.column_stack([joints, joints[:, 2]])), "warning repeats proprio"),
    "command": (replace(good, actions=state), "warning action-is-state action"),
    "larger": (replace(good, actions=following(state) * 100 + single(noise)), "warning scale action"),
    "millimetres": (replace(good, proprio=state * 1000), "warning scale action"),
    "unlike": (replace(good, actions=single(path_of(N, 9, 2) * 400)), "warning scale action"),
    "degrees": (replace(good, actions=np.rad2deg(following(state))), "warning degrees action"),
    "radians": (replace(good, proprio=np.rad2deg(state)), "warning degrees action"),
    "object degrees": (replace(good, objects=degrees), "warning degrees object:block"),
    "deltas": (replace(good, actions=single(step)), "warning deltas action"),
    "scaled deltas": (replace(good, actions=single(20 * step)), "warning deltas action"),
    "gripper": (both(arms, arms.proprio * ([1] * 9 + [85] + [1] * 10)), "error gripper proprio"),
    "rotation": (both(arms, arms.proprio * ([1] * 3 + [1.1] * 6 + [1] * 11)), "error rotation proprio"),
    "one arm": (both(arms, np.column_stack([arms.proprio[:, :10]] * 2)), "warning repeats proprio"),
    "idle arm": (both(arms, np.column_stack([arms.proprio[:, :10], idle])), "warning constant proprio"),
    "wide": (both(good, path_of(N, 3, 300)), "warning wide proprio"),
    "quaternion": (both(good, poses(N)), "warning quaternion proprio"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_fault_has_its_finding_and_no_other(name: str) -> None:
    episode, expected = CASES[name]
    findings = check_episode(episode)
    assert expected in [f"{f.severity} {f.code} {f.where}" for f in findings]
    # Only this fault is found. It may show in both state and action.
    assert {f.code for f in findings} == {expected.split()[1]}
    for finding in findings:
        assert "\n" not in str(finding)
        assert str(finding).startswith(f"{finding.severity}: {finding.where}: ")


def test_ten_joints_are_not_mistaken_for_a_pose() -> None:
    assert check_episode(both(good, path_of(N, 5, 10) * 3)) == []


def test_a_straight_path_is_not_a_repeated_channel() -> None:
    s = np.sin(np.linspace(0, 1.5, N))[:, None]
    assert check_episode(both(good, 0.3 + s * [1.0, 2.0])) == []


def test_equal_findings_are_counted_in_one_line() -> None:
    episodes = [replace(plain(i), task="" if i % 2 else "push") for i in range(6)]
    findings = check_dataset(episodes)
    assert [(f.code, f.count, f.example) for f in findings] == [("task-empty", 3, "demo-1")]
    assert "(3 episodes, first 'demo-1')" in str(findings[0])


def test_errors_are_listed_before_warnings() -> None:
    findings = check_dataset([replace(plain(), task=""), replace(plain(1), fps=0.0)])
    assert [f.severity for f in findings][:2] == ["error", "warning"]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (both(plain(1), path_of(N, 8, 3)), ["error differs proprio", "error differs action"]),
        (replace(plain(1), fps=20.0, timestamps=np.arange(N) / 20), ["warning differs fps"]),
        (replace(plain(1), images={}), ["warning differs image"]),
        (replace(plain(1), objects={}), ["warning differs object"]),
        (replace(plain(1), embodiment="triangle"), ["warning differs embodiment"]),
        (replace(plain(1), id="demo-0"), ["error id-repeats id"]),
        (replace(plain(0), id="demo-1"), ["warning copy source"]),
        (plain(1), []),
    ],
)
def test_differences_between_demonstrations_are_found(other: Episode, expected: list[str]) -> None:
    assert [f"{f.severity} {f.code} {f.where}" for f in check_dataset([plain(0), other])] == expected


def test_an_empty_dataset_is_a_finding() -> None:
    assert [f.code for f in check_dataset([])] == ["empty"]


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 5), st.integers(0, 12))
def test_the_checks_accept_any_numbers(seed: int, p: int, a: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    pick = np.array([0, 1, -1, 1e30, -1e-30, np.nan, np.inf])
    episode = replace(
        good,
        timestamps=rng.choice(pick[:4], n).astype(np.float64).cumsum(),
        proprio=single(rng.choice(pick, (n, p))),
        actions=single(rng.choice(pick[:5], (n, a))),
        objects={},
        images={},
    )
    check_dataset([episode, episode])
