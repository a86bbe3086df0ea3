"""Synthetic two-arm demonstrations: the left arm puts a can in a box, or both arms lift a pot."""

from itertools import pairwise

import numpy as np

from recap.geometry3 import encode_arms, matrix_to_quaternion, quaternion_to_matrix
from recap.types import F64, Episode

HOME = {"left": np.array([-0.3, 0.0, 0.3]), "right": np.array([0.3, 0.0, 0.3])}
DOWN = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])  # x, the approach, points down
HOVER = np.array([0.0, 0.0, 0.12])
STEPS = 15


def yaw(angle: float) -> F64:
    """A rotation about z."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def pose(x: float, y: float, z: float = 0.05, angle: float = 0.0) -> F64:
    """The pose of an object on the table, rotated about z."""
    return np.array([x, y, z, np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])


def moved(g_angle: float, shift: F64, poses: F64) -> F64:
    """Poses (…, 7) after a rotation about the world's z and a translation."""
    out = np.array(poses, np.float64)
    out[..., :3] = out[..., :3] @ yaw(g_angle).T + shift
    out[..., 3:] = matrix_to_quaternion(yaw(g_angle) @ quaternion_to_matrix(out[..., 3:]))
    return out


def _path(corners: list[F64]) -> F64:
    legs = [np.linspace(a, b, STEPS, endpoint=False) for a, b in pairwise(corners)]
    return np.concatenate([*legs, corners[-1][None]])


def place_in_box(can: F64, box: F64, name: str = "demo", start: F64 | None = None) -> Episode:
    """Reach above the can, grasp it, move it above the box, release it, rise; the right arm rests."""
    a, b = can[:3], box[:3] + np.array([0.0, 0.0, 0.05])
    home = HOME["left"] if start is None else start
    path = _path([home, a + HOVER, a, a, a + HOVER, b + HOVER, b, b, b + HOVER])
    n = len(path)
    gripper = np.ones(n)
    gripper[2 * STEPS : 6 * STEPS] = 0.0
    held = slice(int(2.5 * STEPS), 6 * STEPS + STEPS // 2)
    cans = np.tile(can, (n, 1))
    cans[held, :3] = path[held]
    cans[held.stop :, :3] = path[held.stop - 1]
    return _episode(name, path, gripper, {"box": np.tile(box, (n, 1)), "can": cans})


def lift_pot(pot: F64, name: str = "lift") -> Episode:
    """Both arms grasp the pot's handles, along its x axis, and lift it."""
    turn, sides = quaternion_to_matrix(pot[3:]), {}
    for side, sign in (("left", -1), ("right", 1)):
        grip = pot[:3] + turn @ [sign * 0.15, 0.0, 0.0]
        sides[side] = _path([HOME[side], grip + HOVER, grip, grip, grip + HOVER])
    n = len(sides["left"])
    gripper = np.ones(n)
    gripper[2 * STEPS :] = 0.0
    pots = np.tile(pot, (n, 1))
    pots[3 * STEPS :, 2] += sides["left"][3 * STEPS :, 2] - sides["left"][3 * STEPS, 2]
    facing = matrix_to_quaternion(turn @ DOWN)
    return _episode(name, sides["left"], gripper, {"pot": pots}, sides["right"], facing)


def _episode(
    name: str,
    left: F64,
    gripper: F64,
    objects: dict[str, F64],
    right: F64 | None = None,
    facing: F64 | None = None,
) -> Episode:
    n = len(left)
    turn = np.tile(matrix_to_quaternion(DOWN) if facing is None else facing, (n, 1))
    idle = right is None
    other = np.tile(HOME["right"], (n, 1)) if right is None else right
    proprio = encode_arms(
        np.hstack([left, turn]), gripper, np.hstack([other, turn]), np.ones(n) if idle else gripper
    ).astype(np.float32)
    return Episode(
        id=name,
        scene_id=name,
        task="put the can in the box" if idle else "lift the pot with both arms",
        embodiment="made",
        fps=20.0,
        timestamps=np.arange(n) / 20,
        proprio=proprio,
        actions=np.concatenate([proprio[1:], proprio[-1:]]),
        objects={key: value.astype(np.float32) for key, value in objects.items()},
    )
