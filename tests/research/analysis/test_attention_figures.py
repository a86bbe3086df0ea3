"""Attention on regions of images: the paper's ratio, regions, peaks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from recap_research.analysis.attention import (
    REGIONS,
    Figures,
    box_region,
    figures_of,
    find_peak,
    mean_figures,
    overlay,
    reading_of,
    regions_of,
    roi_ratio,
    summarise_attention,
)
from recap_research.analysis.probe import WatchedPolicy
from recap_worlds.pusht.robot import TOP_DOWN
from toy_policy import moments, toy_config, toy_policy


def test_the_ratio_of_uniform_attention_is_1() -> None:
    region = np.zeros((4, 4))
    region[1:3, 2:] = [[1, 0.3], [0.25, 1]]
    assert roi_ratio(np.full((2, 3, 4, 4), 0.01), region) == pytest.approx(np.ones((2, 3)))


def test_the_ratio_follows_the_papers_equation() -> None:
    attention = np.arange(16.0).reshape(4, 4) / np.arange(16).sum()
    region = np.zeros((4, 4))
    region[2:, 2:] = 1
    assert roi_ratio(attention, region) == pytest.approx(16 / 4 * attention[2:, 2:].sum())


def test_a_region_outside_the_image_has_no_ratio() -> None:
    assert np.isnan(roi_ratio(np.ones((3, 4, 4)), np.zeros((4, 4)))).all()


def test_box_region_is_the_blocks_box_in_tokens() -> None:
    image = replace(TOP_DOWN, size=64)  # 80 px per token
    aligned = box_region(np.zeros(3), "tee", image, True, 4)  # x -60…60, y 0…120 around the middle
    assert aligned.sum() * 80**2 == pytest.approx(120 * 120)
    assert aligned[2] == pytest.approx([0, 0.75, 0.75, 0])
    assert aligned[3] == pytest.approx([0, 0.375, 0.375, 0])
    world = box_region(np.array([64.0, 64.0, np.pi / 2]), "tee", image, False, 4)
    assert world.sum() * 128**2 == pytest.approx((64 - 0) * 120)  # rotated left, half of it outside the board
    assert (world[:, 1:] == 0).all()


def test_figures_of_a_prediction_have_mass_and_region_ratios() -> None:
    policy = WatchedPolicy(toy_policy(toy_config(image=replace(TOP_DOWN, size=32))), note=True)
    observations, given = moments(policy, 1)
    (chunk,) = policy.predict_action_chunk(observations, given, torch.Generator().manual_seed(0))
    reading = reading_of(policy.noted[0][1], policy.model.layout)
    assert reading.maps.shape == (2, 2, 9, 2, 2)
    assert reading.mass().sum(axis=2) == pytest.approx(np.ones((2, 2)), abs=1e-5)
    regions = regions_of(policy, observations[0], given[0], chunk, "tee", 2)
    shown = {"retrieved_frame_0/top", "retrieved_frame_1/top", "frame/top", "future_frame/top"}
    assert {slot for slot, _ in regions} == shown
    assert {name for _, name in regions} == set(REGIONS)
    figures = figures_of(reading, regions)
    assert figures.mass["retrieved_action"].shape == (2, 2)
    assert figures.roi["frame/top>t_block"].shape == (2, 3)
    again = Figures.from_json(figures.to_json())
    assert again.roi["frame/top>t_block"] == pytest.approx(figures.roi["frame/top>t_block"], abs=1e-4)
    summary = summarise_attention([figures, again])
    assert summary["roi"]["frame>t_block"]["layers"] == pytest.approx(
        figures.roi["frame/top>t_block"][:, -1].tolist(), abs=1e-4
    )


def figures(roi: list[list[float]]) -> Figures:
    return Figures({}, {"frame/top>t_block": np.array(roi)}, {})


def test_mean_figures_ignores_nan() -> None:
    mean = mean_figures([figures([[1.0], [np.nan]]), figures([[3.0], [5.0]])])
    assert mean.roi["frame/top>t_block"].tolist() == [[2.0], [5.0]]


def test_find_peak_finds_a_clear_peak_and_marks_an_unclear_one() -> None:
    rng = np.random.default_rng(0)
    course = 1 + 0.05 * rng.normal(size=(20, 6))
    course[:, 3] += 1.5
    peak = find_peak(course)
    assert peak is not None
    assert (peak.layer, peak.clear) == (3, True)
    assert peak.low < peak.ratio < peak.high
    faint = find_peak(0.7 + 0.3 * rng.normal(size=(20, 6)))  # one layer is the largest, but none is above 1
    assert faint is not None
    assert not faint.clear
    assert find_peak(np.full((3, 6), np.nan)) is None


def test_an_overlay_is_red_where_attention_is_high() -> None:
    attention = np.zeros((4, 4), np.float32)
    attention[0, 0] = 1
    drawn = overlay(np.full((64, 64, 3), 255, np.uint8), attention)
    assert drawn.shape == (128, 128, 3)
    red, green, _ = drawn[8, 8].astype(int)
    assert red - green > 100
    assert abs(int(drawn[-1, -1, 0]) - int(drawn[-1, -1, 1])) < 5
