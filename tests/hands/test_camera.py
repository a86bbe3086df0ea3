"""The camera model: projection, triangulation and calibration files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_hands import FRONT, SIDE, looking_at, motion

from recap import config
from recap.errors import InputError
from recap_hands.camera import Calibration, Camera, load_calibration, triangulate


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), n_cameras=st.integers(2, 4))
def test_triangulation_recovers_projected_points(seed: int, n_cameras: int) -> None:
    rng = np.random.default_rng(seed)
    cameras = [looking_at(rng.uniform((-1, -1, 0.3), (1, 1, 1.2)), [0, 0, 0.1]) for _ in range(n_cameras)]
    points = rng.uniform(-0.1, 0.1, (30, 3)) + np.array([0, 0, 0.1])
    found, errors = triangulate(cameras, np.stack([camera.project(points) for camera in cameras]))
    spread = max(np.linalg.norm(a.position - b.position) for a in cameras for b in cameras)
    if spread > 0.05:
        np.testing.assert_allclose(found, points, atol=1e-5)
        assert errors.max() < 1e-3


def test_a_point_seen_once_is_missing_and_a_third_camera_improves_accuracy() -> None:
    points = motion()[1][:, 8]
    third = looking_at([-0.6, -0.4, 0.6], [0, 0, 0.1])
    rng = np.random.default_rng(0)
    pixels = [camera.project(points) + rng.normal(0, 2, (90, 2)) for camera in (FRONT, SIDE, third)]
    two, _ = triangulate([FRONT, SIDE], np.stack(pixels[:2]))
    three, error = triangulate([FRONT, SIDE, third], np.stack(pixels))
    assert np.linalg.norm(three - points, axis=1).mean() < np.linalg.norm(two - points, axis=1).mean()
    assert 1 < np.median(error) < 3
    pixels[1][10] = np.nan
    found, error = triangulate([FRONT, SIDE], np.stack(pixels[:2]))
    assert np.isnan(found[10]).all()
    assert np.isnan(error[10])
    assert np.isfinite(found[11]).all()


def test_refined_triangulation_is_no_worse_than_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    points = motion()[1][:, 4]
    rng = np.random.default_rng(1)
    near = looking_at([0.05, -0.3, 0.3], [0, 0, 0.15])
    pixels = np.stack([camera.project(points) + rng.normal(0, 3, (90, 2)) for camera in (FRONT, near)])
    refined = triangulate([FRONT, near], pixels)[1]
    monkeypatch.setattr("recap_hands.camera.REFINEMENTS", 0)
    linear = triangulate([FRONT, near], pixels)[1]
    assert (refined <= linear + 1e-6).all()


def test_rays_invert_the_projection_and_to_world_inverts_seen_from() -> None:
    points = motion()[1].reshape(-1, 3)
    here = FRONT.seen_from(points)
    np.testing.assert_allclose(FRONT.rays(FRONT.project(points)), here[:, :2] / here[:, 2:], atol=1e-5)
    np.testing.assert_allclose(FRONT.to_world(here), points, atol=1e-12)
    behind = FRONT.to_world(np.array([0.0, 0, -1]))
    assert np.isnan(FRONT.project(behind)).all()


def test_a_camera_scales_to_videos_of_its_aspect_ratio_only() -> None:
    half = FRONT.for_size(240, 320, "film")
    corner = FRONT.project(motion()[1][0]) + 0.5
    np.testing.assert_allclose(half.project(motion()[1][0]) + 0.5, corner / 2, atol=1e-6)
    with pytest.raises(InputError, match="turned by 90") as error:
        FRONT.for_size(640, 480, "film.mp4")
    assert error.value.code == "hands.camera"
    with pytest.raises(InputError, match="1280x720"):
        FRONT.for_size(720, 1280, "film.mp4")


def test_a_calibration_file_is_loaded_and_checked(tmp_path: Path) -> None:
    config.save_file(tmp_path / "calibration.yaml", Calibration({"front": FRONT}))
    assert load_calibration(tmp_path / "calibration.yaml").cameras["front"] == FRONT
    (tmp_path / "calibration.yaml").write_text("cameras: {}\n")
    with pytest.raises(InputError, match="no cameras"):
        load_calibration(tmp_path / "calibration.yaml")
    with pytest.raises(InputError, match="fx and fy"):
        Camera((480, 640), (0.0, 1.0, 1.0, 1.0))
    with pytest.raises(InputError, match="7 numbers"):
        Camera((480, 640), (1.0, 1.0, 1.0, 1.0), at=(0.0,))
