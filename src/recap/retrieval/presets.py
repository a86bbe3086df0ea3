"""Retrievals by name: for any robot, the paper's, and those of worlds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recap import config as configs
from recap.body import ARM
from recap.errors import InputError, one_of
from recap.features.describer import TermDescriber
from recap.features.language import make_text_encoder
from recap.features.terms import (
    Actions,
    FirstImage,
    ImageFeature,
    Instruction,
    ObjectPoses,
    Proprio,
    Term,
    Time,
)
from recap.features.vision import make_image_encoder
from recap.retrieval.aligners import ImageShift
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.paths import PATH
from recap.robot import RobotSpec
from recap.suites import Suite, suites
from recap.types import Episode

Retrieval = tuple[TermDescriber, RetrievalConfig]
POSITION_WEIGHT = 4.0  # the paper's; factor on the squared difference of positions relative to other features
FOLLOWED_S = 1000.0  # bonus in s for the moment that the last chunk led to; so large that no other is chosen
COSINE = math.sqrt(2)  # scale of unit vectors that makes the squared distance the cosine distance


@dataclass(frozen=True)
class RetrievalFile:
    """The settings of a retrieval file; unset values come from the base retrieval."""

    name: str = "file"
    base: str = "world"  # name of a retrieval; only `world` allows other terms
    images: str = "patches"  # an image encoder: patches, dino:PATH, siglip:PATH, or an installed one
    words: str = "words"  # a text encoder: words, content-words, sentence:PATH
    cameras: tuple[str, ...] | None = None  # None: all
    history: int = 8  # steps of proprioception
    objects: tuple[str, ...] = ()  # objects whose poses or boxes are compared
    weights: Mapping[str, float] = field(default_factory=dict)  # by term, at every step
    scene_weights: Mapping[str, float] = field(default_factory=dict)  # by term, on the first scene
    scales: Mapping[str, float] = field(default_factory=dict)
    n_candidates: int | None = None
    chunk_size: int | None = None
    n_action_steps: int | None = None
    reach: float | None = None  # added to the cost of a moment whose chunk the robot cannot reach
    reach_ahead: int | None = None  # frames that are checked; None: the chunk

    def build(self, robot: RobotSpec | None) -> Retrieval:
        """Describer and config for a robot."""
        if self.base == "world":
            describer, config = world_retrieval(_needed(robot), self)
        else:
            terms = ("images", "words", "cameras", "history", "objects")
            changed = [name for name in terms if getattr(self, name) != getattr(RetrievalFile(), name)]
            if changed:
                raise InputError(f"retrieval '{self.name}' sets {changed[0]}, which only base: world has")
            describer, config = find_retrieval(self.base, robot)
        for name in (*self.weights, *self.scene_weights, *self.scales):
            one_of(f"term of retrieval '{self.name}'", name, (*describer.terms, PATH))
        plain = ("n_candidates", "chunk_size", "n_action_steps", "reach", "reach_ahead")
        own = {key: getattr(self, key) for key in plain}
        merged = {
            key: {**getattr(config, key), **getattr(self, key)}
            for key in ("weights", "scene_weights", "scales")
        }
        settings: dict[str, Any] = merged | {key: value for key, value in own.items() if value is not None}
        return describer, replace(config, name=self.name, **settings)


def world_retrieval(robot: RobotSpec, file: RetrievalFile = RetrievalFile()) -> Retrieval:  # noqa: B008
    """For any robot: proprioception, its history, each camera, the instruction and the time; no objects.

    From the paper: proprioception 1.0, history 0.05, image 0.1 divided over the cameras. Ours: `path`, the
    path predicted from the first scene, and the instruction. The instruction outweighs the scene, because one
    scene may serve two tasks with similar instructions.
    """
    letters = robot.body.letters
    terms: dict[str, Term] = {
        "proprio": Proprio(letters, POSITION_WEIGHT),
        "history": Proprio(letters, POSITION_WEIGHT, n_steps=file.history),
        "language": Instruction(make_text_encoder(file.words)),
        "time": Time(),
    }
    weights = {"proprio": 1.0, "history": 0.05, "time": 1e-5, "language": 3.0, PATH: 0.1}
    scene_weights = {"language": 30.0, "proprio": 0.1, PATH: 1.0}
    scales = {"language": COSINE}
    cameras = tuple(robot.cameras) if file.cameras is None else file.cameras
    for camera in cameras:
        one_of(f"camera of robot '{robot.name}'", camera, tuple(robot.cameras))
        name = f"image/{camera}"
        terms[name] = ImageFeature(make_image_encoder(file.images), camera)
        weights[name] = scene_weights[name] = 0.1 / len(cameras)
        scales[name] = COSINE
    for thing in file.objects:
        size = robot.object_size(thing)
        if size is None:
            raise InputError(f"robot '{robot.name}' knows no object '{thing}': name it under objects")
        terms[f"object/{thing}"] = ObjectPoses((thing,), (0, size))
        weights[f"object/{thing}"] = scene_weights[f"object/{thing}"] = 1.0
    config = RetrievalConfig("world", scene_weights, weights, scales, auto_scale=True, n_candidates=10)
    return TermDescriber(terms), config


def image_retrieval(robot: RobotSpec) -> Retrieval:
    """For arms in tool space with calibrated cameras: follow the demonstration with the nearest images.

    The demonstration is followed from beginning to end, shifted by what has moved in the images.
    """
    cameras = tuple(name for name, camera in robot.cameras.items() if camera.at)
    if not cameras:
        raise InputError(
            f"retrieval 'image' compares calibrated cameras, and robot '{robot.name}' has none: give "
            "intrinsics and at of its cameras in the robot's description",
            code="robot.camera",
        )
    encoder = make_image_encoder("patches")
    terms: dict[str, Term] = {"time": Time(), "language": Instruction(make_text_encoder("words"))}
    terms |= {f"image/{camera}": FirstImage(encoder, camera) for camera in cameras}
    scene_weights = {"language": 30.0, **{f"image/{camera}": 1.0 for camera in cameras}}
    config = RetrievalConfig(
        "image",
        scene_weights,
        weights={"time": 1.0},
        scales=dict.fromkeys(scene_weights, COSINE),
        n_candidates=1,
        aligner=ImageShift(cameras),
        chunk_size=16,
        follow_bonus=FOLLOWED_S,
        follow_fade=FOLLOWED_S,
    )
    return TermDescriber(terms), config


def _needed(robot: RobotSpec | None) -> RobotSpec:
    if robot is None:
        raise InputError(
            "retrievals 'world' and 'image' need a robot: give robot.yaml or a pool that says it"
        )
    return robot


def paper_preset(objects: tuple[str, ...] = (), training: bool = False) -> Retrieval:
    """The paper's RoboTwin table: top 5, then proprio 1.0, history 0.05, image 0.1, time 0.0.

    Training adds the action chunk 0.1 and its differences 0.1. The paper does not give the object weight or
    the stage-1 weights, except 1.0 for width and height. Ours are all 1 and marked below.

    Args:
        objects: names of the task's objects; poses are (centre x y, width, height).
        training: add the terms that need future frames.
    """
    terms: dict[str, Term] = {
        "proprio": Proprio(2 * ARM, POSITION_WEIGHT),
        "history": Proprio(2 * ARM, POSITION_WEIGHT, n_steps=8),
        "image": ImageFeature(make_image_encoder("patches"), "head"),
        "language": Instruction(make_text_encoder("words")),
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
    """The paper's table for RoboTwin's own files, which contain no object poses."""
    describer, config = paper_preset()
    # Ours: the instruction also counts in stage 2, because a pool may hold fewer demonstrations of a task
    # than stage 1 keeps. A second of time counts like about 1.5 mm. That is enough to separate the end of a
    # wait from its beginning, and a robot that is back home from one that has not left yet.
    weights = {**config.weights, "language": 0.05, "time": 1e-5}
    if not sees:
        del weights["image"]
        describer = describer.only(set(describer.terms) - {"image"})
    name = "robotwin-world" if sees else "robotwin-blind"
    return describer, replace(config, name=name, weights=weights, n_action_steps=config.chunk_size // 2)


def _file(name: str) -> dict[str, Any]:
    values = configs.load_file(Path(name))
    if not isinstance(values, dict):
        raise InputError(f"{name} holds no settings of a retrieval: give weights, cameras, images, …")
    return values


def short_name(name: str) -> str:
    """The name of a retrieval for display."""
    return str(json.loads(name)["name"]) if name.startswith("{") else name


def names() -> list[str]:
    """The names of all registered retrievals."""
    return [*(name for suite in suites().values() for name in suite.retrievals()), *_OF_THE_LIBRARY]


def full_name(name: str, suite: Suite | None = None) -> str:
    """The name of a retrieval with its suite's prefix, which may be omitted if only one suite has it.

    For a file, its content as JSON, so that a checkpoint stores the whole retrieval.
    """
    if name.endswith((".yaml", ".yml", ".json")):
        read = configs.read(RetrievalFile, {"name": Path(name).stem, **_file(name)}, name)
        return json.dumps(configs.plain(read), sort_keys=True)
    if name.startswith("{"):
        return name
    owners = [s for s in suites().values() if f"{s.name}-{name}" in s.retrievals()]
    if suite is not None and suite.name in [owner.name for owner in owners]:
        return f"{suite.name}-{name}"
    return f"{owners[0].name}-{name}" if len(owners) == 1 and name not in names() else name


def usual_name(first: Episode) -> str:
    """The default retrieval of a pool that contains `first`: a suite's own, or `world`."""
    asked = (suite.retrieval_for(first, first) for suite in suites().values())
    return next((name for name in asked if name), "world")


_OF_THE_LIBRARY: Mapping[str, Callable[[RobotSpec | None], Retrieval]] = {
    "paper": lambda robot: paper_preset(),
    "robotwin-world": lambda robot: robotwin_preset(),
    "robotwin-blind": lambda robot: robotwin_preset(False),
    "image": lambda robot: image_retrieval(_needed(robot)),
    "world": lambda robot: world_retrieval(_needed(robot)),
}


def find_retrieval(name: str, robot: RobotSpec | None = None, n_candidates: int | None = None) -> Retrieval:
    """Describer and config of a named retrieval or of a retrieval file.

    Args:
        robot: the robot that `world` and `image` are built for.
        n_candidates: replaces the retrieval's own value.
    """
    name = full_name(name)
    if name.startswith("{"):
        describer, config = configs.read(RetrievalFile, json.loads(name), "retrieval").build(robot)
    elif name in _OF_THE_LIBRARY:
        describer, config = _OF_THE_LIBRARY[name](robot)
    else:
        one_of("retrieval", name, names())
        (suite,) = [suite for suite in suites().values() if name in suite.retrievals()]
        describer, config = suite.retrievals()[name]
    return describer, config if n_candidates is None else replace(config, n_candidates=n_candidates)
