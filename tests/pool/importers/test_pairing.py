"""Rules that pair demonstrations by scene, for datasets and for pools."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_files import write_older
from toy_pool import toy_episode

from recap.errors import DatasetError, InputError
from recap.pool.importers import open_source
from recap.pool.importers.pairing import paired
from recap.pool.opening import open_demonstrations
from recap.pool.store import Pool


def scenes(place: Path, rule: str) -> list[str]:
    view = open_demonstrations(str(place), pair_by=rule)
    return [view.episode(name).scene_id for name in view.episode_ids]


def test_pairing_by_scene_keeps_the_scene_ids() -> None:
    episodes = [toy_episode("a"), toy_episode("b")]
    assert [episode.scene_id for episode in paired(episodes, "scene")] == [e.scene_id for e in episodes]


def test_pairing_by_order_counts_within_each_task_in_datasets_and_pools(tmp_path: Path) -> None:
    root = write_older(tmp_path / "set")
    wanted = ["task 0/0", "task 1/0", "task 0/1"]
    assert scenes(root, "order") == wanted
    Pool.create(tmp_path / "pool").add(list(open_source(root)))
    assert scenes(tmp_path / "pool", "order") == wanted


def test_pairing_by_a_column_of_the_episode_table(tmp_path: Path) -> None:
    root = write_older(tmp_path / "set", scenes=["x", "y", "x"])
    assert scenes(root, "column:scene") == ["x", "y", "x"]
    with pytest.raises(InputError, match="has no column 'seen' to pair by: it has scene") as caught:
        scenes(root, "column:seen")
    assert caught.value.code == "input.pairing"


def test_pairing_by_a_frame_column_that_is_constant_in_each_episode(tmp_path: Path) -> None:
    root = write_older(tmp_path / "set")
    info = json.loads((root / "meta/info.json").read_text())
    for name in ("place", "speed"):
        info["features"][name] = {"dtype": "float32", "shape": [1], "names": None}
    (root / "meta/info.json").write_text(json.dumps(info))
    for number, place in enumerate((7, 1.5, 7)):
        path = root / f"data/chunk-000/episode_00000{number}.parquet"
        table = pq.read_table(path)
        table = table.append_column("place", pa.array([place] * table.num_rows, pa.float32()))
        pq.write_table(table.append_column("speed", pa.array(range(table.num_rows), pa.float32())), path)
    assert scenes(root, "column:place") == ["7", "1.5", "7"]
    with pytest.raises(DatasetError, match="'speed' is not one number that is the same"):
        scenes(root, "column:speed")
    with pytest.raises(InputError, match="no column 'frame_index'"):
        scenes(root, "column:frame_index")


def test_pairing_by_a_csv_table(tmp_path: Path) -> None:
    root, table = write_older(tmp_path / "set"), tmp_path / "pairs.csv"
    table.write_text("episode,scene\nset/2,kitchen\nother/9,kitchen\n")
    assert scenes(root, str(table)) == ["set/0", "set/1", "kitchen"]
    table.write_text("episode,scene\n2,kitchen\n")
    with pytest.raises(InputError, match="names none of the episodes"):
        scenes(root, str(table))
    table.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="header is episode,scene"):
        scenes(root, str(table))


def test_an_unknown_pairing_rule_is_an_error_that_lists_the_rules(tmp_path: Path) -> None:
    for rule in ("scenes", "column:", "order "):
        with pytest.raises(InputError, match="choose one of scene, order, column:NAME") as caught:
            list(paired([replace(toy_episode("a"))], rule))
        assert caught.value.code == "input.pairing"
