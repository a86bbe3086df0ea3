"""`recap check` on data with a known result."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from recap.body import Feature, arm_features
from recap.cli.check import check as command
from recap.errors import DatasetError, InputError
from recap.pool.memory import MemoryPool
from recap.pool.opening import open_demonstrations
from recap.pool.packed import write_packed
from recap.pool.store import Pool
from recap.pool.view import PoolView
from recap.robot import CameraSpec, ObjectSpec, RobotSpec, difference, load_robot
from recap.suites import suites
from recap.training.check import Check, _verdict, check_pool, choose_retrieval
from recap.training.residuals import HorizonRow
from recap.types import Episode
from recap_worlds.pusht.robot import PUSHT

N_STEPS = 60


def walk(name: str, seed: int, noise: float = 0.0, scene: str | None = None) -> Episode:
    """An arm with three joints on a smooth random path, with noise."""
    rng = np.random.default_rng(seed)
    time = np.arange(N_STEPS + 1)[:, None]
    way = np.sin(time / 9 + rng.uniform(0, 6, 3)) * rng.uniform(0.5, 1.5, 3)
    way += noise * np.random.default_rng(seed + 1000).normal(size=way.shape)
    return Episode(
        id=name,
        scene_id=scene or name,
        task="sway",
        embodiment="arm",
        fps=10.0,
        timestamps=np.arange(N_STEPS) / 10,
        proprio=way[:-1].astype(np.float32),
        actions=way[1:].astype(np.float32),
    )


def view(*episodes: Episode) -> PoolView:
    return MemoryPool(episodes).view()


BLIND = ("proprio", "history", "language", "time")
EVERY_SCENE = '{"name": "all", "n_candidates": 1000, "weights": {"path": 0}, "scene_weights": {"path": 0}}'


def gate(
    target: PoolView, pool: PoolView, horizons: tuple[int, ...] = (1, 4, 8), retrieval: str | None = None
) -> Check:
    return check_pool(target, pool, horizons=horizons, n_moments=200, retrieval=retrieval)


def test_a_pool_with_the_same_motions_holds_at_every_horizon() -> None:
    target = view(*(walk(f"t{i}", i) for i in range(6)))
    pool = view(*(walk(f"p{i}", i, noise=0.001) for i in range(6)))
    found = gate(target, pool)
    assert found.verdict.startswith("holds")
    assert found.chunk_size == 8
    assert found.still == "where it is"
    assert found.retrieval == "world"
    for row in found.rows:
        assert row.ratio < 0.05
        assert row.perfect <= row.corrected + 1e-6
        assert row.low <= row.corrected_ratio <= row.high
    assert found.misaligned == []


def test_a_pool_with_unrelated_actions_does_not_hold() -> None:
    target = view(*(walk(f"t{i}", i) for i in range(6)))
    rng = np.random.default_rng(7)
    strange = [
        replace(e, actions=rng.normal(0, 2, e.actions.shape).astype(np.float32))
        for e in (walk(f"p{i}", 50 + i) for i in range(6))
    ]
    found = gate(target, view(*strange))
    assert found.verdict.startswith("does not hold")
    assert all(row.corrected_ratio > 1 for row in found.rows)


def snippets(episode: Episode) -> list[Episode]:
    """For each frame a demonstration that equals the episode for 8 steps and then differs."""
    found = []
    for t in range(N_STEPS):
        ahead = np.minimum(t + np.arange(16), N_STEPS - 1)
        actions = episode.actions[ahead] + np.float32(0.01)
        actions[8:] += 3
        elsewhere = np.full((16, 3), 50, np.float32)
        elsewhere[0] = episode.proprio[t]
        name, times = f"{episode.id}-{t}", episode.timestamps[:16]
        found.append(
            replace(episode, id=name, scene_id=name, timestamps=times, proprio=elsewhere, actions=actions)
        )
    return found


def test_the_recommended_chunk_size_ends_before_the_pool_differs() -> None:
    target = [walk(f"t{i}", i) for i in range(2)]
    pool = view(*(part for episode in target for part in snippets(episode)))
    found = gate(view(*target), pool, (1, 2, 4, 8, 12, 16), EVERY_SCENE)
    assert found.chunk_size == 8
    assert found.best.residual == pytest.approx(0.01, abs=0.003)
    assert found.rows[-1].residual > 1


def test_demonstrations_of_the_same_scene_count_for_training_but_not_for_the_check() -> None:
    target = view(*(walk(f"t{i}", i, scene=f"s{i}") for i in range(4)))
    pool = view(*(walk(f"p{i}", i, noise=0.001, scene=f"s{i}") for i in range(4)))
    row = gate(target, pool).rows[-1]
    assert row.paired < 0.1 * row.corrected


def test_misaligned_pairs_are_listed_worst_first() -> None:
    target = [walk(f"t{i}", i) for i in range(12)]
    target[7] = replace(target[7], actions=target[7].actions[::-1].copy())  # recorded backwards
    pool = view(*(walk(f"p{i}", i, noise=0.02) for i in range(12)))
    found = gate(view(*target), pool)
    assert found.misaligned == ["t7"]
    assert found.pairs[0].episode_id == "t7"
    ranked = [pair.residual for pair in found.pairs]
    assert ranked == sorted(ranked, reverse=True)
    assert found.to_json()["misaligned"] == ["t7"]


def test_actions_that_are_differences_are_compared_with_no_action() -> None:
    def steps(name: str, seed: int) -> Episode:
        one = walk(name, seed)
        jumps = np.random.default_rng(seed).normal(0, 1, one.actions.shape)
        return replace(one, actions=jumps.astype(np.float32), proprio=one.proprio + 10)

    found = gate(view(*(steps(f"t{i}", i) for i in range(3))), view(*(steps(f"p{i}", i) for i in range(3))))
    assert found.still == "no action"
    assert found.rows[0].still == pytest.approx(1.0, abs=0.15)


def test_incomparable_target_and_pool_are_errors() -> None:
    one = walk("t", 0)
    with pytest.raises(InputError, match="action space"):
        gate(view(one), view(replace(walk("p", 1), actions=one.actions[:, :2])))
    with pytest.raises(InputError, match="proprioception"):
        gate(view(one), view(replace(walk("p", 1), proprio=one.proprio[:, :2])))
    with pytest.raises(InputError, match="holds no demonstrations"):
        gate(view(one), view())
    with pytest.raises(InputError, match="own scene"):
        gate(view(one, walk("s", 2)), view(replace(walk("p", 1), scene_id="t")))
    with pytest.raises(InputError, match="target holds one demonstration"):
        gate(view(one), view(walk("p", 1)))


def pictured(name: str, seed: int, scene: str | None = None) -> Episode:
    """Images with a bright spot at the arm's next position, and constant proprioception."""
    one = walk(name, seed, scene=scene)
    frames = np.zeros((N_STEPS, 32, 32, 3), np.uint8)
    spots = np.clip(16 + 8 * one.actions[:, :2], 2, 29).astype(int)
    for t, (x, y) in enumerate(spots):
        frames[t, y - 2 : y + 3, x - 2 : x + 3] = 255
    return replace(one, images={"top": frames}, proprio=np.zeros_like(one.proprio))


