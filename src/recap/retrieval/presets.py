"""Retrieval by name: what serves every robot, the paper's table, and what worlds bring along."""

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
POSITION_WEIGHT = 4.0  # the paper's, of a squared difference of positions over other numbers
FOLLOWED_S = 1000.0  # s by which the moment to which the last chunk led counts nearer: none else is taken
COSINE = math.sqrt(2)  # scale of unit rows whose squared distance is to be the cosine distance


@dataclass(frozen=True)
class RetrievalFile:
    """What a retrieval file says; what it leaves out is as the retrieval that it is based on has it."""

    name: str = "file"
    base: str = "world"  # a retrieval by name; of `world` the terms can be changed too
    images: str = "patches"  # an image encoder: patches, dino:PATH, siglip:PATH, or an installed one
    words: str = "words"  # a text encoder: words, content-words, sentence:PATH
    cameras: tuple[str, ...] | None = None  # none: all
    history: int = 8  # steps of proprioception
    objects: tuple[str, ...] = ()  # whose poses or boxes are compared
    weights: Mapping[str, float] = field(default_factory=dict)  # term -> its weight at every step
    scene_weights: Mapping[str, float] = field(default_factory=dict)  # and on the first scene
    scales: Mapping[str, float] = field(default_factory=dict)
    n_candidates: int | None = None
    chunk_size: int | None = None
    n_action_steps: int | None = None
    reach: float | None = None  # added to the cost of a moment whose chunk the robot cannot reach
    reach_ahead: int | None = None  # frames that count for it; none: the chunk

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
    """For any robot: proprioception, its history, each camera, the instruction and the time; no object.

    The paper's weights: proprioception 1.0, history 0.05, an image 0.1 over all cameras. Ours: the path that
    the first scene leads to, which says what of an image matters, and words, which outweigh it: the same
    scene may serve two tasks whose words are nearly alike.
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
    """For arms in tool space with calibrated cameras: the demonstration whose first images are nearest.

    It is followed from its beginning to its end, moved along with what has moved in the images.
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

    Training adds the action chunk 0.1 and its steps 0.1. The object weight and the stage-1 weights are not
    published, but for the width-height term's 1.0: ours, all 1, are marked below.

    Args:
        objects: names of the task's objects, poses (centre x y, width, height).
        training: with the terms that need the future.
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


def _file(name: str) -> dict[str, Any]:
    values = configs.load_file(Path(name))
    if not isinstance(values, dict):
        raise InputError(f"{name} holds no settings of a retrieval: give weights, cameras, images, …")
    return values


def short_name(name: str) -> str:
    """A retrieval's name as it is shown."""
    return str(json.loads(name)["name"]) if name.startswith("{") else name


def names() -> list[str]:
    """Of every retrieval that can be asked for by name."""
    return [*(name for suite in suites().values() for name in suite.retrievals()), *_OF_THE_LIBRARY]


def full_name(name: str, suite: Suite | None = None) -> str:
    """A retrieval's name with its suite's before it, which may be left out where one suite has it.

    Of a file, its content as JSON: so it is kept whole wherever a name is, as in a checkpoint.
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
    """What a pool is retrieved from by where nothing is asked for: a suite's own, or `world`.

    Args:
        first: a demonstration of the pool.
    """
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
    """Describer and config of that name, or of a retrieval file.

    Args:
        robot: what `world` is built for.
        n_candidates: of stage 1, in place of the retrieval's own.
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
