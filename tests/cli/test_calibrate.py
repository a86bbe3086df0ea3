"""`recap calibrate`: from images to calibration.yaml."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from board_views import poses, view
from click.testing import CliRunner

from recap.cli import cli
from recap.errors import RecapError
from recap.geometry3 import matrix_to_quaternion
from recap.pictures import write_png
from recap_hands.camera import load_calibration


def run(*words: object) -> str:
    result = CliRunner().invoke(cli, ["calibrate", *map(str, words)])
    if result.exception is not None:
        raise result.exception
    return result.output


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("views")
    out = []
    for i in range(9):
        out.append(folder / f"{i}.jpg")
        cv2.imwrite(str(out[-1]), view(i), [cv2.IMWRITE_JPEG_QUALITY, 97])
    return out


def test_the_calibration_board_is_written_as_pdf(tmp_path: Path) -> None:
    assert "measure a square" in run("--print", tmp_path / "board.pdf")
    assert (tmp_path / "board.pdf").read_bytes().startswith(b"%PDF")


def test_several_cameras_are_calibrated_into_one_file(tmp_path: Path, images: list[Path]) -> None:
    out = tmp_path / "calibration.yaml"
    text = run(*images, "--out", out)
    assert "reprojection" in text
    assert "in the board's frame" in text
    assert (tmp_path / "calibration-front.png").is_file()
    run(*images, "--name", "side", "--table", images[0], "--out", out)
    found = load_calibration(out)
    assert set(found.cameras) == {"front", "side"}
    for name, pose in (("front", poses(14)[:9][-1]), ("side", poses(14)[:9][0])):
        stands = np.linalg.inv(pose)[:3, 3]
        assert np.linalg.norm(found.cameras[name].position - stands) < 0.002


def test_calibration_with_robot_poses_is_in_the_robots_frame(tmp_path: Path, images: list[Path]) -> None:
    lines = ["x,y,z,qw,qx,qy,qz"]
    for pose in poses(14)[:9]:  # the robot's base frame is the camera frame, and the board is the tool
        numbers = (*pose[:3, 3], *matrix_to_quaternion(pose[:3, :3]))
        lines.append(",".join(str(float(n)) for n in numbers))
    (tmp_path / "poses.csv").write_text("\n".join(lines))
    text = run(*images, "--robot-poses", tmp_path / "poses.csv", "--out", tmp_path / "c.yaml")
    assert "its moves agree to" in text
    assert np.linalg.norm(load_calibration(tmp_path / "c.yaml").cameras["front"].position) < 0.002
    with pytest.raises(RecapError, match="another --out"):
        run(*images, "--out", tmp_path / "c.yaml")
    with pytest.raises(RecapError, match="9 poses for 8"):
        run(*images[:8], "--robot-poses", tmp_path / "poses.csv", "--out", tmp_path / "d.yaml")


def test_wrong_input_is_an_error_and_writes_nothing(tmp_path: Path, images: list[Path]) -> None:
    grey = tmp_path / "grey.png"
    write_png(grey, np.full((480, 640, 3), 100, np.uint8))
    small = tmp_path / "small.png"
    write_png(small, np.full((48, 64, 3), 100, np.uint8))
    cases: dict[str, list[object]] = {
        "no images given": [],
        "seen in 2 images": [*images[:2]],
        "shows no board on the table": [*images, grey],
        "differ in size": [*images, small],
        "cannot be read as an image": [tmp_path / "nothing.png"],
        "two numbers": [*images, "--squares", "7"],
        "give the measured side": [*images, "--square", "1"],
    }
    for words, arguments in cases.items():
        with pytest.raises(RecapError, match=words):
            run(*arguments, "--out", tmp_path / "c.yaml")
    assert not (tmp_path / "c.yaml").exists()
