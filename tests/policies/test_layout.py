"""The layout of slots, and vectors written as latent frames."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recap.errors import InputError
from recap.policies.config import ImageConfig, PolicyConfig
from recap.policies.layout import Layout, Slot, build_layout, frame_offsets
from recap.policies.vectors import numbers_of, width_of
from recap.robot import CameraSpec
from recap_worlds.dualarm.robot import TWO_ARMS
from recap_worlds.pusht.robot import PUSHT, TOP_DOWN
from toy_policy import toy_config

ROOM = 16 * 2 * 2  # numbers that fit into a patch


def pusht(**changes: Any) -> PolicyConfig:
    """A configuration with images of the default size."""
    return toy_config(**{"image": TOP_DOWN, **changes})


def names(config: PolicyConfig) -> list[str]:
    return [slot.name for slot in build_layout(config).slots]


@given(width=st.integers(1, 16 * 8 * 8), lead=st.sampled_from([(), (3,), (2, 2)]), seed=st.integers(0, 99))
def test_reading_inverts_writing_for_any_width(width: int, lead: tuple[int, ...], seed: int) -> None:
    layout = Layout((), channels=16, size=8, patch=2)
    vector = torch.randn(*lead, width, generator=torch.Generator().manual_seed(seed))
    frame = layout.write(vector)
    assert frame.shape == (*lead, 16, 8, 8)
    assert torch.allclose(layout.read(frame, width), vector, atol=1e-6)


@pytest.mark.parametrize("width", [3, ROOM // 2, ROOM])
def test_every_token_of_a_narrow_vector_holds_the_whole_vector(width: int) -> None:
    layout = Layout((), channels=16, size=8, patch=2)
    frame = layout.write(torch.arange(1.0, width + 1))
    patches = frame.reshape(16, 4, 2, 4, 2).permute(1, 3, 0, 2, 4).reshape(16, ROOM)
    assert torch.equal(patches, patches[:1].expand(16, ROOM))
    assert torch.equal(patches[0, :width], torch.arange(1.0, width + 1))


def test_reading_averages_the_copies() -> None:
    layout = Layout((), channels=16, size=8, patch=2)
    vector = torch.tensor([3.0, -1.0])
    noise = torch.randn(16, 8, 8, generator=torch.Generator().manual_seed(0))
    assert (layout.read(layout.write(vector) + noise, 2) - vector).abs().max() < 0.2  # 512 copies


def test_the_default_layout_has_nine_slots() -> None:
    layout = build_layout(pusht())
    assert [(slot.name, slot.width) for slot in layout.slots] == [
        ("retrieved_frame_0/top", 0),
        ("retrieved_frame_1/top", 0),
        ("retrieved_proprio", 8 * 2 + 16 + 4),
        ("retrieved_action", 8 * (2 + 1)),
        ("frame/top", 0),
        ("proprio", 2 + 16),
        ("action", 16),
        ("future_frame/top", 0),
        ("future_proprio", 2 + 4),
    ]
    assert [s.name for s in layout.slots if s.denoised] == ["action", "future_frame/top", "future_proprio"]
    assert layout.n_tokens == 9 * 16


def test_without_retrieval_the_layout_has_no_retrieved_slots() -> None:
    assert names(pusht(retrieval=False, residual=False)) == [
        "frame/top",
        "proprio",
        "action",
        "future_frame/top",
        "future_proprio",
    ]


def test_without_a_future_only_the_action_is_denoised() -> None:
    layout = build_layout(pusht(future_image=False, future_state=False))
    assert [slot.name for slot in layout.slots if slot.denoised] == ["action"]


def test_retrieved_frames_are_spread_evenly_over_the_chunk() -> None:
    config = pusht(n_retrieved_frames=4)
    assert [n for n in names(config) if n.startswith("retrieved_frame")] == [
        f"retrieved_frame_{i}/top" for i in range(4)
    ]
    assert frame_offsets(config) == (0, 2, 5, 7)
    assert frame_offsets(replace(config, n_retrieved_frames=2)) == (0, 7)
    assert frame_offsets(replace(config, n_retrieved_frames=1)) == (0,)


def test_each_camera_has_its_own_slots() -> None:
    seeing = replace(PUSHT, cameras={"top": CameraSpec(), "wrist": CameraSpec()})
    config = pusht(robot=seeing, image=replace(TOP_DOWN, cameras=("top", "wrist")))
    assert [slot.name for slot in build_layout(config).images] == [
        "retrieved_frame_0/top",
        "retrieved_frame_0/wrist",
        "retrieved_frame_1/top",
        "retrieved_frame_1/wrist",
        "frame/top",
        "frame/wrist",
        "future_frame/top",
        "future_frame/wrist",
    ]


def test_two_arms_with_long_chunks_fit_into_the_slots() -> None:
    image = ImageConfig(("head",))
    config = PolicyConfig(TWO_ARMS, inputs="I", chunk_size=16, n_action_steps=16, image=image)
    layout = build_layout(config)
    assert layout["action"].width == 320 > ROOM
    vector = torch.randn(2, 320)
    assert torch.allclose(layout.read(layout.write(vector), 320), vector, atol=1e-6)
    assert layout["proprio"].width == 20, "it holds no object poses"


def test_a_state_only_policy_has_one_token_per_slot() -> None:
    layout = build_layout(pusht(inputs="S"))
    assert not layout.images
    assert layout.n_tokens == len(layout.slots) == 5


def test_a_vector_that_does_not_fit_into_a_frame_is_an_error() -> None:
    with pytest.raises(InputError, match=r"slot 'x' holds 65 numbers, a frame 64: use larger images"):
        Layout((Slot("x", "vector", width=65),), channels=16, size=2, patch=2)
    with pytest.raises(InputError, match="slot 'retrieved_proprio' holds 84 numbers"):
        build_layout(toy_config(chunk_size=32))


def test_a_state_only_layout_grows_with_its_widest_vector() -> None:
    layout = build_layout(pusht(inputs="S", chunk_size=32))
    assert (layout.size, layout.n_tokens) == (4, 4 * len(layout.slots)), "84 numbers"


@pytest.mark.parametrize("inputs", ["I", "S", "I+S"])
@pytest.mark.parametrize("residual", [True, False])
def test_slot_widths_equal_the_sums_of_their_features(inputs: str, residual: bool) -> None:
    config = pusht(inputs=inputs, residual=residual)  # type: ignore[arg-type]
    widths = {name: width_of(parts) for name, parts in numbers_of(config).items()}
    assert {slot.name: slot.width for slot in build_layout(config).vectors} == widths


def test_inconsistent_policy_settings_are_errors() -> None:
    for changes, words in (
        ({"retrieval": False}, "residual=false"),
        ({"n_action_steps": 9}, "n_action_steps 9 is not within 1…8"),
        ({"inputs": "IS"}, "unknown inputs 'IS'"),
        ({"n_retrieved_frames": 0}, "n_retrieved_frames 0"),
        ({"chunk_size": 0}, "chunk_size 0"),
        ({"n_objects": 0}, "n_objects 0"),
        ({"relative_object_poses": True}, "relative_object_poses"),
        ({"image": ImageConfig()}, "image.cameras"),
        ({"image": ImageConfig(("wrist",))}, "unknown camera 'wrist'"),
        ({"robot": replace(PUSHT, objects={})}, "robot 'pusht' has no objects"),
    ):
        with pytest.raises(InputError, match=words):
            pusht(**changes)
