"""LeRobot datasets read through a mapping, and the detection of dataset formats."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import h5py  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from source_files import image, path_of, write_robomimic, write_robotwin, write_tracked

from recap.errors import DatasetError, InputError, RecapError
from recap.pool.importers import detect_format, open_source
from recap.pool.importers.checks import check_dataset
from recap.pool.lerobot import assemble, stage_episode
from recap.pool.opening import open_demonstrations
from recap.types import Episode


def make_episode(number: int, n: int = 9) -> Episode:
    objects = path_of(n, number + 7, 5).astype(np.float32)
    return Episode(
        id=f"demo-{number}",
        scene_id="scene",
        task="push the block",
        embodiment="pusher",
        fps=10,
        timestamps=np.arange(n) / 10,
        proprio=path_of(n, number, 2).astype(np.float32),
        actions=path_of(n, number + 3, 2).astype(np.float32),
        objects={"block": objects[:, :3], "cup": objects[:, 3:]},
        goal=np.array([1, 2, 3], np.float32),
        images={"top": [image(i) for i in range(n)]},
        action_space="position",
        source="expert",
        attributes={"seed": number},
    )


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    for i in range(2):
        stage_episode(tmp_path / "staged", i, make_episode(i))
    assemble(tmp_path / "staged", 2, tmp_path / "set")
    return tmp_path / "set"


def add_column(root: Path, key: str, values: pa.Array, feature: dict[str, object]) -> None:
    """Adds a column and its feature, as in a dataset written by others."""
    path = root / "data/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(path).append_column(key, values), path)
    info = json.loads((root / "meta/info.json").read_text())
    info["features"][key] = feature
    (root / "meta/info.json").write_text(json.dumps(info))


def test_without_a_mapping_an_episode_reads_as_written(dataset: Path) -> None:
    source = open_source(dataset)
    assert (source.format, len(source)) == ("lerobot", 2)
    for number, ours in enumerate(source):
        theirs = make_episode(number)
        for name in ("id", "scene_id", "task", "embodiment", "fps", "action_space", "source", "attributes"):
            assert getattr(ours, name) == getattr(theirs, name)
        for name in ("timestamps", "proprio", "actions", "goal"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        assert list(ours.objects) == ["block", "cup"]
        for name, values in theirs.objects.items():
            np.testing.assert_array_equal(ours.objects[name], values)
        assert np.abs(ours.images["top"][4].astype(float) - theirs.images["top"][4]).mean() < 6
    report = source.describe()
    assert report.lengths == (9, 9)
    assert [(f.name, f.origin) for f in report.fields if ":" in f.name][:2] == [
        ("object:block", "observation.environment_state[0:3]"),
        ("object:cup", "observation.environment_state[3:5]"),
    ]
    assert not check_dataset(source)


def test_a_mapping_can_use_any_numeric_column(dataset: Path) -> None:
    force = np.arange(18 * 3, dtype=np.float32).reshape(18, 3)
    column = pa.FixedSizeListArray.from_arrays(pa.array(force.reshape(-1)), 3)
    add_column(dataset, "observation.force", column, {"dtype": "float32", "shape": [3], "names": None})
    add_column(dataset, "note", pa.array(["x"] * 18), {"dtype": "string", "shape": [1], "names": None})
    mapping = {
        "proprio": "observation.state+observation.force[1:3]",
        "object:tee": "observation.environment_state[0:3]",
        "image:camera": "observation.images.top",
        "task": "push it",
    }
    episode = open_source(dataset, mapping=mapping)[1]
    np.testing.assert_array_equal(episode.proprio[:, 2:], force[9:, 1:])
    assert list(episode.objects) == ["tee"]
    assert list(episode.images) == ["camera"]
    assert (episode.task, episode.goal is not None) == ("push it", True)
    for key in ("note", "timestamp", "index"):
        with pytest.raises(InputError, match="no numbers"):
            open_source(dataset, mapping={"proprio": key})
    with pytest.raises(InputError, match=r"did you mean 'observation\.state'"):
        open_source(dataset, mapping={"proprio": "observation.states"})
    with pytest.raises(InputError, match=r"did you mean 'observation\.images\.top'"):
        open_source(dataset, mapping={"image:top": "observation.image.top"})


def test_another_frame_rate_than_the_datasets_is_an_error(dataset: Path) -> None:
    assert open_source(dataset, fps=10)[0].fps == 10
    with pytest.raises(InputError, match="says 10 fps, not 20"):
        open_source(dataset, fps=20)


@pytest.mark.parametrize(
    ("column", "feature"),
    [
        (pa.array(["x"] * 18), {"dtype": "float32", "shape": [1]}),
        (pa.array([1.0] * 18), {"dtype": "float32", "shape": [3]}),
        (pa.array([None, *[1.0] * 17]), {"dtype": "float32", "shape": [1]}),
        (pa.array([[1.0]] * 17 + [[1.0, 2.0]]), {"dtype": "float32", "shape": [1]}),
        (pa.array([1.0] * 18), {"dtype": "float32", "shape": [2**40]}),
        (pa.array([1.0] * 18), {"dtype": "float32", "shape": ["wide"]}),
        (pa.array([1.0] * 18), {"shape": [1]}),
    ],
)
def test_a_column_that_contradicts_its_feature_is_an_error(
    dataset: Path, column: pa.Array, feature: dict[str, object]
) -> None:
    add_column(dataset, "observation.force", column, feature)
    with pytest.raises(RecapError) as caught:
        check_dataset(open_source(dataset, mapping={"proprio": "observation.force"}))
    assert "\n" not in str(caught.value)


def test_the_format_is_detected_from_the_path(tmp_path: Path, dataset: Path) -> None:
    assert detect_format(dataset) == "lerobot"
    assert detect_format(write_robomimic(tmp_path / "lift.hdf5")) == "robomimic"
    folder = write_robotwin(tmp_path / "task/config", 1)
    assert detect_format(folder) == detect_format(folder / "data") == "robotwin"
    assert detect_format(folder / "data/episode0.hdf5") == "robotwin"
    assert detect_format(write_tracked(tmp_path / "takes/a").parent) == "tracked"


def test_an_unknown_format_error_says_what_was_found_and_expected(tmp_path: Path, dataset: Path) -> None:
    folder = tmp_path / "bags"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.bag", "b.bag", "deep/c.json"):
        (folder / name).write_text("")
    with pytest.raises(DatasetError, match=r"found files: 2 \.bag, 1 \.json; expected a LeRobot folder"):
        open_source(folder)
    with pytest.raises(DatasetError, match=r"known format: a \.bag file"):
        open_source(folder / "a.bag")
    with pytest.raises(DatasetError, match="did you mean 'set'"):
        open_source(tmp_path / "sett")
    with pytest.raises(InputError, match="did you mean 'robomimic'"):
        open_source(dataset, format="robomimik")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["weights/layer0"] = np.zeros(3)
    with pytest.raises(DatasetError, match="found the groups 'weights'"):
        open_source(tmp_path / "other.h5")
    (tmp_path / "other.h5").unlink()
    with pytest.raises(DatasetError, match=r"did you mean '.*/set'"):
        open_source(tmp_path)
    write_robomimic(folder / "deep/lift.hdf5")
    with pytest.raises(DatasetError, match=r"did you mean '.*/lift\.hdf5'"):
        open_source(folder)
    with pytest.raises(DatasetError, match=r"did you mean '.*/take'"):
        open_source(write_tracked(tmp_path / "take") / "poses.csv")
    with pytest.raises(DatasetError, match=r"did you mean '.*/task/config'"):
        open_source(write_robotwin(tmp_path / "twin/task/config", 1).parent)
    for odd in ("a\0b", "x" * 5000):
        with pytest.raises(DatasetError):
            open_source(tmp_path / odd)
    (tmp_path / "text.hdf5").write_text("no HDF5")
    with pytest.raises(DatasetError, match="cannot be read"):
        open_source(tmp_path / "text.hdf5")


@pytest.mark.parametrize("format_", ["lerobot", "robomimic", "robotwin", "tracked"])
def test_opening_with_the_wrong_format_is_a_one_line_error(tmp_path: Path, format_: str) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["weights/layer0"] = np.zeros(3)
    for path in (tmp_path, tmp_path / "other.h5"):
        with pytest.raises(RecapError) as caught:
            open_source(path, format=format_)
        assert "\n" not in str(caught.value)


def test_a_source_supports_slices_and_negative_indices(dataset: Path) -> None:
    source = open_source(dataset)
    assert [episode.id for episode in source[::-1]] == ["demo-1", "demo-0"]
    assert source[-1].id == "demo-1"
    with pytest.raises(IndexError):
        source[2]
    assert replace(source[0], id="x").id == "x"


def test_a_transform_is_applied_to_every_episode_when_read(dataset: Path) -> None:
    def doubled(episode: Episode) -> Episode:
        return replace(episode, proprio=np.repeat(episode.proprio, 2, axis=1))

    plain, source = open_source(dataset), open_source(dataset, transform=doubled)
    np.testing.assert_array_equal(source[1].proprio, np.repeat(plain[1].proprio, 2, axis=1))
    assert {f.name: f.shape for f in source.describe().fields}["proprio"] == (9, 4)
    view = open_demonstrations(str(dataset), transform=doubled)
    assert view.episode("demo-0").proprio.shape == (9, 4)


@pytest.mark.parametrize(
    ("names", "flat"),
    [
        (["x", "y"], ("x", "y")),
        ([["x"], ["y"]], ("x", "y")),
        ({"motors": ["x", "y"]}, ("x", "y")),
        ({"left": {"motors": ["x"]}, "right": ["y"]}, ("x", "y")),
        ({"y": 1, "x": 0}, ("x", "y")),
        (None, ()),
        (["x"], ()),
    ],
)
def test_nested_feature_names_are_flattened(dataset: Path, names: object, flat: tuple[str, ...]) -> None:
    info = json.loads((dataset / "meta/info.json").read_text())
    info["features"]["observation.state"]["names"] = names
    (dataset / "meta/info.json").write_text(json.dumps(info))
    keys = {key.name: key for key in open_source(dataset).describe().keys}
    assert keys["observation.state"].names == flat
