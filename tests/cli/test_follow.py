"""`recap pool follow`: adds each complete episode of a growing dataset."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from recap.cli.pool import pool as group
from recap.errors import DatasetError
from recap.pool.importers.interventions import corrections_of, from_takeover
from recap.pool.lerobot import assemble, stage_episode
from recap.pool.store import Pool
from recap.types import Episode
from recap_client.corrections import MIN_FRAMES, N_CONTEXT

N = 40


def recorded(number: int, width: int = 2) -> Episode:
    steps = np.arange(N, dtype=np.float32)[:, None] + 100 * number
    return Episode(
        id=f"demo/{number}",
        scene_id=f"scene/{number}",
        task="push",
        embodiment="arm",
        fps=10.0,
        timestamps=np.arange(N) / 10,
        proprio=np.repeat(steps, width, axis=1),
        actions=np.repeat(steps + 1, width, axis=1),
        images={"top": [np.full((32, 32, 3), 5 * t, np.uint8) for t in range(N)]},
    )


def write(folder: Path, episodes: list[Episode], driven: list[np.ndarray] | None = None) -> None:
    """Writes the dataset with these episodes; `driven` marks the frames of human interventions."""
    staged, made = folder.with_name("staged"), folder.with_name("made")
    for number, episode in enumerate(episodes):
        stage_episode(staged, number, episode)
    assemble(staged, len(episodes), made)
    shutil.rmtree(staged, ignore_errors=True)
    if driven is not None:
        (table,) = made.glob("data/*/*.parquet")
        column = pa.array(np.concatenate(driven), pa.bool_())
        pq.write_table(pq.read_table(table).append_column("intervention", column), table)
        info = json.loads((made / "meta/info.json").read_text())
        info["features"]["intervention"] = {"dtype": "bool", "shape": [1], "names": None}
        (made / "meta/info.json").write_text(json.dumps(info))
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)


def follow(*words: str) -> Result:
    return CliRunner().invoke(group, ["follow", *words, "--once"], standalone_mode=False)


def stretch(*spans: tuple[int, int]) -> np.ndarray:
    driven = np.zeros(N, np.bool_)
    for a, b in spans:
        driven[a:b] = True
    return driven


def test_each_intervention_becomes_a_correction_with_context_frames() -> None:
    first, second = corrections_of(recorded(0), stretch((3, 15), (20, 23), (25, 40)))
    assert (first.id, second.id) == (
        "demo/0/correction-1",
        "demo/0/correction-2",
    )  # an intervention of three frames is too short
    assert first.proprio[:, 0].tolist() == list(range(15))
    assert first.first_match == 3
    assert second.proprio[:, 0].tolist() == [0, *range(25 - N_CONTEXT, 40)]
    assert second.first_match == 1 + N_CONTEXT
    assert [int(frame[0, 0, 0]) for frame in second.images["top"]] == [5 * t for t in second.proprio[:, 0]]
    assert second.attributes["time_offset_s"] == pytest.approx(2.5 - (1 + N_CONTEXT) / 10)
    assert corrections_of(recorded(0), stretch((0, MIN_FRAMES - 1))) == []
    learned = from_takeover(second)
    assert (learned.proprio[:, 0].tolist(), learned.first_match) == (list(range(25, 40)), 0)
    assert from_takeover(recorded(0)).proprio.shape == recorded(0).proprio.shape
    (whole,) = corrections_of(recorded(0), stretch((0, N)))
    assert (len(whole), whole.first_match) == (N, 0)


def test_each_episode_of_a_growing_dataset_is_added_once(tmp_path: Path) -> None:
    pool = Pool.create(tmp_path / "pool")
    for n in (1, 3):
        write(tmp_path / "data", [recorded(i) for i in range(n)])
        assert "a whole demonstration" in follow(pool.uri, str(tmp_path / "data")).output
        assert pool.ids() == tuple(f"demo/{i}" for i in range(n))
    again = follow(pool.uri, str(tmp_path / "data")).output
    assert again.count("which the pool had") == 3
    assert len(pool) == 3


def test_only_the_interventions_of_a_recording_are_added(tmp_path: Path) -> None:
    pool = Pool.create(tmp_path / "pool")
    driven = [stretch((10, 30)), stretch(), stretch((0, 12), (20, 40))]
    write(tmp_path / "data", [recorded(i) for i in range(3)], driven)
    shown = follow(pool.uri, str(tmp_path / "data"))
    assert shown.exception is None
    names = ["demo/0/correction-1", "demo/2/correction-1", "demo/2/correction-2"]
    assert sorted(pool.ids()) == names
    kept = pool.get("demo/2/correction-2")
    assert kept.first_match == 1 + N_CONTEXT
    assert kept.actions[kept.first_match :, 0].tolist() == list(range(221, 241))


def test_an_episode_of_another_layout_is_reported_and_not_added(tmp_path: Path) -> None:
    pool = Pool.create(tmp_path / "pool")
    pool.add([recorded(9)])
    write(tmp_path / "data", [recorded(0, width=3)])
    assert "Not added, episode 0: " in follow(pool.uri, str(tmp_path / "data")).output
    assert pool.ids() == ("demo/9",)
    with pytest.raises(DatasetError):
        raise follow(pool.uri, str(tmp_path / "none")).exception or AssertionError


def test_follow_waits_for_incomplete_files_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    pool, data, log = Pool.create(tmp_path / "pool"), tmp_path / "data", tmp_path / "log"

    def wait(text: str, n: int = 1) -> None:
        until = time.monotonic() + 300
        while log.read_text().count(text) < n and time.monotonic() < until:
            time.sleep(0.05)
        assert log.read_text().count(text) >= n, log.read_text()

    command = [sys.executable, "-m", "recap", "pool", "follow", pool.uri, str(data), "--every", "0.1"]
    with log.open("w") as out:
        run = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        wait("Following")
        write(data, [recorded(0)])
        wait("Episode 0")
        # As LeRobot leaves it during a session: the counts are ahead and the tables are incomplete.
        write(tmp_path / "next", [recorded(0), recorded(1)])
        (table,) = (tmp_path / "next").glob("meta/episodes/*/*.parquet")
        whole = table.read_bytes()
        table.write_bytes(whole[:-8])
        shutil.rmtree(data)
        (tmp_path / "next").rename(data)
        wait("Waiting: ")
        assert pool.ids() == ("demo/0",)
        (data / table.relative_to(tmp_path / "next")).write_bytes(whole)
        wait("Episode 1")
    finally:
        run.send_signal(signal.SIGINT)
        assert run.wait(20) == 0
    assert pool.ids() == ("demo/0", "demo/1")
    assert "has 2 demonstrations" in log.read_text()
