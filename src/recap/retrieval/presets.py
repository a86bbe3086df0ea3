"""Retrieval by name: what serves every robot, the paper's table, and what worlds bring along."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from recap.errors import InputError, one_of
from recap.features.describer import TermDescriber
from recap.features.language import make_text_encoder
from recap.features.scene_terms import ARM
from recap.features.terms import Actions, ImageFeature, Instruction, ObjectPoses, Proprio, Term, Time
from recap.features.vision import make_image_encoder
from recap.retrieval.config import RetrievalConfig
from recap.robot import RobotSpec
from recap.suites import Suite, suites

Retrieval = tuple[TermDescriber, RetrievalConfig]
POSITION_WEIGHT = 4.0  # the paper's, of a squared difference of positions over other numbers
COSINE = math.sqrt(2)  # scale of unit rows whose squared distance is to be the cosine distance


def world_retrieval(robot: RobotSpec, images: str = "patches", words: str = "words") -> Retrieval:
    """For any robot: proprioception, its history, each camera, the instruction and the time; no object.

    The paper's weights: proprioception 1.0, history 0.05, an image 0.1 over all cameras.
    """
    letters = robot.body.letters
    terms: dict[str, Term] = {
        "proprio": Proprio(letters, POSITION_WEIGHT),
        "history": Proprio(letters, POSITION_WEIGHT, n_steps=8),
        "language": Instruction(make_text_encoder(words)),
        "time": Time(),
    }
    weights = {"proprio": 1.0, "history": 0.05, "time": 1e-5, "language": 0.05}
    scene_weights = {"language": 1.0, "proprio": 1.0}
    scales = {"language": COSINE}
    for camera in robot.cameras:
        name = f"image/{camera}"
        terms[name] = ImageFeature(make_image_encoder(images), camera)
        weights[name] = 0.1 / len(robot.cameras)
        scene_weights[name] = 1.0 / len(robot.cameras)
        scales[name] = COSINE
    config = RetrievalConfig("world", scene_weights, weights, scales, auto_scale=True, n_candidates=10)
    return TermDescriber(terms), config


def paper_preset(
    objects: tuple[str, ...] = (),
    camera: str = "head",
    images: str = "patches",
    words: str = "words",
    training: bool = False,
) -> Retrieval:
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
        "proprio": Proprio(2 * ARM, POSITION_WEIGHT),
        "history": Proprio(2 * ARM, POSITION_WEIGHT, n_steps=8),
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
    scales = {"image": COSINE, "language": COSINE}
    config = RetrievalConfig("paper", scene_weights, weights, scales, n_candidates=5, chunk_size=16)
    return TermDescriber(terms), config


def robotwin_preset(sees: bool = True) -> Retrieval:
    """The paper's table as far as RoboTwin's own files go, which hold no poses of objects."""
    describer, config = paper_preset()
    # Ours: words count in stage 2 too, for a pool may hold fewer demonstrations of a task than stage 1 keeps.
    # A second counts as about a millimetre and a half, enough to tell the end of a wait from its beginning,
    # and a robot that has come home from one that has not yet left.
    weights = {**config.weights, "language": 0.05, "time": 1e-5}
    if not sees:
        del weights["image"]
        describer = describer.only(set(describer.terms) - {"image"})
    name = "robotwin-world" if sees else "robotwin-blind"
    return describer, replace(config, name=name, weights=weights, n_action_steps=config.chunk_size // 2)


def names() -> list[str]:
    """Of every retrieval that can be asked for by name."""
    return [*(name for suite in suites().values() for name in suite.retrievals()), *_OF_THE_LIBRARY, "world"]


def full_name(name: str, suite: Suite | None = None) -> str:
    """A retrieval's name with its suite's before it, which may be left out where one suite has it."""
    owners = [s for s in suites().values() if f"{s.name}-{name}" in s.retrievals()]
    if suite is not None and suite.name in [owner.name for owner in owners]:
        return f"{suite.name}-{name}"
    return f"{owners[0].name}-{name}" if len(owners) == 1 and name not in names() else name


_OF_THE_LIBRARY: dict[str, Callable[[], Retrieval]] = {
    "paper": paper_preset,
    "robotwin-world": robotwin_preset,
    "robotwin-blind": lambda: robotwin_preset(False),
}


def find_retrieval(name: str, robot: RobotSpec | None = None, n_candidates: int | None = None) -> Retrieval:
    """Describer and config of that name.

    Args:
        robot: what `world` is built for.
        n_candidates: of stage 1, in place of the retrieval's own.
    """
    name = full_name(name)
    if name == "world":
        if robot is None:
            raise InputError(
                "retrieval 'world' is built for a robot: give robot.yaml, or a pool that says it"
            )
        describer, config = world_retrieval(robot)
    elif name in _OF_THE_LIBRARY:
        describer, config = _OF_THE_LIBRARY[name]()
    else:
        one_of("retrieval", name, names())
        (suite,) = [suite for suite in suites().values() if name in suite.retrievals()]
        describer, config = suite.retrievals()[name]
    return describer, config if n_candidates is None else replace(config, n_candidates=n_candidates)
