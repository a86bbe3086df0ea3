"""The camera image warped into the block's frame."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from episodes import random_episode
from recap.errors import InputError
from recap.geometry import out_of_frame
from recap.policies.canonical import camera_image, canonical_image, make_square
from recap.types import F64, U8
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.rendering import RenderedFrames
from recap_worlds.pusht.robot import TOP_DOWN

CONFIG = TOP_DOWN
BLOCK_COLOR = (143, 163, 184)
HERE, THERE = np.array([256.0, 256.0, 0.3]), np.array([240.0, 270.0, -1.9])
GOAL, PUSHER = np.array([40.0, -30.0, 0.8]), np.array([-60.0, 50.0])  # in the block's frame


def scene(block: F64) -> U8:
    """The same scene with the block at another pose."""
    place = out_of_frame(block, GOAL[:2])
    episode = replace(
        random_episode("scene", 0, 1),
        objects={"block": block[None].astype(np.float32)},
        goal=np.array([*place, block[2] + GOAL[2]], np.float32),
        proprio=out_of_frame(block, PUSHER)[None].astype(np.float32),
    )
    return RenderedFrames(episode, CONFIG.camera_size)[0]


def difference(a: U8, b: U8) -> float:
    return float(np.abs(a.astype(float) - b).mean())


def test_the_canonical_image_does_not_depend_on_the_blocks_pose() -> None:
    a, b = scene(HERE), scene(THERE)
    canonical = difference(canonical_image(a, HERE, CONFIG, True), canonical_image(b, THERE, CONFIG, True))
    assert canonical < 5
    assert canonical < difference(a, b) / 3


def test_the_block_is_centred_and_unrotated() -> None:
    env = PushTEnv()
    env.reset(seed=700)
    seen = env.observe(CONFIG.camera_size)
    image = canonical_image(seen.images["top"], seen.objects["block"], CONFIG, True)
    other = canonical_image(scene(HERE), HERE, CONFIG, True)
    assert image.shape == (64, 64, 3)
    a, b = (np.abs(i.astype(int) - BLOCK_COLOR).max(axis=-1) < 25 for i in (image, other))
    assert (a & b).sum() > 0.8 * (a | b).sum() > 100, "the block of another start covers the same pixels"


def test_pixels_outside_the_camera_image_are_white() -> None:
    image = canonical_image(np.zeros((96, 96, 3), np.uint8), np.array([0.0, 0.0, 0.0]), CONFIG, True)
    assert (image[:30, :30] == 255).all()
    assert (image[34:, 34:] == 0).all()


def test_without_alignment_the_image_is_only_resized() -> None:
    image = scene(HERE)
    assert np.array_equal(
        canonical_image(image, HERE, CONFIG, False), canonical_image(image, THERE, CONFIG, False)
    )
    tilted = replace(CONFIG, view="camera")
    assert np.array_equal(
        canonical_image(image, HERE, tilted, True), canonical_image(image, HERE, CONFIG, False)
    )


def test_camera_image_inverts_the_canonical_image() -> None:
    sharp = replace(CONFIG, size=192)
    image = scene(THERE)
    back = camera_image(canonical_image(image, THERE, sharp, True), THERE, sharp, True, image)
    assert difference(back, image) < 4
    blank = np.full_like(image, 7)
    laid = camera_image(canonical_image(image, THERE, sharp, True), THERE, sharp, True, blank)
    assert (laid[0, 0] == 7).all(), "pixels outside it keep the camera image"
    assert difference(laid[40:56, 40:56], image[40:56, 40:56]) < 8
    assert camera_image(image[:64, :64], HERE, CONFIG, False, blank).shape == blank.shape


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros((48, 64, 3), np.uint8), "is 64×48 px"),
        (np.zeros((96, 96, 3), np.float32), "of float32: give .h, w, 3. of bytes"),
        (np.zeros((96, 96), np.uint8), "has shape .96, 96."),
    ],
)
def test_an_image_of_another_shape_or_type_is_an_error_of_one_line(image: U8, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        canonical_image(image, HERE, CONFIG, True)
    assert "\n" not in str(caught.value)


def test_the_canonical_image_does_not_depend_on_the_cameras_resolution() -> None:
    large = cv2.resize(scene(HERE), (192, 192), interpolation=cv2.INTER_LINEAR)
    one, other = (canonical_image(image, HERE, CONFIG, True) for image in (scene(HERE), large))
    assert difference(one, other) < 4
    assert camera_image(one, HERE, CONFIG, True, large).shape == large.shape


@pytest.mark.parametrize(("height", "width"), [(6, 9), (9, 6), (7, 4), (4, 7), (5, 5)])
def test_make_square_resizes_crops_or_letterboxes(height: int, width: int) -> None:
    image = np.random.default_rng(0).integers(1, 255, (height, width, 3), np.uint8)
    assert np.array_equal(make_square(image, "resize"), image)
    short, long = sorted((height, width))
    middle = make_square(image, "crop")
    assert middle.shape == (short, short, 3)
    top, left = (height - short + 1) // 2, (width - short + 1) // 2
    assert np.array_equal(middle, image[top : top + short, left : left + short])
    whole = make_square(image, "letterbox")
    assert whole.shape == (long, long, 3)
    assert np.array_equal(whole[whole.any(axis=2)], image.reshape(-1, 3)), "the whole image on black"


def test_the_canonical_image_uses_the_cameras_fit() -> None:
    camera = replace(CONFIG, view="camera", size=8)
    bars = np.zeros((8, 16, 3), np.uint8)
    bars[:, 4:12] = 200
    assert (canonical_image(bars, HERE, camera, False, "crop") == 200).all()
    boxed = canonical_image(bars, HERE, camera, False, "letterbox")
    assert (boxed[:2] == 0).all()
    assert (boxed[2:6, 2:6] == 200).all()
    squeezed = canonical_image(bars, HERE, camera, False)
    assert (squeezed[:, 2:6] == 200).all()
    assert (squeezed[:, :2] == 0).all()
