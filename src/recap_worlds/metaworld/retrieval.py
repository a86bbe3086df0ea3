"""Retrieval for Meta-World's arm if object positions are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recap.features.describer import TermDescriber
from recap.features.language import make_text_encoder
from recap.features.terms import Instruction, ObjectPoses, Time
from recap.retrieval.aligners import Parts, World
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.presets import COSINE, FOLLOWED_S, image_retrieval
from recap.robot import load_robot
from recap_worlds.metaworld.world import POSED

# The demonstration of the most similar scene is followed to its end, and each part moves with its object.
# Rotations are ignored, because many objects of Meta-World report a meaningless one.
_FIRST, _SHIFTED = image_retrieval(load_robot(Path(__file__).with_name("robot.yaml")))
RETRIEVALS: dict[str, tuple[TermDescriber, RetrievalConfig]] = {
    # A control: the same demonstration as `image`, at the place where it was recorded.
    "metaworld-nearest": (_FIRST, replace(_SHIFTED, name="metaworld-nearest", aligner=World())),
    "metaworld-objects": (
        TermDescriber(
            {
                "time": Time(),
                "language": Instruction(make_text_encoder("words")),
                "places": ObjectPoses(POSED, (0, 3)),
            }
        ),
        RetrievalConfig(
            "metaworld-objects",
            scene_weights={"language": 30.0, "places": 1.0},
            weights={"time": 1.0},
            scales={"language": COSINE},
            n_candidates=1,
            aligner=Parts(POSED),
            chunk_size=16,
            follow_bonus=FOLLOWED_S,
            follow_fade=FOLLOWED_S,
        ),
    ),
}