def test_images_are_compared_where_no_object_poses_are_known() -> None:
    def found(camera: str) -> Check:
        target = [pictured(f"t{i}", i) for i in range(4)]
        pool = [pictured(f"p{i}", i) for i in range(4)]
        pool = [replace(one, images={camera: one.images["top"]}) for one in pool]
        return gate(view(*target), view(*pool))

    seen, blind = found("top"), found("elsewhere")
    assert seen.compared == (*BLIND, "image/top")
    assert blind.compared == BLIND
    assert seen.best.corrected < 0.5 * blind.best.corrected


def test_perfect_retrieval_is_a_lower_bound_and_the_number_of_moments_matters_little() -> None:
    target = view(*(walk(f"t{i}", i) for i in range(6)))
    pool = view(*(walk(f"p{i}", 20 + i) for i in range(6)))
    few, many = (check_pool(target, pool, horizons=(1, 8), n_moments=n) for n in (24, 200))
    for row in (*few.rows, *many.rows):
        assert row.perfect <= row.corrected + 1e-6
    assert few.rows[1].corrected_ratio == pytest.approx(many.rows[1].corrected_ratio, rel=0.2)


def test_paired_episodes_are_counted_by_scene(tmp_path: Path) -> None:
    target = [walk(f"t{i}", i, scene=f"s{i}") for i in range(6)]
    assert gate(view(*target), view(*(walk(f"p{i}", i, scene=f"s{i + 1}") for i in range(6)))).n_paired == 5
    files = [str(tmp_path / f"{name}.safetensors") for name in ("target", "pool")]
    write_packed(view(*target), Path(files[0]))
    write_packed(view(*(walk(f"p{i}", i) for i in range(6))), Path(files[1]))
    told = CliRunner().invoke(command, [*files, "--horizons", "4"], standalone_mode=False).output
    assert "6 in the pool, 0 paired by scene" in told
    assert "Nothing is paired: no scene is on both sides" in told
    assert "Moments are compared by: proprio, history, language, time." in told
    assert "No object pose or shared camera" in told


def test_a_folder_of_unknown_format_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear", "utf-8")
    with pytest.raises(DatasetError, match="is of no known format"):
        open_demonstrations(str(tmp_path))


