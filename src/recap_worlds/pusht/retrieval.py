"""Retrievals of PushT: in the world's frame, in the block's, and by contact."""

from __future__ import annotations

from dataclasses import replace

from recap.features.describer import TermDescriber
from recap.retrieval.aligners import ObjectFrame, World
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.subtrajectories import Subtrajectories
from recap_worlds.pusht.contact import PUSHT_CONTACT, ContactFrame
from recap_worlds.pusht.terms import GoalPose, ObjectPosition, ObjectTurn, Position, Velocities

BOARD = 512.0  # px; the published code divides positions by it
STALL = 6.0  # px added to the distance of a moment that was used
ARM = 80.0  # px per unit of direction: about the size of a block

PUSHES = Subtrajectories("block", still=0.25, min_moved=2.0, turn_radius=60.0)  # px

_WORLD_TERMS = TermDescriber(
    {
        "object": ObjectPosition("block"),
        "proprio": Position(),
        "turn": ObjectTurn("block"),
        "velocity": Velocities("block"),
        "goal": GoalPose(ARM),
    }
)
# Costs in px²; a unit of direction counts as ARM px. Much better than the published factors (docs/log.md).
_WORLD_WEIGHTS = {"object": 1.0, "proprio": 1.0, "turn": 1.0}
_WORLD_SCALES = {"turn": 1 / ARM}

# The published features: positions / 512, then factors 2.0 (block), 2.5 (pusher), 1.5 (direction) and 1.0
# (velocities) before squaring; the 100 demonstrations with the nearest initial block.
_PUBLISHED_WEIGHTS = {"object": 2.0**2, "proprio": 2.5**2, "turn": 1.5**2, "velocity": 1.0}
_PUBLISHED_SCALES = {"object": BOARD, "proprio": BOARD, "velocity": BOARD}

# Ours: everything, also the goal, is relative to the block. Costs are in px².
_OBJECT_TERMS = TermDescriber(
    {
        "proprio": Position(frame="block"),
        "object": ObjectPosition("block", in_goal_frame=True),
        "turn": ObjectTurn("block", from_goal=True),
        "world_turn": ObjectTurn("block"),
    }
)
_OBJECT = RetrievalConfig(
    "pusht-object",
    scene_weights={"object": 1.0, "turn": 1.0, "proprio": 0.1},
    weights={"proprio": 1.0, "object": 1.0, "turn": 1.0, "world_turn": 0.0},
    scales={"turn": 1 / ARM, "world_turn": 1 / ARM},
    aligner=ObjectFrame("block"),
    subtrajectories=PUSHES,
    trim=3,
    stall_penalty=STALL,
)

RETRIEVALS: dict[str, tuple[TermDescriber, RetrievalConfig]] = {
    "pusht-published": (
        _WORLD_TERMS,
        RetrievalConfig(
            "pusht-published",
            scene_weights={"object": 1.0},
            weights=_PUBLISHED_WEIGHTS,
            scales=_PUBLISHED_SCALES,
            n_candidates=100,
            same_goal=True,
            aligner=World("block"),
            subtrajectories=PUSHES,
        ),
    ),
    "pusht-world-oracle": (
        _WORLD_TERMS,
        RetrievalConfig(
            "pusht-world-oracle",
            scene_weights=_WORLD_WEIGHTS,
            weights=_WORLD_WEIGHTS,
            scales=_WORLD_SCALES,
            same_goal=True,
            stall_penalty=STALL,
            aligner=World("block"),
            subtrajectories=PUSHES,
        ),
    ),
    "pusht-world": (
        _WORLD_TERMS,
        RetrievalConfig(
            "pusht-world",
            scene_weights={**_WORLD_WEIGHTS, "goal": 1.0},
            weights={**_WORLD_WEIGHTS, "goal": 1.0},
            scales=_WORLD_SCALES,
            stall_penalty=STALL,
            aligner=World("block"),
            subtrajectories=PUSHES,
        ),
    ),
    "pusht-object": (
        _OBJECT_TERMS,
        _OBJECT,
    ),
    "pusht-contact": (
        TermDescriber(_OBJECT_TERMS.terms, PUSHT_CONTACT),
        replace(_OBJECT, name="pusht-contact", aligner=ContactFrame("block")),
    ),
}
