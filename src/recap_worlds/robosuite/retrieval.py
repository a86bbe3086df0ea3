"""Retrieval for one arm: each part of a demonstration moves with its object."""

from __future__ import annotations

import math
from dataclasses import replace

from recap.body import ARM
from recap.features.describer import TermDescriber
from recap.features.language import make_text_encoder
from recap.features.terms import Instruction
from recap.retrieval.aligners import Parts, World
from recap.retrieval.config import RetrievalConfig
from recap_worlds.dualarm.terms import (
    Grippers,
    ObjectNames,
    ObjectPlaces,
    ObjectsApart,
    ObjectsMoved,
    ToolsAboutObjects,
)

ROUND = ("can",)
_TERMS = TermDescriber(
    {
        "tools": ToolsAboutObjects(round_objects=ROUND, letters=ARM),
        "grippers": Grippers(ARM),
        "apart": ObjectsApart(),
        "moved": ObjectsMoved(),
        "places": ObjectPlaces(round_objects=ROUND),
        "names": ObjectNames(),
        "language": Instruction(make_text_encoder("words")),
    }
)
_GRIPPER_M = 0.1  # m that an open gripper counts for relative to a closed one
_COSINE = math.sqrt(2)  # for unit vectors: the cosine distance
# The weights of the two-arm suite's retrieval, unchanged: nothing was tuned on this world.
_PARTS = RetrievalConfig(
    "robosuite-parts",
    scene_weights={"language": 1.0, "names": 1.0, "places": 1.0},
    weights={"tools": 1.0, "grippers": 1.0, "apart": 0.25, "moved": 4.0, "names": 1.0},
    scales={"language": _COSINE, "names": _COSINE, "grippers": 1 / _GRIPPER_M},
    n_candidates=10,
    aligner=Parts(ROUND),
    n_action_steps=8,
    chunk_size=16,
    stall_penalty=0.01,
    stall_radius=0.01,
    follow_bonus=0.05,
    follow_fade=0.002,
)
RETRIEVALS: dict[str, tuple[TermDescriber, RetrievalConfig]] = {
    "robosuite-parts": (_TERMS, _PARTS),
    "robosuite-world": (_TERMS, replace(_PARTS, name="robosuite-world", aligner=World())),  # a control
}