def test_recap_check_reads_files_and_prints_text_or_json(tmp_path: Path) -> None:
    for name, first in (("target", 0), ("pool", 0)):
        episodes = [walk(f"{name}{i}", first + i, noise=0.001 * (name == "pool")) for i in range(6)]
        write_packed(view(*episodes), tmp_path / f"{name}.safetensors")
    files = [str(tmp_path / f"{name}.safetensors") for name in ("target", "pool")]
    assert open_demonstrations(files[0]).episode_ids == tuple(f"target{i}" for i in range(6))
    result = CliRunner().invoke(
        command,
        [*files, "--horizons", "1,4", "--moments", "40"],
        standalone_mode=False,
    )
    assert result.return_value == 0, result.output
    assert "Verdict: holds" in result.output
    assert "Recommended chunk_size: 4" in result.output
    printed = CliRunner().invoke(command, [*files, "--horizons", "1,4", "--moments", "40", "--json"])
    body = json.loads(printed.stdout)
    assert (body["kind"], body["retrieval"], body["chunk_size"]) == ("check", "world", 4)
    assert shlex.split(body["command"])[:4] == ["recap", "check", *files]


@pytest.mark.parametrize(
    ("low", "high", "ratio_high", "verdict"),
    [
        (0.4, 0.6, 0.7, "holds"),
        (0.7, 0.92, 0.7, "unclear"),  # 0.8 is good, but its interval includes weak values
        (0.4, 0.6, 1.3, "unclear"),
        (0.85, 1.2, 1.3, "unclear"),
        (0.95, 1.2, 0.7, "does not hold"),
    ],
)
def test_the_verdict_depends_on_the_intervals(
    low: float, high: float, ratio_high: float, verdict: str
) -> None:
    row = HorizonRow(8, 1.0, 0.6, 0.5, 0.4, 0.1, 0.6, (low + high) / 2, low, high, 0.3, ratio_high)
    assert _verdict(row, 20).partition(":")[0] == verdict


def test_fewer_than_five_demonstrations_give_an_unclear_verdict() -> None:
    row = HorizonRow(8, 1.0, 0.6, 0.5, 0.4, 0.1, 0.6, 0.5, 0.4, 0.6, 0.5, 0.7)
    assert [_verdict(row, n).partition(":")[0] for n in (4, 5)] == ["unclear", "holds"]


def test_the_suggested_next_command_fits_the_robot(tmp_path: Path) -> None:
    files = [str(tmp_path / f"{name}.safetensors") for name in ("target", "pool")]
    for file in files:
        write_packed(view(*(walk(f"{Path(file).stem}{i}", i) for i in range(6))), Path(file))
    told = CliRunner().invoke(command, [*files, "--horizons", "4"], standalone_mode=False).output
    assert "recap train" not in told.splitlines()[-1], "there are neither images nor objects to train from"
    for file in files:
        episodes = [pictured(f"{Path(file).stem}{i}", i) for i in range(6)]
        write_packed(view(*episodes), Path(file))
    told = CliRunner().invoke(command, [*files, "--horizons", "4"], standalone_mode=False).output
    wanted = f"recap train robot.yaml --size small --target {files[0]} --pool {files[1]}"
    assert told.splitlines()[-1].endswith(f"{wanted} --set policy.chunk_size=4 --set policy.n_action_steps=4")
    known = (
        CliRunner()
        .invoke(
            command,
            ["pusht-triangle", "pusht-9x100", "--horizons", "8", "--moments", "8"],
            standalone_mode=False,
        )
        .output
    )
    wanted = "recap train pusht-small --target pusht-triangle --pool pusht-9x100 --set policy.chunk_size=8"
    assert known.splitlines()[-1].endswith(wanted)


def test_the_next_command_uses_the_pools_own_robot_description(tmp_path: Path) -> None:
    tool = arm_features("tool")
    robot = RobotSpec("arm", 10.0, tool, tool, cameras={"top": CameraSpec((16, 16))})
    recipes = [config for suite in suites().values() for config in suite.training_presets().values()]
    assert any(difference(config.policy.robot, robot) is None for config in recipes)
    still = np.tile(np.array([1, 0, 0, 0, 1, 0, 1], np.float32), (N_STEPS, 1))
    for name in ("target", "pool"):
        seeds = [(i + (name == "pool")) % 6 for i in range(6)]  # a pair differs, another is the same
        seen = [(walk(f"{name}{i}", k), pictured("", k).images) for i, k in enumerate(seeds)]
        episodes = [
            replace(
                e,
                proprio=np.hstack([e.proprio, still]),
                actions=np.hstack([e.actions, still]),
                images=images,
            )
            for e, images in seen
        ]
        Pool.create(str(tmp_path / name), robot=robot).add(episodes)
    words = [str(tmp_path / "target"), str(tmp_path / "pool"), "--horizons", "4", "--pair-by", "order"]
    told = CliRunner().invoke(command, words, standalone_mode=False).output.splitlines()[-1]
    own = tmp_path / "target/robot.json"
    assert told.startswith(f"Next: recap train {own} --size small --target {words[0]} --pool {words[1]} ")
    assert told.endswith(" --pair-by order")
    assert load_robot(own) == robot


