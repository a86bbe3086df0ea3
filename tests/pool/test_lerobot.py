"""LeRobot datasets that we write: exact round trips, all-or-nothing writes, one-line errors for damage."""

from __future__ import annotations

import json
import pickle
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.errors import DatasetError, InputError, RunDirectoryError
from recap.pool import lerobot_write
from recap.pool.importers import Source, open_source
from recap.pool.lerobot import Sizes, assemble, stage_episode, staged_indices
from recap.types import Episode

TINY = Sizes(data_mb=0.004, video_mb=0.004, chunk_size=2)


def make_episode(
    number: int = 0,
    *,
    n: int = 9,
    state_dim: int = 2,
    action_dim: int = 2,
    objects: dict[str, int] | None = None,
    goal_dim: int = 3,
    cameras: tuple[str, ...] = ("top",),
    fps: float = 10,
    task: str = "push the block",
) -> Episode:
    rng = np.random.default_rng(number)
    levels = [20 + (17 * number + 9 * i) % 200 for i in range(n)]
    return Episode(
        id=f"demo-{number}",
        scene_id=f"scene-{number % 2}",
        task=task,
        embodiment="pusher",
        fps=fps,
        timestamps=np.arange(n) / fps,
        proprio=rng.normal(size=(n, state_dim)).astype(np.float32),
        actions=rng.normal(size=(n, action_dim)).astype(np.float32),
        objects={
            name: rng.normal(size=(n, width)).astype(np.float32)
            for name, width in ({"block": 3} if objects is None else objects).items()
        },
        goal=rng.normal(size=goal_dim).astype(np.float32) if goal_dim else None,
        images={camera: [np.full((32, 48, 3), level, np.uint8) for level in levels] for camera in cameras},
        action_space="position in pixels",
        success=number % 3 != 1,
        source="expert",
        attributes={"angle": 0.1 * number, "seed": number, "note": "ä\n", "fast": True},
    )


def build(root: Path, episodes: list[Episode], sizes: Sizes | None = None) -> Source:
    folder = root.with_name(f"{root.name}-staged")
    for index, episode in enumerate(episodes):
        stage_episode(folder, index, episode)
    assemble(folder, len(episodes), root, sizes=sizes)
    return open_source(root)


def decode(source: Source) -> None:
    """Read every value and decode every frame."""
    for episode in source:
        for frames in episode.images.values():
            assert len(list(frames)) == len(episode)


def assert_same(read: Episode, written: Episode) -> None:
    for name in ("id", "scene_id", "task", "embodiment", "fps", "action_space", "success", "source"):
        assert getattr(read, name) == getattr(written, name)
    assert dict(read.attributes) == dict(written.attributes)
    for name in ("timestamps", "proprio", "actions"):
        assert getattr(read, name).dtype == getattr(written, name).dtype
        assert getattr(read, name).tobytes() == getattr(written, name).tobytes()
    assert read.objects.keys() == written.objects.keys()
    for name, values in written.objects.items():
        assert read.objects[name].tobytes() == values.tobytes()
    assert (read.goal is None) == (written.goal is None)
    if read.goal is not None and written.goal is not None:
        assert read.goal.tobytes() == written.goal.tobytes()
    assert read.images.keys() == written.images.keys()
    for camera, frames in written.images.items():
        assert len(read.images[camera]) == len(frames)
        error = np.abs(np.stack(list(read.images[camera])).astype(float) - np.stack(list(frames)))
        assert error.mean() < 2.5


