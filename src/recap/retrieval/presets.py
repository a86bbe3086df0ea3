"""Retrieval as the paper has it, and as we have it, by name."""

from __future__ import annotations

import math
from dataclasses import replace

from recap.contact import PUSHT_CONTACT
from recap.errors import one_of
from recap.features.describer import TermDescriber
from recap.features.language import make_text_encoder
from recap.features.scene_terms import (
    ROUND_OBJECTS,
    Grippers,
    ObjectNames,
    ObjectPlaces,
    ObjectsApart,
    ObjectsMoved,
    ToolsAboutObjects,
)
from recap.features.terms import (
    Actions,
    ArmsProprio,
    GoalPose,
    ImageFeature,
    Instruction,
    ObjectPoses,
    ObjectPosition,
    ObjectTurn,
    Position,
    Term,
    Time,
    Velocities,
)
from recap.features.vision import make_image_encoder
from recap.retrieval.config import RetrievalConfig

BOARD = 512.0  # px; the published code divides positions by it
STALL = 6.0  # px that a moment counts as further away once it was acted on
ARM = 80.0  # px that a unit of direction counts for: about the reach of a block

_WORLD_TERMS = TermDescriber(
    {
        "object": ObjectPosition("block"),
        "proprio": Position(),
        "turn": ObjectTurn("block"),
        "velocity": Velocities("block"),
        "goal": GoalPose(ARM),
    }
)
# Costs in px², a unit of direction counting for ARM px: much better than the published factors (docs/log.md).
_WORLD_WEIGHTS = {"object": 1.0, "proprio": 1.0, "turn": 1.0}
_WORLD_SCALES = {"turn": 1 / ARM}

# The published features: positions / 512, then factors 2.0 (block), 2.5 (pusher), 1.5 (direction) and 1.0
# (velocities) before squaring; the 100 demonstrations whose block began nearest.
_PUBLISHED_WEIGHTS = {"object": 2.0**2, "proprio": 2.5**2, "turn": 1.5**2, "velocity": 1.0}
_PUBLISHED_SCALES = {"object": BOARD, "proprio": BOARD, "velocity": BOARD}

# Ours: everything relative to the block, the goal too. Costs are in px².
_ALIGNED_TERMS = TermDescriber(
    {
        "proprio": Position(frame="block"),
        "object": ObjectPosition("block", in_goal_frame=True),
        "turn": ObjectTurn("block", from_goal=True),
        "world_turn": ObjectTurn("block"),
    }
)
_ALIGNED = RetrievalConfig(
    "pusht-aligned",
    scene_weights={"object": 1.0, "turn": 1.0, "proprio": 0.1},
    weights={"proprio": 1.0, "object": 1.0, "turn": 1.0, "world_turn": 0.0},
    scales={"turn": 1 / ARM, "world_turn": 1 / ARM},
    align="object",
    trim=3,
    stall_penalty=STALL,
)

# Two arms, as the paper has it: the world's frame, five candidates. Its object weight and the weights of
# stage 1 are not published: the ones are ours. Objects are places in metres instead of boxes in a picture,
# and the image term (0.1) is left out, so that a pool of poses will do; `paper` has it.
_ARMS_WORLD_TERMS = TermDescriber(
    {
        "proprio": ArmsProprio(),
        "history": ArmsProprio(n_steps=8),
        "object": ObjectPlaces(arm=0.0),
        "language": Instruction(make_text_encoder("words")),
        "time": Time(),
    }
)
_COSINE = {"language": math.sqrt(2), "names": math.sqrt(2)}  # of unit rows: the cosine distance

# Ours: tools from each object and objects from each other, costs in m². Words and the set of objects say
# which task it is; a scene laid out alike has to be moved least.
_ARMS_TERMS = TermDescriber(
    {
        "tools": ToolsAboutObjects(),
        "grippers": Grippers(),
        "apart": ObjectsApart(),
        "moved": ObjectsMoved(),
        "places": ObjectPlaces(),
        "names": ObjectNames(),
        "language": Instruction(make_text_encoder("words")),
    }
)
_GRIPPER_M = 0.1  # that an open gripper is away from a closed one

