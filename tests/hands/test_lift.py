"""From landmarks to a demonstration: timestamps, gaps, files, the robot's reach and speed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hand_films import film
from made_hands import FRONT, SIDE, motion, seen_by

from jointed import HOME, arm
from recap.body import arm_features
from recap.errors import InputError
from recap.geometry3 import quaternion_to_matrix, rotation6_to_matrix
from recap.kinematics import joint_space
from recap.pool.importers import open_source
from recap.pool.importers.checks import check_dataset
from recap.robot import RobotSpec
from recap.types import F64, Episode
from recap_hands.landmarks import Landmarks
from recap_hands.lift import Lifted, LiftedHand, lift, poses_of, runs, stretched, write_demonstration
from recap_hands.robot_fit import out_of_reach, relative_speed
from recap_hands.settings import LiftSettings
from recap_hands.tool import PALM, ToolPath, tool_path


def found(n: int = 60, noise_px: float = 0.0) -> tuple[Landmarks, Landmarks]:
    times, points = motion(n)
    return (
        Landmarks(times, FRONT.size, {"right": seen_by(FRONT, points, noise_px)}),
        Landmarks(times, SIDE.size, {"left": seen_by(SIDE, points, noise_px, seed=1)}),  # wrong label
    )


def without(landmarks: Landmarks, frames: slice) -> Landmarks:
    (side, hand), *_ = landmarks.hands.items()
    pixels = hand.pixels.copy()
    pixels[frames] = np.nan
    return replace(landmarks, hands={side: replace(hand, pixels=pixels)})


def test_two_videos_give_one_demonstration_in_metres() -> None:
    lifted = lift(found(), [FRONT, SIDE], LiftSettings())
    truth = tool_path(motion(60)[1])
    hand = lifted.hands["right"]
    np.testing.assert_allclose(hand.path.position, truth.position, atol=1e-5)
    assert (lifted.fps, lifted.seen.all(), hand.quality.coverage) == (30, True, 1.0)
    assert (len(hand.quality.grasps_s), len(hand.quality.releases_s)) == (1, 1)
    assert set(np.unique(hand.gripper)) == {0.0, 1.0}
    free = lift(found(), [FRONT, SIDE], LiftSettings(gripper="opening")).hands["right"].gripper
    assert len(np.unique(free)) > 4


def test_a_written_demonstration_passes_the_import_checks(tmp_path: Path) -> None:
    lifted = lift(found()[:1], [FRONT], LiftSettings())
    write_demonstration(
        tmp_path / "takes/0", lifted, "lift it", film(tmp_path / "a.mp4", lifted.times), FRONT
    )
    source = open_source(tmp_path / "takes")
    episode = source[0]
    assert (episode.task, episode.fps, episode.embodiment, len(episode)) == ("lift it", 30, "hand", 60)
    np.testing.assert_allclose(episode.proprio[:, :3], lifted.hands["right"].path.position, atol=1e-5)
    assert len(episode.images["video"]) == 60
    assert not check_dataset(source)
    names = {file.name for file in (tmp_path / "takes/0").iterdir()}
    assert names == {"poses.npz", "video.mp4", "preview.mp4", "task.txt", "quality.json", "landmarks.npz"}
    assert json.loads((tmp_path / "takes/0/quality.json").read_text())["hands"]["right"]["coverage"] == 1
    with pytest.raises(InputError, match="there already"):
        write_demonstration(tmp_path / "takes/0", lifted, "lift it", None)


def test_a_gap_splits_the_demonstration_unless_it_is_bridged(tmp_path: Path) -> None:
    lifted = lift([without(found()[0], slice(20, 30))], [FRONT], LiftSettings())
    assert runs(lifted.seen) == [(0, 20), (30, 60)]
    assert np.isnan(poses_of(lifted)["xyz"][20:30]).all()
    assert lifted.hands["right"].quality.gaps_s == ((pytest.approx(20 / 30, abs=1e-3), 1.0),)
    write_demonstration(tmp_path / "take", lifted, "lift it", film(tmp_path / "a.mp4", lifted.times))
    first, second = open_source(tmp_path / "take")
    assert (first.id, second.id, first.scene_id, second.scene_id) == ("take/0", "take/1", "take", "take")
    assert (len(first), len(second)) == (20, 30)
    np.testing.assert_array_equal(second.actions[:-1], second.proprio[1:])
    brightness = [round(float(frame.mean())) for frame in second.images["video"]]
    assert abs(brightness[0] - 70) <= 4  # frame 30 of the video
    bridged = lift([without(found()[0], slice(20, 30))], [FRONT], LiftSettings(bridge=0.5))
    assert bridged.seen.all()
    assert bridged.hands["right"].quality.bridged_frames == 10
    assert bridged.hands["right"].quality.coverage == pytest.approx(50 / 60)


def test_a_variable_frame_rate_is_resampled_to_even_timestamps() -> None:
    times, points = motion(60)
    uneven = times + 0.008 * np.sin(np.arange(60))
    uneven -= uneven[0]
    smooth = np.stack(
        [np.interp(uneven, times, points[:, i, k]) for i in range(21) for k in range(3)], axis=1
    )
    film = Landmarks(uneven, FRONT.size, {"right": seen_by(FRONT, smooth.reshape(60, 21, 3))})
    lifted = lift([film], [FRONT], LiftSettings())
    np.testing.assert_allclose(np.diff(lifted.times), 1 / lifted.fps)
    expected = tool_path(points).position
    got = np.stack([np.interp(lifted.times, times, expected[:, k]) for k in range(3)], axis=1)
    assert np.nanmax(np.abs(lifted.hands["right"].path.position - got)) < 0.004


def test_a_wrong_calibration_is_refused() -> None:
    wide = replace(FRONT, intrinsics=(300.0, 300.0, *FRONT.intrinsics[2:]))
    moved = replace(SIDE, at=(*(np.array(SIDE.at[:3]) + 0.1), *SIDE.at[3:]))
    with pytest.raises(InputError) as error:
        lift(found(), [FRONT, moved], LiftSettings())
    assert error.value.code == "hands.quality"
    with pytest.raises(InputError, match="calibrat") as error:
        lift(found(), [wide, SIDE], LiftSettings())
    assert error.value.code == "hands.quality"
    with pytest.raises(InputError, match="turned by 90"):
        lift(found()[:1], [replace(FRONT, size=(640, 480))], LiftSettings())
    with pytest.raises(InputError, match="frames"):
        lift([Landmarks(np.arange(3) / 30, FRONT.size, found()[0].hands)], [FRONT], LiftSettings())


def test_tool_transform_and_speed_are_applied(tmp_path: Path) -> None:
    plain = lift(found()[:1], [FRONT], LiftSettings())
    tool = (0.0, 0.0, 0.1, 0.0, 1.0, 0.0, 0.0)
    moved = lift(found()[:1], [FRONT], LiftSettings(tool=tool)).hands["right"].path
    turn = quaternion_to_matrix(np.array(tool[3:]))
    np.testing.assert_allclose(moved.rotation, plain.hands["right"].path.rotation @ turn, atol=1e-9)
    slow = stretched(plain, 2.0)
    write_demonstration(tmp_path / "slow", slow, "lift it", film(tmp_path / "a.mp4", slow.times))
    episode = open_source(tmp_path / "slow")[0]
    assert (episode.fps, episode.attributes["speed"], len(episode.images["video"])) == (15, 2.0, 60)
    with pytest.raises(InputError, match="7 numbers"):
        lift(found()[:1], [FRONT], LiftSettings(tool=(1.0,)))


def shown_by(robot: RobotSpec, positions: F64) -> Episode:
    """A demonstration of the robot along the positions."""
    rows = np.zeros((len(positions), robot.body.size), np.float32)
    rows[:, :3] = positions
    times = np.arange(len(rows)) / 30
    return Episode("0", "0", "lift it", robot.name, 30.0, times, rows, rows)


def test_relative_speed_follows_from_the_robots_joint_speed_limits() -> None:
    """The hand moves along a path of robot joints at a known speed."""
    robot = replace(arm(), max_step={})
    space = joint_space(robot)
    assert space is not None
    joints = np.tile([*HOME, 1.0], (60, 1)).astype(np.float32)
    joints[:, 0] += np.arange(60) / 30 * 1.5  # rad/s, about the vertical
    rows = np.array([space.tool(row) for row in joints])
    seen = np.ones(60, bool)
    path = ToolPath(
        seen, rows[:, :3].astype(float), rotation6_to_matrix(rows[:, 3:9]), np.zeros(60), (0, 1), False
    )
    quality = lift(found()[:1], [FRONT], LiftSettings()).hands["right"].quality
    lifted = Lifted(np.arange(60) / 30, 30.0, 1.0, {"right": LiftedHand(path, np.ones(60), quality)}, ())
    assert robot.kinematics is not None
    for most, factor in ((0.5, 3.0), (3.0, 1.0)):
        slow = replace(robot, kinematics=replace(robot.kinematics, max_speed=most))
        assert relative_speed(lifted, slow) == (
            pytest.approx(factor, rel=0.02),
            "how fast the joints of 'arm' may be",
        )


def test_relative_speed_and_reach_follow_from_the_robots_description() -> None:
    lifted = lift(found()[:1], [FRONT], LiftSettings())
    features = arm_features("tool")
    quick = RobotSpec("arm", 10.0, features, max_step={"tool.position": 1.0})
    assert relative_speed(lifted, quick) == (1, "the largest step of 'tool.position'")
    assert relative_speed(lifted, replace(quick, max_step={})) is None
    assert out_of_reach(lifted, quick) == []
    slow = replace(quick, max_step={"tool.position": 0.001})
    assert (relative_speed(lifted, slow) or (0, ""))[0] > 5
    deltas = (replace(features[0], limits=(-0.001, 0.001)), *features[1:])
    assert relative_speed(lifted, replace(slow, max_step={}, action=deltas, action_mode="delta")) == (
        pytest.approx((relative_speed(lifted, slow) or (0, ""))[0]),
        "the limits of 'tool.position'",
    )
    truth = lifted.hands["right"].path.position
    # Demonstrations take precedence over limits: here the same path at half the rate.
    paired = replace(shown_by(quick, truth), fps=15.0)
    assert relative_speed(lifted, slow, [paired]) == (pytest.approx(2), "1 demonstrations of 'arm'")
    with pytest.raises(InputError, match="does not move"):
        relative_speed(lifted, slow, [shown_by(quick, np.tile(truth[:1], (60, 1)))])
    with pytest.raises(InputError, match="has 10 numbers, 'tool' has 3"):
        relative_speed(lifted, RobotSpec("tool", 10.0, features[:1]), [paired])
    low = replace(features[0], limits=((-1.0, -1.0, 0.0), (1.0, 1.0, float(np.median(truth[:, 2])))))
    lines = out_of_reach(lifted, RobotSpec("low", 10.0, (low, *features[1:])))
    assert lines
    assert "beyond the limits of 'tool.position' by up to" in lines[0]
    with pytest.raises(InputError, match="2 tools"):
        out_of_reach(lifted, RobotSpec("two", 10.0, (*arm_features("left"), *arm_features("right"))))


@pytest.mark.parametrize("late", [-0.4, 0.013, 0.75])
def test_videos_with_a_time_offset_are_synchronised(late: float) -> None:
    times, points = motion(120)
    later = np.stack(
        [np.interp(times - late, times, points[:, i, k]) for i in range(21) for k in range(3)], 1
    )
    films = (
        Landmarks(times, FRONT.size, {"right": seen_by(FRONT, points, 1.0)}),
        Landmarks(times, SIDE.size, {"right": seen_by(SIDE, later.reshape(120, 21, 3), 1.0, seed=1)}),
    )
    lifted = lift(films, [FRONT, SIDE], LiftSettings())
    assert lifted.offsets[1] == pytest.approx(late, abs=0.6 / 30)
    path, truth = lifted.hands["right"].path, tool_path(points)
    off = np.linalg.norm(path.position - truth.position, axis=1)[path.seen]
    assert np.median(off) < 0.004


def test_all_requested_hands_must_be_seen_by_all_cameras() -> None:
    front, side = found()
    (hand,) = front.hands.values()
    nothing = replace(hand, pixels=np.full_like(hand.pixels, np.nan))
    unseen = replace(side, hands={"right": nothing})
    for films, which, words in (
        ([front], "both", "a.mp4: no left hand is seen: film both"),
        ([replace(front, hands={"hand": hand})], "both", "a.mp4: no left hand is seen"),
        ([replace(front, hands={"left": hand, "right": nothing})], "both", "a.mp4: no right hand is seen"),
        ([front, unseen], "one", "b.mp4: no hand is seen: film it closer"),
        ([front, replace(side, hands={"left": hand})], "right", "b.mp4: no right hand is seen"),
        ([front, side], "both", "a.mp4: no left hand is seen"),
    ):
        with pytest.raises(InputError, match=words) as error:
            lift(
                films,
                [FRONT, SIDE][: len(films)],
                LiftSettings(hands=which),
                ["a.mp4", "b.mp4"][: len(films)],
            )  # type: ignore[arg-type]
        assert error.value.code == "hands.none"
    metric = replace(side, hands={"right": replace(nothing, points=np.zeros((60, 21, 3)))})
    with pytest.raises(InputError, match=r"b.mp4: several films need pixels"):
        lift([front, metric], [FRONT, SIDE], LiftSettings(), ["a.mp4", "b.mp4"])
    with pytest.raises(InputError, match="depth goes with one film"):
        lift([front, side], [FRONT, SIDE], LiftSettings(), depth=[])


def test_depth_is_taken_from_the_nearest_frame() -> None:
    """The hand comes nearer, so each depth image is right only for its own frame."""
    times, points = motion(60)
    kept = np.delete(np.arange(60), np.arange(10, 50, 3))
    here = FRONT.seen_from(points[kept])
    film = Landmarks(times[kept], FRONT.size, {"right": seen_by(FRONT, points[kept])})
    depth = [np.full(FRONT.size, float(hand[PALM, 2].mean())) for hand in here]
    lifted = lift(
        [film], [FRONT], LiftSettings(hand_size=0.11), depth=depth
    )  # the hand size is wrong, the depth is right
    path, truth = lifted.hands["right"].path, tool_path(points)
    off = np.linalg.norm(path.position - truth.position, axis=1)
    assert np.nanmax(off) < 0.04
    assert len(lifted.times) == 60


def test_a_hand_at_rest_gives_a_zero_time_offset() -> None:
    points = np.tile(motion(60)[1][:1], (60, 1, 1))
    films = [
        Landmarks(np.arange(60) / 30, c.size, {"right": seen_by(c, points, 1.0, seed=i)})
        for i, c in enumerate((FRONT, SIDE))
    ]
    assert lift(films, [FRONT, SIDE], LiftSettings()).offsets == (0.0, 0.0)