words = st.text("abcäÖ_-9", min_size=1, max_size=6)
names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6)
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    state_dim=st.integers(1, 3),
    action_dim=st.integers(1, 3),
    objects=st.dictionaries(words, st.integers(1, 3), max_size=3),
    goal_dim=st.integers(0, 3),
    cameras=st.sampled_from([(), ("top",), ("a.b", "wrist")]),
    fps=st.sampled_from([1.0, 10, 16.7, 30, 1 / 0.06]),
    number=st.floats(-1e9, 1e9, width=32),  # the range that a pool accepts
    text=words,
    attributes=st.dictionaries(names, st.one_of(names, st.integers(), finite, st.booleans()), max_size=2),
)
def test_round_trip(
    lengths: list[int],
    state_dim: int,
    action_dim: int,
    objects: dict[str, int],
    goal_dim: int,
    cameras: tuple[str, ...],
    fps: float,
    number: float,
    text: str,
    attributes: dict[str, Any],
) -> None:
    shape: dict[str, Any] = {"objects": objects, "goal_dim": goal_dim, "cameras": cameras, "fps": fps}
    shape |= {"state_dim": state_dim, "action_dim": action_dim}
    episodes = [make_episode(i, n=n, **shape) for i, n in enumerate(lengths)]
    episodes[0].proprio[0, 0] = number
    episodes[-1] = replace(episodes[-1], task=text, id=text, attributes=attributes)
    with tempfile.TemporaryDirectory() as folder:
        dataset = build(Path(folder) / "set", episodes)
        assert len(dataset) == len(episodes)
        for read, written in zip(dataset, episodes, strict=True):
            assert_same(read, written)


def test_a_large_dataset_is_split_into_several_files(tmp_path: Path) -> None:
    episodes = [make_episode(i, n=20 + i, cameras=("top", "wrist")) for i in range(9)]
    dataset = build(tmp_path / "set", episodes, TINY)
    for pattern in ("data/*/*.parquet", "videos/observation.images.top/*/*.mp4", "meta/episodes/*/*.parquet"):
        files = sorted(
            path.relative_to(tmp_path / "set").as_posix() for path in (tmp_path / "set").glob(pattern)
        )
        assert len(files) > 2
        assert any("chunk-001/file-000" in name for name in files)
    decode(dataset)
    for index in (8, 0, 4, *range(9)):
        assert_same(dataset[index], episodes[index])
    assert_same(pickle.loads(pickle.dumps(dataset[-1])), episodes[-1])
    assert [episode.id for episode in dataset[2:4]] == ["demo-2", "demo-3"]


def test_small_episodes_share_one_file(tmp_path: Path) -> None:
    episodes = [make_episode(i, n=3 + i) for i in range(6)]
    dataset = build(tmp_path / "set", episodes)
    files = sorted(
        p.relative_to(tmp_path / "set").as_posix() for p in (tmp_path / "set").rglob("*") if p.is_file()
    )
    assert files == [
        "data/chunk-000/file-000.parquet",
        "meta/episodes/chunk-000/file-000.parquet",
        "meta/info.json",
        "meta/stats.json",
        "meta/tasks.parquet",
        "videos/observation.images.top/chunk-000/file-000.mp4",
    ]
    for read, written in zip(dataset, episodes, strict=True):
        assert_same(read, written)


def test_equal_episodes_give_equal_bytes(tmp_path: Path) -> None:
    episodes = [make_episode(i) for i in range(4)]
    contents = []
    for name in ("a", "b"):
        build(tmp_path / name, episodes, TINY)
        root = tmp_path / name
        contents.append({p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()})
    assert contents[0] == contents[1]


def test_columns_and_statistics_follow_the_lerobot_format(tmp_path: Path) -> None:
    episodes = [make_episode(0, n=30), make_episode(1, n=10, task="again")]
    build(tmp_path / "set", episodes)
    table = pq.read_table(tmp_path / "set/data/chunk-000/file-000.parquet")
    assert table.schema.field("observation.state").type == pa.list_(pa.field("element", pa.float32()), 2)
    assert table["index"].to_pylist() == list(range(40))
    assert table["task_index"].to_pylist() == [0] * 30 + [1] * 10
    assert [i for i, done in enumerate(table["next.done"].to_pylist()) if done] == [29, 39]
    assert [i for i, won in enumerate(table["next.success"].to_pylist()) if won] == [29]
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    names = info["features"]["observation.environment_state"]["names"]
    assert (names, info["robot_type"]) == (["block.0", "block.1", "block.2"], "pusher")
    stats = json.loads((tmp_path / "set/meta/stats.json").read_text())
    states = np.concatenate([episode.proprio for episode in episodes]).astype(float)
    for name in ("min", "max", "mean", "std"):
        np.testing.assert_allclose(stats["observation.state"][name], getattr(states, name)(0), atol=1e-6)
    assert stats["observation.state"]["count"] == [40]
    assert np.shape(stats["observation.images.top"]["mean"]) == (3, 1, 1)
    assert 0 < np.max(stats["observation.images.top"]["max"]) <= 1
    rows = pq.read_table(tmp_path / "set/meta/episodes/chunk-000/file-000.parquet")
    assert np.shape(rows["stats/observation.images.top/q99"][0].as_py()) == (3, 1, 1)
    tasks = pq.read_table(tmp_path / "set/meta/tasks.parquet")
    assert tasks.to_pydict() == {"task_index": [0, 1], "task": ["push the block", "again"]}
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]