PRESETS: dict[str, tuple[TermDescriber, RetrievalConfig]] = {
    "pusht-published": (
        _WORLD_TERMS,
        RetrievalConfig(
            "pusht-published",
            scene_weights={"object": 1.0},
            weights=_PUBLISHED_WEIGHTS,
            scales=_PUBLISHED_SCALES,
            n_candidates=100,
            same_goal=True,
        ),
    ),
    "pusht-oracle": (
        _WORLD_TERMS,
        RetrievalConfig(
            "pusht-oracle",
            scene_weights=_WORLD_WEIGHTS,
            weights=_WORLD_WEIGHTS,
            scales=_WORLD_SCALES,
            same_goal=True,
            stall_penalty=STALL,
        ),
    ),
    "pusht-single": (
        _WORLD_TERMS,
        RetrievalConfig(
            "pusht-single",
            scene_weights={**_WORLD_WEIGHTS, "goal": 1.0},
            weights={**_WORLD_WEIGHTS, "goal": 1.0},
            scales=_WORLD_SCALES,
            stall_penalty=STALL,
        ),
    ),
    "pusht-aligned": (
        _ALIGNED_TERMS,
        _ALIGNED,
    ),
    "pusht-contact": (
        TermDescriber(_ALIGNED_TERMS.terms, PUSHT_CONTACT),
        replace(_ALIGNED, name="pusht-contact", contact=PUSHT_CONTACT),
    ),
    "dualarm-single": (
        _ARMS_WORLD_TERMS,
        RetrievalConfig(
            "dualarm-single",
            scene_weights={"language": 1.0, "object": 1.0, "proprio": 1.0},
            weights={"proprio": 1.0, "history": 0.05, "time": 0.0, "object": 1.0},
            scales=_COSINE,
            n_candidates=5,
            object_name="",
            chunk_size=16,
        ),
    ),
    "dualarm-aligned": (
        _ARMS_TERMS,
        RetrievalConfig(
            "dualarm-aligned",
            scene_weights={"language": 1.0, "names": 1.0, "places": 1.0},
            weights={"tools": 1.0, "grippers": 1.0, "apart": 0.25, "moved": 4.0, "names": 1.0},
            scales={**_COSINE, "grippers": 1 / _GRIPPER_M},
            n_candidates=10,
            align="parts",
            object_name="",
            round_objects=ROUND_OBJECTS,
            chunk_size=16,
            stall_penalty=0.01,
            stall_radius=0.01,
            follow_bonus=0.05,
            follow_fade=0.002,
        ),
    ),
}


def paper_preset(
    objects: tuple[str, ...] = (),
    camera: str = "head",
    images: str = "patches",
    words: str = "words",
    training: bool = False,
) -> tuple[TermDescriber, RetrievalConfig]:
    """The paper's RoboTwin table: top 5, then proprio 1.0, history 0.05, image 0.1, time 0.0.

    Training adds the action chunk 0.1 and its steps 0.1. The object weight and the stage-1 weights are not
    published, but for the width-height term's 1.0: ours, all 1, are marked below.

    Args:
        objects: names of the task's objects, poses (centre x y, width, height).
        images: an image encoder by name, `patches` or `dino:<path>`.
        words: a text encoder by name, `words` or `sentence:<path>`.
        training: with the terms that need the future.
    """
    terms: dict[str, Term] = {
        "proprio": ArmsProprio(),
        "history": ArmsProprio(n_steps=8),
        "image": ImageFeature(make_image_encoder(images), camera),
        "language": Instruction(make_text_encoder(words)),
        "time": Time(),
    }
    weights = {"proprio": 1.0, "history": 0.05, "image": 0.1, "time": 0.0}
    scene_weights = {"language": 1.0, "proprio": 1.0}  # ours
    if objects:
        terms |= {"object": ObjectPoses(objects, (0, 2)), "extent": ObjectPoses(objects, (2, 4))}
        weights["object"] = 1.0  # ours
        scene_weights |= {"object": 1.0, "extent": 1.0}  # the first is ours
    if training:
        terms |= {"action": Actions(20, 16), "delta_action": Actions(20, 16, as_steps=True)}
        weights |= {"action": 0.1, "delta_action": 0.1}
    scales = {"image": math.sqrt(2), "language": math.sqrt(2)}  # of unit rows: the cosine distance
    config = RetrievalConfig("paper", scene_weights, weights, scales, n_candidates=5, chunk_size=16)
    return TermDescriber(terms), config


def robotwin_preset(sees: bool = True) -> tuple[TermDescriber, RetrievalConfig]:
    """The paper's table as far as RoboTwin's own files go, which hold no poses of objects."""
    describer, config = paper_preset()
    # Ours: words count in stage 2 too, for a pool may hold fewer demonstrations of a task than stage 1 keeps.
    # A second counts as about a millimetre and a half, enough to tell the end of a wait from its beginning,
    # and a robot that has come home from one that has not yet left.
    weights = {**config.weights, "language": 0.05, "time": 1e-5}
    if not sees:
        del weights["image"]
        describer = describer.only(set(describer.terms) - {"image"})
    name = "robotwin-single" if sees else "robotwin-blind"
    return describer, replace(config, name=name, weights=weights, object_name="")


PRESETS |= {config.name: (describer, config) for describer, config in map(robotwin_preset, (True, False))}


def preset(name: str, n_candidates: int | None = None) -> tuple[TermDescriber, RetrievalConfig]:
    """Describer and config of that name."""
    one_of("retrieval preset", name, [*PRESETS, "paper"])
    describer, config = paper_preset() if name == "paper" else PRESETS[name]
    return describer, config if n_candidates is None else replace(config, n_candidates=n_candidates)
