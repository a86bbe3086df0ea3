"""Camera calibration on views with known ground truth."""

from __future__ import annotations

import re

import numpy as np
import pytest
from board_views import LENS, SIZE, poses, view
from made_hands import about

from recap.errors import InputError
from recap.types import F64
from recap_hands.board import PAGE, POINTS_A_METRE, Board
from recap_hands.calibrate import (
    Calibrated,
    board_in_camera,
    calibrate,
    drawn,
    find_views,
    hand_eye,
    standing_at,
)

BOARD = Board()


def apart(a: F64, b: F64) -> tuple[float, float]:
    """The distance in mm and the angle in degrees between poses (4, 4)."""
    cosine = (np.trace(a[:3, :3].T @ b[:3, :3]) - 1) / 2
    return 1000 * float(np.linalg.norm(a[:3, 3] - b[:3, 3])), float(
        np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    )


@pytest.fixture(scope="module")
def made() -> tuple[F64, Calibrated]:
    truth = poses(14)
    images = [(f"view {i}", view(i)) for i in range(14)]
    views = find_views(images, BOARD)
    assert len(views) == 14
    return truth, calibrate(views, SIZE)


def test_calibration_is_accurate_to_a_millimetre_and_a_third_of_a_degree(
    made: tuple[F64, Calibrated],
) -> None:
    truth, found = made
    errors = np.array([apart(a, b) for a, b in zip(truth, found.boards, strict=True)])
    print("board in camera, mm and degrees, median and worst:", np.median(errors, axis=0), errors.max(axis=0))
    assert np.median(errors, axis=0)[0] <= 1.0
    assert np.median(errors, axis=0)[1] <= 0.3
    assert found.camera.error_px < 0.5
    np.testing.assert_allclose(found.camera.intrinsics, LENS.intrinsics, atol=4)
    stands = standing_at(found.camera, np.linalg.inv(board_in_camera(found.camera, found.views[-1])))
    mm, degrees = apart(np.linalg.inv(truth[-1]), _pose(stands.rotation, stands.position))
    assert mm <= 1.5
    assert degrees <= 0.3


def _pose(turn: F64, shift: F64) -> F64:
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = turn, shift
    return out


@pytest.mark.parametrize("carries", ["board", "camera"])
def test_hand_eye_calibration_from_robot_poses(made: tuple[F64, Calibrated], carries: str) -> None:
    truth, found = made
    wanted = _pose(about([1, 2, 0.5], 2.0), np.array([0.4, -0.3, 0.8]))  # the camera's pose
    held = _pose(about([0, 1, 1], 0.4), np.array([0.02, 0.03, 0.1]))
    if carries == "board":  # tool = camera · board in camera · inverse of board in tool
        robot = np.stack([wanted @ pose @ np.linalg.inv(held) for pose in truth])
    else:  # tool = board in robot · inverse of board in camera · inverse of camera in tool
        robot = np.stack([held @ np.linalg.inv(pose) @ np.linalg.inv(wanted) for pose in truth])
    exact, far, turned = hand_eye(robot, truth, carries)
    assert max(apart(exact, wanted)) < 1e-3
    assert max(far, turned) < 1e-3
    seen, far, _ = hand_eye(robot, found.boards, carries)
    mm, degrees = apart(seen, wanted)
    print(f"hand-eye ({carries}): {mm:.2f} mm, {degrees:.3f} degrees; moves agree to {far:.2f} mm")
    assert mm <= 1.0
    assert degrees <= 0.3
    still = np.tile(robot[:1], (14, 1, 1))
    with pytest.raises(InputError, match="hardly turn") as error:
        hand_eye(still, np.tile(truth[:1], (14, 1, 1)), carries)
    assert error.value.code == "calibrate.robot"


def test_too_few_or_inconsistent_views_are_refused(made: tuple[F64, Calibrated]) -> None:
    _, found = made
    with pytest.raises(InputError, match="seen in 3 images"):
        calibrate(found.views[:3], SIZE)
    assert not find_views([("grey", np.full((480, 640, 3), 128, np.uint8))], BOARD)
    scrambled = [type(v)(v.name, v.corners[::-1], v.pixels) for v in found.views[:3]] + list(found.views[3:])
    with pytest.raises(InputError, match="px off") as error:
        calibrate(scrambled, SIZE)
    assert error.value.code == "calibrate.error"


def test_the_preview_image_marks_the_corners(made: tuple[F64, Calibrated]) -> None:
    _, found = made
    plain = view(0)
    image = drawn(plain, found.camera, found.views[0], found.boards[0])
    assert image.shape == plain.shape
    assert (image != plain).any(axis=2).sum() > 200


def test_the_printed_board_has_its_true_size() -> None:
    text = BOARD.pdf().decode("latin-1")
    assert text.startswith("%PDF-1.4")
    assert f"startxref\n{text.index('xref')}" in text
    rectangles = re.findall(r"([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+) re", text)
    assert len(rectangles) == len(BOARD.black())
    # The board drawn on the page is detected with its size in the page's units.
    scale = 4.0
    page = np.full(
        (round(PAGE[1] * POINTS_A_METRE * scale), round(PAGE[0] * POINTS_A_METRE * scale), 3), 255, np.uint8
    )
    for x, y, w, h in ([float(n) * scale for n in r] for r in rectangles):
        page[round(len(page) - y - h) : round(len(page) - y), round(x) : round(x + w)] = 0
    corners, pixels = BOARD.find(page)
    assert len(corners) == 24
    metres = pixels / scale / POINTS_A_METRE
    steps = np.linalg.norm(metres - metres[0], axis=1) - np.linalg.norm(corners - corners[0], axis=1)
    assert np.abs(steps).max() < 0.0003
    assert (corners[:, 1] > 0).all()
    assert np.corrcoef(corners[:, 1], pixels[:, 1])[0, 1] < -0.99  # y points up on the page
    with pytest.raises(InputError, match="do not fit"):
        Board((10, 9)).pdf()
    with pytest.raises(InputError, match="3 squares"):
        Board((2, 9))
