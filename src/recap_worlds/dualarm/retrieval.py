"""Retrieval for two arms: the paper's, and with each part moved with its object."""

from __future__ import annotations

import math

from recap.body import ARM
from recap.features.describer import TermDescriber
from recap.features.language import make_text_encoder
from recap.features.terms import Instruction, Proprio, Time
from recap.retrieval.aligners import Parts
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.presets import POSITION_WEIGHT
from recap_worlds.dualarm.terms import (
    Grippers,
    ObjectNames,
    ObjectPlaces,
    ObjectsApart,
    ObjectsMoved,
    ToolsAboutObjects,
)

ROUND_OBJECTS = ("can", "bottle", "pillbottle", "bell", "cup", "bowl", "plate")
N_ACTION_STEPS = 8  # of a chunk of 16; stall penalty and follow fade are set for this interval
TWO_ARMS = 2 * ARM

# The paper's retrieval for two arms: the world's frame, five candidates. Its object weight and stage-1
# weights are not published; ours are 1. Objects are positions in metres instead of boxes in an image. The
# image term (0.1) is left out, so that a pool of poses is enough; `paper` includes it.
_ARMS_WORLD_TERMS = TermDescriber(
    {
        "proprio": Proprio(TWO_ARMS, POSITION_WEIGHT),
        "history": Proprio(TWO_ARMS, POSITION_WEIGHT, n_steps=8),
        "object": ObjectPlaces(0.0, ROUND_OBJECTS),
        "language": Instruction(make_text_encoder("words")),
        "time": Time(),
    }
)
_COSINE = {"language": math.sqrt(2), "names": math.sqrt(2)}  # for unit vectors: the cosine distance

# Ours: tools relative to objects and objects relative to each other, costs in m². The words and the set of
# objects identify the task. The most similar scene needs the smallest alignment.
_ARMS_TERMS = TermDescriber(
    {
        "tools": ToolsAboutObjects(round_objects=ROUND_OBJECTS, letters=TWO_ARMS),
        "grippers": Grippers(TWO_ARMS),
        "apart": ObjectsApart(),
        "moved": ObjectsMoved(),
        "places": ObjectPlaces(round_objects=ROUND_OBJECTS),
        "names": ObjectNames(),
        "language": Instruction(make_text_encoder("words")),
    }
)
_GRIPPER_M = 0.1  # m that an open gripper counts for relative to a closed one

RETRIEVALS: dict[str, tuple[TermDescriber, RetrievalConfig]] = {
    "dualarm-world": (
        _ARMS_WORLD_TERMS,
        RetrievalConfig(
            "dualarm-world",
            scene_weights={"language": 1.0, "object": 1.0, "proprio": 1.0},
            weights={"proprio": 1.0, "history": 0.05, "time": 0.0, "object": 1.0},
            scales=_COSINE,
            n_candidates=5,
            n_action_steps=N_ACTION_STEPS,
            chunk_size=16,
        ),
    ),
    "dualarm-parts": (
        _ARMS_TERMS,
        RetrievalConfig(
            "dualarm-parts",
            scene_weights={"language": 1.0, "names": 1.0, "places": 1.0},
            weights={"tools": 1.0, "grippers": 1.0, "apart": 0.25, "moved": 4.0, "names": 1.0},
            scales={**_COSINE, "grippers": 1 / _GRIPPER_M},
            n_candidates=10,
            aligner=Parts(ROUND_OBJECTS),
            n_action_steps=N_ACTION_STEPS,
            chunk_size=16,
            stall_penalty=0.01,
            stall_radius=0.01,
            follow_bonus=0.05,
            follow_fade=0.002,
        ),
    ),
}