def test_assemble_reports_progress(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    for index in range(3):
        stage_episode(tmp_path / "staged", index, make_episode(index))
    assemble(
        tmp_path / "staged", 3, tmp_path / "set", progress=lambda done, total: steps.append((done, total))
    )
    assert steps == [(i, 6) for i in range(1, 7)]


def test_interrupted_staging_files_are_ignored_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert staged_indices(tmp_path / "nowhere") == set()
    stage_episode(tmp_path, 0, make_episode(0))
    stage_episode(tmp_path, 2, make_episode(2))
    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", _no_space)
        with pytest.raises(OSError, match="space"):
            stage_episode(tmp_path, 1, make_episode(1))
        with pytest.raises(
            OSError, match="space"
        ):  # staging an index again invalidates it until it is complete
            stage_episode(tmp_path, 2, make_episode(3))
    (tmp_path / ".episode-000004.parquet.partial").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    assert staged_indices(tmp_path) == {0}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "episode-000000.parquet",
        "episode-000000.top.mp4",
        "notes.txt",
    ]


@pytest.mark.parametrize("broken", ["concatenate_videos", "_aggregate", "_pandas_index"])
def test_a_failed_assemble_leaves_no_dataset_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    stage_episode(tmp_path / "staged", 0, make_episode(0))
    with monkeypatch.context() as patch:
        patch.setattr(lerobot_write, broken, _no_space)
        with pytest.raises(OSError, match="space"):
            assemble(tmp_path / "staged", 1, tmp_path / "set")
    assert [path.name for path in tmp_path.iterdir()] == ["staged"]
    (tmp_path / ".set.partial/data").mkdir(parents=True)  # as a killed run leaves it
    assemble(tmp_path / "staged", 1, tmp_path / "set")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set", "staged"]


