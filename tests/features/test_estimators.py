"""Object poses estimated from images: AprilTags at known poses, in demonstrations and in queries."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from recap.body import arm_features
from recap.errors import InputError
from recap.features.estimators import AprilTag, estimator_of, prepared, with_poses
from recap.geometry3 import quaternion_to_matrix
from recap.robot import CameraSpec, ObjectSpec, RobotSpec
from recap.types import F64, U8, Episode, Observation

SIZE = 0.05  # m
MATRIX = np.array([[600.0, 0, 320], [0, 600, 240], [0, 0, 1]])
WORDS = ["camera=front", "id=7", f"size={SIZE}", "intrinsics=600,600,320,240"]
DOWN = "at=0,0,0.8,0,1,0,0"  # a camera 0.8 m above the table, looking down


def picture(turn: F64, place: F64, number: int = 7) -> U8:
    """A 640 by 480 image of a tag with a white margin, at a pose in the camera's frame."""
    cells, margin = 200, 50
    tag = cv2.aruco.generateImageMarker(
        cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_APRILTAG_36h11), number, cells
    )
    sheet = cv2.copyMakeBorder(tag, *4 * [margin], cv2.BORDER_CONSTANT, value=255)
    half = SIZE / 2 * (1 + 2 * margin / cells)
    corners = half * np.array([(-1, 1, 0), (1, 1, 0), (1, -1, 0), (-1, -1, 0)], np.float64)
    seen, _ = cv2.projectPoints(corners, cv2.Rodrigues(turn)[0], place, MATRIX, None)
    n = len(sheet)
    flat = np.array([(0, 0), (n, 0), (n, n), (0, n)], np.float32)
    way = cv2.getPerspectiveTransform(flat, seen.reshape(4, 2).astype(np.float32))
    grey = cv2.warpPerspective(sheet, way, (640, 480), flags=cv2.INTER_AREA, borderValue=128)
    return np.repeat(grey[..., None], 3, axis=2)


def facing(degrees: float) -> F64:
    """The rotation of a tag that faces the camera, turned about its own axis."""
    angle = np.deg2rad(degrees)
    about = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    turned: F64 = np.diag([1.0, -1.0, -1.0]) @ about
    return turned


@pytest.mark.parametrize("degrees", [0.0, 35.0, 120.0])
@pytest.mark.parametrize("tilt", [0.0, 25.0])
def test_a_tag_is_found_to_a_millimetre_and_a_degree(degrees: float, tilt: float) -> None:
    turn = cv2.Rodrigues(np.deg2rad([tilt, 0, 0]))[0] @ facing(degrees)
    place = np.array([0.04, -0.03, 0.5])
    found = AprilTag("cup", ObjectSpec("pose3"), WORDS).find({"front": picture(turn, place)})
    assert found is not None
    assert np.abs(found[:3] - place).max() < 0.001
    apart = quaternion_to_matrix(found[3:]).T @ turn
    off = np.rad2deg(np.arccos(np.clip((np.trace(apart) - 1) / 2, -1, 1)))
    assert off < (1 if tilt else 15), "a tag seen head-on has two similar tilts"


def test_with_the_cameras_pose_a_tags_pose_is_in_the_world_frame() -> None:
    image = picture(facing(30), np.array([0.1, 0.05, 0.8]))
    flat = AprilTag("cup", ObjectSpec("pose2"), [*WORDS, DOWN]).find({"front": image})
    assert flat is not None
    assert flat == pytest.approx([0.1, -0.05, np.deg2rad(30)], abs=0.01)
    space = AprilTag("cup", ObjectSpec("pose3"), [*WORDS, DOWN]).find({"front": image})
    assert space is not None
    assert abs(space[2]) < 0.01, "on the table"


def test_a_bounding_box_needs_no_calibration() -> None:
    found = AprilTag("cup", ObjectSpec("box"), WORDS[:2]).find(
        {"front": picture(facing(0), np.array([0, 0, 0.5]))}
    )
    assert found == pytest.approx([320, 240, 60, 60], abs=1.5)


def test_a_tag_that_is_not_visible_gives_none() -> None:
    finder = AprilTag("cup", ObjectSpec("pose3"), WORDS)
    assert finder.find({"front": np.full((480, 640, 3), 128, np.uint8)}) is None
    assert finder.find({"front": picture(facing(0), np.array([0, 0, 0.5]), number=8)}) is None
    assert finder.find({}) is None


ROBOT = RobotSpec(
    "arm",
    30.0,
    arm_features("tool"),
    cameras={"front": CameraSpec()},
    objects={"cup": ObjectSpec("pose3", source=f"apriltag {' '.join(WORDS)}")},
)


def test_demonstrations_and_queries_get_the_same_poses() -> None:
    places = [np.array([0.01 * t, 0.0, 0.5]) for t in range(4)]
    frames = [np.full((480, 640, 3), 128, np.uint8), *(picture(facing(0), p) for p in places[1:3])]
    frames.append(frames[0])  # hidden again
    state = np.zeros((4, 10), np.float32)
    episode = Episode(
        "e", "s", "lift", "arm", 30.0, np.arange(4) / 30, state, state, images={"front": np.stack(frames)}
    )
    transform = prepared(ROBOT)
    assert transform is not None
    poses = transform(episode).objects["cup"]
    assert poses[:, 0] == pytest.approx([0.01, 0.01, 0.02, 0.02], abs=0.002), (
        "while hidden, the last seen pose"
    )
    estimator = estimator_of(ROBOT)
    assert estimator is not None
    seen = estimator.estimate(Observation(state[0], "lift", 0.0, {"front": frames[2]}))
    assert seen.objects["cup"] == pytest.approx(poses[2], abs=1e-6)
    recorded = replace(episode, objects={"cup": np.ones((4, 7), np.float32)})
    assert with_poses(recorded, ROBOT) is recorded


def test_recorded_objects_need_no_estimator() -> None:
    plain = replace(ROBOT, objects={"cup": ObjectSpec()})
    assert estimator_of(plain) is None
    assert prepared(plain) is None


@pytest.mark.parametrize(
    ("kind", "source", "named"),
    [
        ("pose3", "apritag camera=front", "apritag"),
        ("pose3", "apriltag camera=front id=7 size=0.05", "intrinsics"),
        ("pose2", f"apriltag {' '.join(WORDS)}", "at"),
        ("pose3", "apriltag camera=front id=seven", "id"),
        ("pose3", "apriltag colour=red", "colour"),
        ("pose3", "sam3 camera=front model=m phrase=cup", "box"),
    ],
)
def test_an_invalid_source_is_an_error_that_names_the_mistake(kind: str, source: str, named: str) -> None:
    robot = replace(ROBOT, objects={"cup": ObjectSpec(kind, source=source)})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=named):
        estimator_of(robot)