def test_joints_of_different_arms_are_warned_about_and_the_next_command_is_recap_init(tmp_path: Path) -> None:
    joints = tuple(Feature(name, "joint", unit="rad") for name in ("pan", "lift", "bend"))
    robot = RobotSpec("arm", 10.0, joints, joints, objects={"cup": ObjectSpec("box")})
    places = [str(tmp_path / name) for name in ("target", "pool", "same")]
    for place, embodiment in zip(places, ("arm", "longer", "arm"), strict=True):
        episodes = [walk(f"{Path(place).name}{i}", i) for i in range(4)]
        Pool.create(place, robot=robot).add([replace(e, embodiment=embodiment) for e in episodes])
    told = [
        CliRunner().invoke(command, [places[0], other, "--horizons", "4"], standalone_mode=False).output
        for other in places[1:]
    ]
    assert "Joints of different arms are compared ('arm' and 'longer')" in told[0]
    assert told[0].splitlines()[-1].startswith("Next: recap init DATASET --model FILE --tip NAME")
    assert "different arms" not in told[1]
    assert "recap init" not in told[1].splitlines()[-1]


def test_a_suite_chooses_the_retrieval_of_its_own_data() -> None:
    target, pool = (open_demonstrations(name) for name in ("pusht-triangle", "pusht-9x100"))
    first, shown = (found.episode(found.episode_ids[0]) for found in (target, pool))
    assert choose_retrieval(first, shown, PUSHT)[1].name == "pusht-object"
    describer, config = choose_retrieval(first, replace(shown, goal=None), PUSHT)
    assert config.name == "world"
    assert "object/block" in describer.terms


def test_demonstrations_that_retrieval_cannot_use_are_left_out() -> None:
    target = [walk(f"t{i}", i) for i in range(6)]
    pool = [walk(f"p{i}", i, noise=0.001) for i in range(6)]
    odd = walk("odd", 9)
    found = gate(view(*target), view(pool[0], replace(odd, proprio=odd.proprio[:, :2]), *pool[1:]))
    assert found.verdict.startswith("holds")
    assert {pair.matched_id for pair in found.pairs} == {f"p{i}" for i in range(6)}


def test_a_gripper_does_not_outweigh_positions_in_metres() -> None:
    features = (Feature("tool.position", "position", 3), Feature("gripper", "gripper"))
    robot = RobotSpec("arm", 10.0, features, features, objects={"cup": ObjectSpec("box")})
    closing = (np.arange(N_STEPS + 1) // 5 % 2)[:, None].astype(np.float32)  # the same in every demonstration

    def arm(name: str, seed: int, other: int) -> Episode:
        """An arm that moves by centimetres, with the actions of another demonstration."""
        one, way = walk(name, seed), walk(name, other)
        proprio, actions = (
            np.hstack([0.05 * one.proprio, closing[:-1]]),
            np.hstack([0.05 * way.actions, closing[1:]]),
        )
        return replace(one, proprio=proprio.astype(np.float32), actions=actions.astype(np.float32))

    target = view(*(arm(f"t{i}", i, i) for i in range(6)))
    right, wrong = (view(*(arm(f"p{i}", i, i + shift) for i in range(6))) for shift in (0, 40))
    found = [check_pool(target, pool, robot=robot, horizons=(8,), n_moments=200) for pool in (right, wrong)]
    assert [check.verdict.partition(":")[0] for check in found] == ["holds", "does not hold"]
    assert found[0].unit == "deviations of each kind of number"


def test_a_small_tilt_in_the_pool_does_not_change_the_verdict() -> None:
    tool = arm_features("tool")
    robot = RobotSpec("arm", 10.0, tool, tool, objects={"cup": ObjectSpec("box")})
    level = np.array([1, 0, 0, 0, 1, 0], np.float32)

    def arm(name: str, seed: int, tilt: float) -> Episode:
        one, wobble = walk(name, seed), tilt * np.random.default_rng(seed).normal(size=(N_STEPS, 6))
        rest = np.hstack([level + wobble, np.ones((N_STEPS, 1))])
        states = (np.hstack([0.05 * x, rest]).astype(np.float32) for x in (one.proprio, one.actions))
        return replace(one, **dict(zip(("proprio", "actions"), states, strict=True)))

    target, pool = (view(*(arm(f"{tilt}-{i}", i, tilt) for i in range(6))) for tilt in (1e-4, 0.01))
    found = check_pool(target, pool, robot=robot, horizons=(8,), n_moments=200)
    assert found.verdict.startswith("holds")
