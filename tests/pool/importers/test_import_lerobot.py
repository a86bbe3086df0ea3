"""LeRobot datasets of other tools: older versions, image columns, AV1, other keys, and damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_files import LENGTHS, pictures, write_film, write_newer, write_older
from source_files import path_of

from recap.errors import DatasetError, InputError
from recap.pool.importers import open_source
from recap.pool.importers.checks import check_dataset

FRONT = "observation.images.front"
FILM = f"videos/chunk-000/{FRONT}/episode_000001.mp4"


def check(root: Path, *, tolerance: float = 6.0, **options: Any) -> None:
    source = open_source(root, **options)
    assert [len(episode) for episode in source] == list(LENGTHS)
    for number, episode in enumerate(source):
        assert episode.id == f"{root.name}/{number}"
        assert (episode.embodiment, episode.fps) == ("so101", 10)
        np.testing.assert_array_equal(episode.proprio, path_of(len(episode), number, 6).astype(np.float32))
        np.testing.assert_array_equal(
            episode.actions, path_of(len(episode), number + 50, 6).astype(np.float32)
        )
        for frames in episode.images.values():
            for wanted, read in zip(pictures(len(episode), number), frames, strict=True):
                assert np.abs(wanted.astype(float) - read).mean() < tolerance
    assert not [finding for finding in check_dataset(source) if finding.severity == "error"]


@pytest.mark.parametrize("version", ["v2.0", "v2.1"])
@pytest.mark.parametrize("codec", ["libx264", "libsvtav1"])
def test_v2_datasets_with_one_file_per_episode_are_read(tmp_path: Path, version: str, codec: str) -> None:
    root = write_older(tmp_path / "set", version=version, codec=codec)
    check(root)
    assert [episode.task for episode in open_source(root)] == ["task 0", "task 1", "task 0"]
    keys = {key.name: key for key in open_source(root).describe().keys}
    names = tuple(f"joint_{i}.pos" for i in range(6))
    assert keys["observation.state"].names == keys["action"].names == names


@pytest.mark.parametrize("codec", ["libx264", "libsvtav1"])
def test_v3_datasets_with_concatenated_videos_are_read(tmp_path: Path, codec: str) -> None:
    check(write_newer(tmp_path / "set", codec=codec))


def test_image_columns_of_png_or_jpeg_bytes_are_read(tmp_path: Path) -> None:
    check(write_newer(tmp_path / "newer", dtype="image"), tolerance=0.1)
    root = write_older(tmp_path / "set", dtype="image")
    check(root, tolerance=2.0)
    frames = open_source(root)[0].images["front"]
    np.testing.assert_array_equal(frames[5], pictures(9)[5])  # PNG is lossless, and the order is RGB
    np.testing.assert_array_equal(frames[1], pictures(9)[1])


def test_a_damaged_image_cell_is_an_error_with_its_frame(tmp_path: Path) -> None:
    root = write_older(tmp_path / "set", dtype="image")
    path = root / "data/chunk-000/episode_000000.parquet"
    table = pq.read_table(path)
    rows = table[FRONT].to_pylist()
    rows[5], rows[6] = (
        {"bytes": None, "path": "elsewhere.png"},
        {"bytes": rows[6]["bytes"][:60], "path": None},
    )
    at = table.column_names.index(FRONT)
    pq.write_table(table.set_column(at, FRONT, pa.array(rows, table.schema.field(FRONT).type)), path)
    frames = open_source(root)[0].images["front"]
    np.testing.assert_array_equal(frames[4], pictures(9)[4])
    for bad in (5, 6):
        with pytest.raises(DatasetError, match=f"frame {bad}"):
            frames[bad]


def test_openpi_keys_are_recognised_and_other_keys_need_a_mapping(tmp_path: Path) -> None:
    """A folder `video` instead of `videos` is found too."""
    check(write_older(tmp_path / "a", state="state", action="actions", cameras=["image"], videos="video"))
    other = write_older(tmp_path / "b", state="joints.now", action="joints.next", cameras=["cam"])
    with pytest.raises(InputError, match="--map proprio=KEY"):
        open_source(other)
    check(other, mapping={"proprio": "joints.now", "action": "joints.next", "image:front": "cam"})


def test_the_task_is_read_from_the_frames_if_the_episode_table_has_none(tmp_path: Path) -> None:
    root = write_older(tmp_path / "set")
    lines = [json.loads(line) for line in (root / "meta/episodes.jsonl").read_text().splitlines()]
    text = "".join(json.dumps({k: v for k, v in line.items() if k != "tasks"}) + "\n" for line in lines)
    (root / "meta/episodes.jsonl").write_text(text)
    assert [episode.task for episode in open_source(root)] == ["task 0", "task 1", "task 0"]


def test_extra_columns_of_the_episode_table_become_attributes(tmp_path: Path) -> None:
    root = write_older(tmp_path / "set", scenes=["x", "y", "x"])
    assert [episode.attributes for episode in open_source(root)] == [
        {"scene": "x"},
        {"scene": "y"},
        {"scene": "x"},
    ]


def cut(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])


def drop_rows(path: Path) -> None:
    pq.write_table(pq.read_table(path).slice(0, 5), path)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing film": (lambda root: (root / FILM).unlink(), FILM),
    "empty film": (lambda root: (root / FILM).write_bytes(b""), "it is empty, 0 bytes"),
    "film without its end": (lambda root: cut(root / FILM, 0.7), FILM),
    "film that is shorter than its header": (
        lambda root: (
            write_film(root / FILM, pictures(7, 1), movflags="faststart"),
            cut(root / FILM, 0.9),
        ),
        "whole frames where the episode needs 7",
    ),
    "film of fewer frames": (lambda root: write_film(root / FILM, pictures(5)), "has 5 whole frames"),
    "film of more frames": (lambda root: write_film(root / FILM, pictures(8)), "has 8 whole frames"),
    "missing table": (lambda root: (root / "data/chunk-000/episode_000001.parquet").unlink(), "data/"),
    "half a table": (lambda root: cut(root / "data/chunk-000/episode_000001.parquet", 0.5), "data/"),
    "table of fewer rows": (
        lambda root: drop_rows(root / "data/chunk-000/episode_000001.parquet"),
        "5 rows where the episode table has 7",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damage_error_names_episode_and_cause_and_damage_can_be_skipped(tmp_path: Path, kind: str) -> None:
    root = write_older(tmp_path / "set")
    break_it, why = DAMAGE[kind]
    break_it(root)
    with pytest.raises(DatasetError) as caught:
        list(open_source(root))
    text = str(caught.value)
    assert caught.value.code == "dataset.damaged"
    assert "\n" not in text
    for part in (str(root), "episode 1", why, "--skip-damaged"):
        assert part in text
    source = open_source(root, skip_damaged=True)
    assert [episode.id for episode in source] == ["set/0", "set/2"]
    assert [damage.episode for damage in source.damage] == [1]


def test_rows_that_belong_to_no_episode_are_found(tmp_path: Path) -> None:
    root = write_newer(tmp_path / "set", codec="libx264", n_orphans=4)
    with pytest.raises(DatasetError, match=r"4 rows are of no episode \(number 9\)"):
        list(open_source(root))
    source = open_source(root, skip_damaged=True)
    assert [len(episode) for episode in source] == list(LENGTHS)
    np.testing.assert_array_equal(source[1].proprio, path_of(7, 1, 6).astype(np.float32))
    assert [damage.episode for damage in source.damage] == [None]
    older = write_older(tmp_path / "older")
    lines = (older / "meta/episodes.jsonl").read_text().splitlines(keepends=True)
    (older / "meta/episodes.jsonl").write_text("".join(lines[:2]))
    damage = [str(found) for found in open_source(older).damage]
    assert ["total_episodes is 3" in damage[0], "8 rows are of no episode" in damage[-1]] == [True, True]


def test_a_video_that_ends_early_damages_only_the_episodes_after_its_end(tmp_path: Path) -> None:
    root = write_newer(tmp_path / "set", codec="libx264")
    write_film(root / f"videos/{FRONT}/chunk-000/file-000.mp4", pictures(20))
    assert [damage.episode for damage in open_source(root).damage] == [2]
