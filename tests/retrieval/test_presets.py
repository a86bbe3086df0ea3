"""Retrieval by name or by a file, which is kept whole wherever a name is."""

import json
from pathlib import Path

import pytest

from recap.errors import InputError
from recap.features.describer import TermDescriber
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.paths import PATH
from recap.retrieval.presets import find_retrieval, full_name, short_name
from recap.robot import CameraSpec, ObjectSpec, RobotSpec, arm_features

ROBOT = RobotSpec(
    "arm",
    30.0,
    arm_features("tool"),
    cameras={"front": CameraSpec(), "wrist": CameraSpec()},
    objects={"cup": ObjectSpec("pose3")},
)


def written(folder: Path, text: str) -> str:
    file = folder / "mine.yaml"
    file.write_text(text, "utf-8")
    return str(file)


def found(folder: Path, text: str) -> tuple[TermDescriber, RetrievalConfig]:
    return find_retrieval(written(folder, text), ROBOT)


def test_a_file_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    describer, config = found(
        tmp_path,
        "cameras: [wrist]\nhistory: 4\nobjects: [cup]\nn_candidates: 3\nchunk_size: 16\n"
        "weights: {image/wrist: 0.5, path: 0}\n",
    )
    world, usual = find_retrieval("world", ROBOT)
    assert config.name == "mine"
    assert sorted(describer.terms.keys() ^ world.terms.keys()) == ["image/front", "object/cup"]
    assert describer.dims["history"] == 4 * 10
    assert (config.n_candidates, config.chunk_size) == (3, 16)
    assert (config.weights["image/wrist"], config.weights[PATH], config.weights["object/cup"]) == (
        0.5,
        0,
        1.0,
    )
    assert config.weights["proprio"] == usual.weights["proprio"]
    assert config.scene_weights[PATH] == usual.scene_weights[PATH]


def test_the_content_travels_in_place_of_a_name(tmp_path: Path) -> None:
    file = written(tmp_path, "cameras: [wrist]\nweights: {proprio: 2.0}\n")
    kept = full_name(file)
    describer, config = find_retrieval(file, ROBOT)
    Path(file).unlink()
    again, same = find_retrieval(kept, ROBOT)
    assert (again.fingerprint, same) == (describer.fingerprint, config)
    assert full_name(kept) == kept
    assert short_name(kept) == "mine"
    assert json.loads(kept)["weights"] == {"proprio": 2.0}
    assert short_name("world") == "world"


def test_another_base_keeps_its_terms(tmp_path: Path) -> None:
    _, config = found(tmp_path, "base: robotwin-blind\nweights: {proprio: 3.0}\n")
    assert config.weights["proprio"] == 3.0
    assert config.chunk_size == 16


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("wieghts: {proprio: 1}\n", "wieghts"),
        ("weights: {propriu: 1}\n", "propriu"),
        ("cameras: [side]\n", "side"),
        ("objects: [plate]\n", "plate"),
        ("base: paper\ncameras: [front]\n", "cameras"),
        ("images: dnio:x\n", "dnio:x"),
        ("weights: {proprio: -1}\n", "negative"),
        ("- 1\n", "mine.yaml"),
    ],
)
def test_what_a_file_cannot_say_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        found(tmp_path, text)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"gone\.yaml"):
        find_retrieval("gone.yaml", ROBOT)
    with pytest.raises(InputError, match="robot"):
        find_retrieval("world")
