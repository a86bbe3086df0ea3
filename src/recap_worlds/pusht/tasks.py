"""The PushT protocol: goals, seeds and the shared instruction."""

from __future__ import annotations

from recap.errors import InputError

INSTRUCTION = "push the block onto the green goal"  # for every angle: the goal is a field of its own
SEEN_ANGLES = (-45.0, 45.0)
ANGLES = tuple(float(a) for a in range(-60, 61, 15))
EVALUATION_SEEDS = tuple(range(42, 92))
FIRST_COLLECTION_SEED = 100_000
MAX_STEPS = 300
FPS = 10.0
THRESHOLDS = (0.85, 0.95)  # an episode runs until the last one is passed
ACTION_SPACE = "absolute target position of the pusher, px"


def wrapped(angle: float) -> float:
    """The same goal in (-180, 180], so that 405 becomes 45; angles within are not changed."""
    if -180 < angle <= 180:
        return angle + 0.0  # no -0
    return -((180 - angle) % 360 - 180) + 0.0


def angle_key(angle: float) -> str:
    """A goal angle as written in results: +45, 0, -7.5."""
    return f"{angle:+g}" if angle else "0"


def scene_id(block: str, angle: float, seed: int) -> str:
    """Equal for two pushers that start from the same scene."""
    return f"pusht/{block}/{angle_key(angle)}/{seed}"


def check_collection_seeds(first: int, count: int) -> None:
    """Refuse seeds reserved for evaluation (42…91) and development (500…999)."""
    if first < FIRST_COLLECTION_SEED:
        raise InputError(
            f"seeds {first}…{first + count - 1} are not for collection: 42…91 are kept for evaluation and "
            f"500…999 for development; start at {FIRST_COLLECTION_SEED} or above"
        )