def test_assemble_refuses_missing_or_inconsistent_episodes(tmp_path: Path) -> None:
    staged = tmp_path / "staged"
    stage_episode(staged, 0, make_episode(0))
    with pytest.raises(DatasetError, match="first 1"):
        assemble(staged, 2, tmp_path / "set")
    with pytest.raises(InputError):
        assemble(staged, 0, tmp_path / "set")
    stage_episode(staged, 1, make_episode(1, state_dim=3))
    with pytest.raises(InputError, match=r"observation\.state"):
        assemble(staged, 2, tmp_path / "set")
    with pytest.raises(RunDirectoryError, match="already exists"):
        assemble(staged, 1, staged)
    (staged / "episode-000001.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(DatasetError, match="collect it again"):
        assemble(staged, 2, tmp_path / "set")
    (staged / "episode-000000.top.mp4").unlink()
    with pytest.raises(DatasetError, match="has lost episode"):
        assemble(staged, 1, tmp_path / "set")
    assert [path.name for path in tmp_path.iterdir()] == ["staged"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"timestamps": np.empty(0)}, "empty"),
        ({"timestamps": np.arange(9) / 10 + 1}, "resample"),
        ({"fps": 0.0}, "frame rate"),
        ({"proprio": np.full((9, 2), np.nan, np.float32)}, "NaN"),
        ({"actions": np.zeros((8, 2), np.float32)}, "(8, 2)"),
        ({"objects": {"block": np.zeros((9, 0), np.float32)}}, "object 'block'"),
        ({"images": {"../top": [np.zeros((32, 32, 3), np.uint8)] * 9}}, "cannot name a file"),
        ({"images": {"top": [np.zeros((32, 32, 3), np.uint8)] * 8}}, "8 frames"),
        ({"attributes": {"x": float("nan")}}, "attribute 'x'"),
        ({"attributes": {"x": [1]}}, "attribute 'x'"),
    ],
)
def test_staging_refuses_unusable_episodes(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        stage_episode(tmp_path, 0, replace(make_episode(), **change))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_without_our_columns_is_read_with_defaults(tmp_path: Path) -> None:
    """Variable-length lists, none of our columns, no goal or objects, another camera key."""
    build(tmp_path / "set", [make_episode(0), make_episode(1)])
    root = tmp_path / "set"
    key, other = "observation.images.top", "observation.image"
    edit_table(root / EPISODES, lambda t: t.drop([c for c in t.column_names if c.startswith("recap/")]))
    edit_table(root / EPISODES, lambda t: t.rename_columns([c.replace(key, other) for c in t.column_names]))
    edit_table(
        root / DATA, lambda t: t.drop(["observation.environment_state", "observation.goal", "next.success"])
    )
    plain = pa.list_(pa.float32())
    edit_table(
        root / DATA, lambda t: t.set_column(0, "observation.state", t["observation.state"].cast(plain))
    )
    shutil.move(root / "videos" / key, root / "videos" / other)

    def forget(info: dict[str, Any]) -> None:
        features = info["features"]
        features[other] = features.pop(key)
        for name in ("observation.environment_state", "observation.goal", "next.success"):
            del features[name]
        info["robot_type"] = None

    edit_info(root, forget)
    episode = open_source(root)[1]
    assert (episode.id, episode.scene_id, episode.embodiment) == ("set/1", "set/1", "unknown")
    assert (episode.goal, episode.objects, episode.attributes, episode.success) == (None, {}, {}, True)
    assert list(episode.images) == ["image"]
    assert episode.task == "push the block"
    assert episode.proprio.tobytes() == make_episode(1).proprio.tobytes()


def test_an_environment_state_without_our_column_names_is_one_object(tmp_path: Path) -> None:
    build(tmp_path / "set", [make_episode(0)])
    for other in (None, ["x", "y", "z"], {"motors": ["a"]}, ["block.0", "block.2", "block.1"]):
        edit_info(tmp_path / "set", partial(rename_objects, other))
        objects = open_source(tmp_path / "set")[0].objects
        assert objects["environment"].tobytes() == make_episode(0).objects["block"].tobytes()


def test_uneven_timestamps_are_kept(tmp_path: Path) -> None:
    times = np.cumsum(np.full(9, 0.13)).astype(np.float32)
    build(tmp_path / "set", [make_episode(0)])
    edit_table(tmp_path / "set" / DATA, lambda t: set_column(t, "timestamp", pa.array(times)))
    assert (open_source(tmp_path / "set")[0].timestamps == times.astype(np.float64)).all()


OBJECTS = "observation.environment_state"
DATA = "data/chunk-000/file-000.parquet"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
VIDEO = "videos/observation.images.top/chunk-000/file-000.mp4"


def _no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def edit_table(path: Path, change: Callable[[Any], Any]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def set_column(table: Any, name: str, values: Any) -> Any:
    return table.set_column(table.column_names.index(name), name, values)


def edit_info(root: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    info = json.loads((root / "meta/info.json").read_text())
    change(info)
    (root / "meta/info.json").write_text(json.dumps(info))


def rename_objects(names: object, info: dict[str, Any]) -> None:
    info["features"][OBJECTS]["names"] = names


def put_nan(table: Any) -> Any:
    values = np.zeros((table.num_rows, 2), np.float32)
    values[3, 1] = np.nan
    return set_column(table, "action", pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 2))


def put_null(table: Any) -> Any:
    return set_column(
        table, "frame_index", pc.if_else(pc.equal(table["index"], 4), None, table["frame_index"])
    )


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no info.json": lambda root: (root / "meta/info.json").unlink(),
    "half an info.json": lambda root: truncate(root / "meta/info.json"),
    "info.json is a list": lambda root: (root / "meta/info.json").write_text("[]"),
    "another version": lambda root: edit_info(root, lambda info: info.update(codebase_version="v1.6")),
    "no version": lambda root: edit_info(root, lambda info: info.pop("codebase_version")),
    "another width": lambda root: edit_info(root, lambda i: i["features"]["action"].update(shape=[7])),
    "single images": lambda r: edit_info(
        r, lambda i: i["features"]["observation.images.top"].update(dtype="image")
    ),
    "a path of other fields": lambda root: edit_info(root, lambda info: info.update(data_path="{x}.parquet")),
    "a path outside": lambda root: edit_info(root, lambda info: info.update(data_path="/etc/{file_index}")),
    "endless rate": lambda root: edit_info(root, lambda info: info.update(fps=float("inf"))),
    "no rate": lambda root: edit_info(root, lambda info: info.update(fps=0)),
    "more episodes": lambda root: edit_info(root, lambda info: info.update(total_episodes=9)),
    "more frames": lambda root: edit_info(root, lambda info: info.update(total_frames=9)),
    "half a data file": lambda root: truncate(root / DATA),
    "no data file": lambda root: (root / DATA).unlink(),
    "half an episode table": lambda root: truncate(root / EPISODES),
    "no episode table": lambda root: (root / EPISODES).unlink(),
    "half a video": lambda root: truncate(root / VIDEO),
    "no video": lambda root: (root / VIDEO).unlink(),
    "a row missing": lambda root: edit_table(root / DATA, lambda t: t.slice(0, t.num_rows - 1)),
    "a column missing": lambda root: edit_table(root / DATA, lambda t: t.drop(["action"])),
    "an episode column missing": lambda root: edit_table(root / EPISODES, lambda t: t.drop(["length"])),
    "a column of text": lambda r: edit_table(
        r / DATA, lambda t: set_column(t, "action", pa.array(["x"] * 18))
    ),
    "a shorter video": lambda root: shutil.copy(
        root.parent / "set-staged/episode-000000.top.mp4", root / VIDEO
    ),
}
DEEP_DAMAGE: dict[str, Callable[[Path], object]] = {
    "NaN": lambda root: edit_table(root / DATA, put_nan),
    "null": lambda root: edit_table(root / DATA, put_null),
    "a row twice": lambda r: edit_table(r / DATA, lambda t: t.take([0, 0, *range(2, 18)])),
    "a row of another episode": lambda r: edit_table(
        r / DATA, lambda t: t.take([*range(8), 9, *range(9, 18)])
    ),
    "time that stands still": lambda r: edit_table(
        r / DATA, lambda t: set_column(t, "timestamp", pa.array(np.zeros(18, np.float32)))
    ),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "set"
    decode(build(root, [make_episode(0), make_episode(1)]))
    return root


@pytest.mark.parametrize("kind", [*DAMAGE, *DEEP_DAMAGE])
def test_damage_is_a_one_line_error_with_the_path_and_what_to_do(
    tmp_path: Path, whole: Path, kind: str
) -> None:
    shutil.copytree(whole.parent, tmp_path, dirs_exist_ok=True)
    root = tmp_path / "set"
    (DAMAGE | DEEP_DAMAGE)[kind](root)
    with pytest.raises(DatasetError) as caught:
        decode(open_source(root))
    assert "\n" not in str(caught.value)
    assert str(root) in str(caught.value)
    assert "; " in str(caught.value)  # what to do


def test_damaged_video_frames_are_found_when_decoded(tmp_path: Path, whole: Path) -> None:
    """A video with an intact index and damaged frames is found only by decoding it."""
    shutil.copytree(whole, tmp_path / "set")
    video = tmp_path / "set" / VIDEO
    content = bytearray(video.read_bytes())
    start = content.index(b"mdat") + 4
    content[start : start + 900] = bytes(900)
    video.write_bytes(content)
    with pytest.raises(DatasetError, match="cannot be read"):
        decode(open_source(tmp_path / "set"))
