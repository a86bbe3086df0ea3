"""Shifts of objects, found in images of calibrated cameras, on drawn scenes with known shifts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recap.errors import InputError
from recap.retrieval.registration import (
    Camera,
    View,
    _smooth,
    camera_at,
    carried_shifts,
    key_rows,
    refuse_uncalibrated,
    shift_between,
    views_of,
)
from recap.robot import CameraSpec, RobotSpec, arm_features
from recap.types import F32, F64, U8, Moment

ONE_ARM = RobotSpec("arm", 20.0, arm_features("tool"), cameras={"front": CameraSpec()})
PX = 96
RADIUS = 0.03  # m, of the disc on the table
HALF = PX / 2 - 0.5


def looking_down(x: float) -> Camera:
    """A camera 1 m above the table that looks straight down."""
    tilt = np.array([[1, 0, 0], [0, -1, 0], [0, 0, -1]], np.float64)  # image y is the table's -y
    return Camera(np.array([x, 0.0, 1.0]), tilt, (150.0, 150.0, HALF, HALF))


CAMERAS = (looking_down(0.0), looking_down(0.15))


def drawn(camera: Camera, thing: F64, colour: float = 1.0) -> U8:
    """A table with a fine pattern, and on it a striped disc at (x, y)."""
    rows, columns = np.mgrid[:PX, :PX]
    fx, fy, cx, cy = camera.lens
    rays = np.stack([(columns - cx) / fx, (rows - cy) / fy, np.ones((PX, PX))], -1) @ camera.turn.T
    ground = camera.position + rays * (-camera.position[2] / rays[..., 2:])
    x, y = ground[..., 0], ground[..., 1]
    table = 0.5 + 0.05 * np.sin(90 * x) * np.sin(70 * y)
    image = np.stack([table, table, table], -1)
    inside = np.hypot(x - thing[0], y - thing[1]) < RADIUS
    stripes = (np.sin(150 * (x - thing[0])) > 0).astype(np.float64)
    image[inside] = np.stack([0.9 * stripes, 0.2 * stripes, 0.8 * colour * (1 - stripes)], -1)[inside]
    return np.round(255 * image).astype(np.uint8)


def as_filmed(picture: U8) -> U8:
    """The image with chroma at half resolution, as in compressed videos."""
    import cv2

    luma, *chroma = cv2.split(cv2.cvtColor(picture, cv2.COLOR_RGB2YCrCb))
    coarse = [cv2.resize(cv2.resize(c, (PX // 2, PX // 2), interpolation=3), (PX, PX)) for c in chroma]
    return np.asarray(cv2.cvtColor(cv2.merge([luma, *coarse]), cv2.COLOR_YCrCb2RGB))


def views(before: F64, now: F64, film: bool = False) -> list[View]:
    found = []
    for camera in CAMERAS:
        shown = drawn(camera, before)
        old: F32 = _smooth(as_filmed(shown) if film else shown)
        found.append(View(old, _smooth(drawn(camera, now)), camera, camera))
    return found


moves = st.tuples(st.floats(-0.1, 0.1), st.floats(-0.1, 0.1)).map(np.array)


@settings(max_examples=12, deadline=None)
@given(moves, st.booleans())
@example(np.array([0.00195, 0.0]), False)
@example(np.array([0.001, 0.001]), True)
def test_an_objects_shift_is_found_to_about_a_pixel(move: F64, film: bool) -> None:
    at = np.array([0.02, -0.03])
    found = shift_between(views(at, at + move, film), np.array([[*at, 0.04]]), 0.05, 0.2)
    assert np.linalg.norm(found - move) < 0.008  # a pixel is 6.7 mm, the finest step 2.5 mm


def test_unchanged_images_give_no_shift() -> None:
    at = np.array([0.02, -0.03])
    assert np.array_equal(shift_between(views(at, at), np.array([[*at, 0.04]]), 0.05, 0.2), [0, 0])


def test_movement_elsewhere_in_the_image_is_ignored() -> None:
    place = np.array([[-0.12, 0.1, 0.04]])
    assert np.array_equal(
        shift_between(views(np.array([0.1, -0.1]), np.array([0.15, -0.1])), place, 0.04, 0.2), [0, 0]
    )


def test_the_shift_is_found_in_images_of_different_sizes() -> None:
    lens = {"intrinsics": (150.0, 150.0, HALF, HALF), "at": (0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0)}
    robot = replace(ONE_ARM, cameras={"front": CameraSpec(size=(PX, PX), **lens)})
    at, now = np.array([0.02, -0.03]), np.array([0.07, 0.01])
    shown, seen = (drawn(CAMERAS[0], place) for place in (at, now))
    twice = np.repeat(np.repeat(seen, 2, axis=0), 2, axis=1)
    frames = [
        Moment("", np.zeros(1), np.zeros((1, 10), np.float32), images={"front": [one]})
        for one in (shown, twice)
    ]
    found = shift_between(views_of(*frames, robot, ["front"]), np.array([[*at, 0.0]]), 0.05, 0.2)
    assert np.linalg.norm(found - (now - at)) < 0.006


@given(st.lists(st.floats(-0.2, 0.2), min_size=3, max_size=3), st.integers(2, 4))
def test_camera_intrinsics_scale_with_the_image_size(point: list[float], factor: int) -> None:
    """A pixel of the smaller image is at the centre of the pixels it replaces."""
    spec = CameraSpec(
        size=(PX, 2 * PX), intrinsics=(80.0, 90.0, 95.0, 47.0), at=(0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0)
    )
    robot = replace(ONE_ARM, cameras={"scene": spec})
    proprio = np.zeros(robot.body.size, np.float32)
    whole, part = (
        camera_at("scene", robot, proprio, size) for size in ((PX, 2 * PX), (PX // factor, 2 * PX // factor))
    )
    where = np.array([point])
    assert np.allclose((whole.project(where)[0] + 0.5) / factor - 0.5, part.project(where)[0])


def test_an_uncalibrated_camera_is_an_error() -> None:
    name = next(iter(ONE_ARM.cameras))
    with pytest.raises(InputError, match=r"is not calibrated: give its intrinsics") as refused:
        refuse_uncalibrated(name, ONE_ARM)
    assert refused.value.code == "robot.camera"


def test_a_camera_mounted_on_no_tool_is_an_error() -> None:
    spec = CameraSpec(
        intrinsics=(80.0, 80.0, 48.0, 48.0), at=(0, 0, 0, 1, 0, 0, 0), tool=ONE_ARM.proprio[-1].name
    )
    robot: RobotSpec = replace(ONE_ARM, cameras={"wrist": spec})
    with pytest.raises(InputError, match="3-D position that a rotation6d follows"):
        refuse_uncalibrated("wrist", robot)


def test_key_rows_are_where_the_gripper_closes_and_opens() -> None:
    opening = np.concatenate([np.ones(20), np.linspace(1, 0, 6), np.zeros(24), np.ones(20)])
    assert key_rows(opening) == [21, 50]
    assert key_rows(np.ones(30)) == []


paths = st.lists(
    st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 1)), min_size=12, max_size=30
).map(np.array)


@given(paths, moves, moves)
def test_shifts_start_at_zero_and_reach_each_key_row_without_jumps(path: F64, first: F64, last: F64) -> None:
    keys = [len(path) // 2, len(path) - 1]
    shifts = carried_shifts(path, keys, np.array([first, last]))
    way = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
    if way[keys[0]] < 1e-3 or way[-1] - way[keys[0]] < 1e-3:
        return
    assert np.allclose(shifts[keys[0]], first)
    assert np.allclose(shifts[-1], last)
    if np.linalg.norm(first) > 1e-3:
        assert np.allclose(shifts[0], 0)
    steps = np.linalg.norm(np.diff(shifts, axis=0), axis=1)
    slope = max(
        np.linalg.norm(first) / min(np.linalg.norm(first) or 1, 0.8 * way[keys[0]]),
        np.linalg.norm(last - first) / (way[-1] - way[keys[0]]),
    )
    assert (steps <= slope * np.diff(way) + 1e-9).all()
