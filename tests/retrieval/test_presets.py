"""Retrievals by name or from a file. The file's content is stored wherever a name would be."""

import json
from pathlib import Path

import numpy as np
import pytest

from recap.body import Feature, arm_features
from recap.errors import InputError
from recap.features.describer import TermDescriber
from recap.pool.memory import MemoryPool
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.explain import query_at
from recap.retrieval.paths import PATH
from recap.retrieval.presets import RetrievalFile, find_retrieval, full_name, short_name
from recap.retrieval.retriever import Retriever
from recap.robot import CameraSpec, ObjectSpec, RobotSpec
from recap.types import Episode

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


def test_a_file_changes_only_the_settings_it_names(tmp_path: Path) -> None:
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


def test_a_files_content_is_stored_in_place_of_its_name(tmp_path: Path) -> None:
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


def test_a_file_with_another_base_keeps_the_bases_settings(tmp_path: Path) -> None:
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
def test_an_invalid_file_is_an_error_that_names_the_mistake(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        found(tmp_path, text)


def test_a_missing_file_or_robot_is_an_error() -> None:
    with pytest.raises(InputError, match=r"gone\.yaml"):
        find_retrieval("gone.yaml", ROBOT)
    with pytest.raises(InputError, match="robot"):
        find_retrieval("world")


def test_the_same_scene_of_a_similarly_worded_task_is_not_matched() -> None:
    """Each of six scenes has two demonstrations, to the red dot and to the blue dot."""
    blank = RobotSpec("arm", 10.0, (Feature("place", "position", 2),), objects={"things": ObjectSpec("box")})
    ends = np.random.default_rng(0).uniform(-1, 1, (6, 4)).astype(np.float32)

    def shown(number: int, colour: str) -> Episode:
        first = 0 if colour == "red" else 2
        way = np.linspace(0, 1, 20)[:, None] * ends[number, first : first + 2]
        things = np.repeat(ends[number][None], 20, axis=0)
        name = f"{colour}/{number}"
        fields = (np.arange(20) / 10, way.astype(np.float32), way.astype(np.float32))
        return Episode(
            name, name, f"grasp the {colour} dot", "hand", 10.0, *fields, objects={"things": things}
        )

    pool = MemoryPool([shown(i, colour) for i in range(6) for colour in ("red", "blue")])
    spec = RetrievalFile("test", objects=("things",), weights={"object/things": 0.1}).build(blank)
    for number in range(6):
        query = query_at(shown(number, "red"), 3, frozenset({f"red/{number}"}))
        match = Retriever(pool, *spec).retrieve(query).matches[0]
        assert match.ref.episode_id.startswith("red/")
