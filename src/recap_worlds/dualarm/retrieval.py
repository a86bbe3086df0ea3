"""How two arms retrieve: as the paper has it, and with each part moved to its object."""

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
N_ACTION_STEPS = 8  # of a chunk of 16, before the next look: what penalty and fade are set for
TWO_ARMS = 2 * ARM

# Two arms, as the paper has it: the world's frame, five candidates. Its object weight and the weights of
# stage 1 are not published: the ones are ours. Objects are places in metres instead of boxes in a picture,
# and the image term (0.1) is left out, so that a pool of poses will do; `paper` has it.
_ARMS_WORLD_TERMS = TermDescriber(
    {
        "proprio": Proprio(TWO_ARMS, POSITION_WEIGHT),
        "history": Proprio(TWO_ARMS, POSITION_WEIGHT, n_steps=8),
        "object": ObjectPlaces(0.0, ROUND_OBJECTS),
        "language": Instruction(make_text_encoder("words")),
        "time": Time(),
    }
)
_COSINE = {"language": math.sqrt(2), "names": math.sqrt(2)}  # of unit rows: the cosine distance

# Ours: tools from each object and objects from each other, costs in m². Words and the set of objects say
# which task it is; a scene laid out alike has to be moved least.
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
_GRIPPER_M = 0.1  # that an open gripper is away from a closed one

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
