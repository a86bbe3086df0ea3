"""Usage logs, blame and quarantine of demonstrations."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from episodes import random_episode
from recap.cli.pool import pool as commands
from recap.errors import DatasetError, InputError
from recap.pool.store import Pool
from recap.usage import Run, UsageLog, Use, at_least, blame, read_runs


def made(n_runs: int, bad: str | None, seed: int = 0, n_demos: int = 20) -> list[Run]:
    """Runs of ten retrievals each; after the bad demonstration the robot is far off course."""
    rng, runs = np.random.default_rng(seed), []
    for number in range(n_runs):
        run, off, hurt = Run(str(number)), None, False
        for look in range(10):
            name = f"d{rng.integers(n_demos)}"
            run.add(name, look, 10.0, off)
            off = 10.0 + rng.normal() + (30.0 if name == bad else 0.0)
            hurt |= name == bad
        run.success = bool(rng.random() > (0.6 if hurt else 0.1))
        runs.append(run)
    return runs


def said(*words: object) -> str:
    result = CliRunner().invoke(commands, [str(word) for word in words], standalone_mode=False)
    assert result.exception is None, result.exception
    return result.output


def test_only_the_demonstration_that_leads_off_course_is_accused() -> None:
    found = blame(made(60, "d7"))
    assert [suspect.episode_id for suspect in found if suspect.accused] == ["d7"]
    assert found[0].episode_id == "d7"
    assert found[0].n_failed / found[0].n_ended > 0.3


def test_in_a_good_pool_hardly_any_demonstration_is_accused() -> None:
    accused = sum(suspect.accused for seed in range(40) for suspect in blame(made(40, None, seed)))
    assert accused <= 0.01 * 40 * 20


def test_failures_alone_do_not_accuse_a_demonstration() -> None:
    runs = made(60, None)
    for run in runs:
        run.success = not any(use.episode_id == "d3" for use in run.uses)
    found = {suspect.episode_id: suspect for suspect in blame(runs)}
    assert found["d3"].p_failed < 1e-6
    assert not found["d3"].accused


def test_empty_or_single_runs_accuse_nothing() -> None:
    assert blame([]) == []
    lone = Run("one")
    lone.add("d", 0, 1.0, None)
    assert [suspect.accused for suspect in blame([lone])] == [False]


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_fishers_exact_test_gives_a_probability(n: int, marked: int, k: int) -> None:
    total = 30
    whole = at_least(0, n, marked, total)
    assert math.isclose(whole, 1.0)
    assert 0.0 <= at_least(k, n, marked, total) <= whole


def test_a_usage_log_is_read_back_and_bad_lines_are_errors(tmp_path: Path) -> None:
    log = UsageLog(tmp_path / "logs/use.jsonl")
    for step, off in ((0, None), (8, 14.0)):
        log.use("arm", 1, step, episode_id="d", t=step, distance=4.0, off_course=off, confidence=math.nan)
    log.use("arm", 2, 0, episode_id=None, t=None, distance=None, off_course=None, confidence=0.0)
    log.outcome("arm", 1, success=False)
    log.close()
    (run,) = read_runs([tmp_path / "logs/use.jsonl"])
    assert (run.name, run.success) == ("arm#1", False)
    assert [(use.t, use.missed_by) for use in run.uses] == [(0, 10.0), (8, None)]
    with (tmp_path / "logs/use.jsonl").open("a") as file:
        file.write('{"robot": "arm", "ru')  # an incomplete last line
    assert len(read_runs([tmp_path / "logs/use.jsonl"])) == 1
    sound = {"robot": "arm", "run": 1, "episode_id": "d", "t": 0, "distance": 1.0}
    wrong = [("run", 1e999), ("t", "NaN"), ("distance", None), ("off_course", {})]
    lines = [json.dumps({**sound, key: value}).encode() for key, value in wrong]
    for bad in (b"not a log", b"\xff\xfe\x00", *lines):
        (tmp_path / "bad").write_bytes(bad + b"\n")
        with pytest.raises(DatasetError, match="line 1"):
            read_runs([tmp_path / "bad"])
    with pytest.raises(InputError, match="no log"):
        read_runs([tmp_path / "none"])


def test_the_size_of_a_usage_log_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recap.usage.MAX_BYTES", 2000)
    log = UsageLog(tmp_path / "use.jsonl")
    for step in range(400):
        log.use("arm", 1, step, episode_id="d", t=step, distance=4.0, off_course=None, confidence=0.5)
    log.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 8 * 2000
    (run,) = read_runs([tmp_path / "use.jsonl"])
    steps = [use.t for use in run.uses]
    assert steps == list(range(steps[0], 400)), "in written order"


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    made = Pool.create(tmp_path / "pool")
    made.add([random_episode(f"demo/{i}", i) for i in range(5)])
    return made


def test_quarantine_makes_a_version_and_can_be_undone(pool: Pool) -> None:
    before = {episode.id: episode for episode in pool.view()}
    version = pool.quarantine(["demo/2"])
    assert (version, pool.ids()) == (3, tuple(before)), "the order of episodes is kept"
    assert pool.get("demo/2").attributes["quarantine"] is True
    assert np.array_equal(pool.get("demo/2").actions, before["demo/2"].actions)
    assert pool.diff(2, 3).changed == ("demo/2",)
    assert pool.versions()[-1].op == "quarantine"
    assert pool.quarantine(["demo/2"]) == 3, "quarantine again changes nothing"
    assert pool.quarantine(["demo/2"], undo=True) == 4
    assert dict(pool.get("demo/2").attributes) == dict(before["demo/2"].attributes)
    assert pool.diff(2, 4).changed == ()
    assert pool.verify().ok
    pool.rollback(3)
    assert pool.get("demo/2").attributes["quarantine"] is True
    with pytest.raises(InputError, match="no episode"):
        pool.quarantine(["demo/9"])


def test_the_blame_and_quarantine_commands(pool: Pool, tmp_path: Path) -> None:
    log = UsageLog(tmp_path / "use.jsonl")
    for number, run in enumerate(made(60, "d3", n_demos=5)):
        for use in run.uses:
            name, off = f"demo/{use.episode_id[1:]}", last_off(run, use)
            log.use("arm", number, use.t, episode_id=name, t=use.t, distance=10.0, off_course=off)
        log.outcome("arm", number, bool(run.success))
    log.close()
    shown = said("blame", tmp_path / "use.jsonl", "--pool", pool.uri)
    assert re.search(r"demo/3 .* accused", shown)
    assert len(re.findall("accused$", shown, re.M)) == 2, "one row, and the line with the count"
    assert "0 of 5 demonstrations accused by comparison" in shown
    assert f"recap pool quarantine {pool.uri} demo/3" in shown
    told = json.loads(said("blame", tmp_path / "use.jsonl", "--json"))
    assert [row["episode_id"] for row in told["by_logs"] if row["accused"]] == ["demo/3"]
    assert told["by_pool"] == []
    assert "1 in quarantine" in said("quarantine", pool.uri, "demo/3")
    assert "quarantine: True" in said("show", pool.uri, "demo/3")
    assert "0 in quarantine" in said("quarantine", pool.uri, "demo/3", "--undo")


def test_without_a_log_blame_compares_demonstrations(pool: Pool) -> None:
    odd = random_episode("demo/odd", 7)
    pool.add([replace(odd, actions=odd.actions + np.float32([60, 0]))])
    shown = said("blame", "--pool", pool.uri)
    assert re.search(r"demo/odd +states do not follow actions \(\S+\)", shown)
    assert f"recap pool quarantine {pool.uri} demo/odd" in shown
    (told,) = json.loads(said("blame", "--pool", pool.uri, "--json"))["by_pool"]
    assert told["episode_id"] == "demo/odd"
    pool.quarantine(["demo/odd"])
    shown = said("blame", "--pool", pool.uri)
    assert "0 of 5 demonstrations" in shown
    assert "Not compared" not in shown
    pool.quarantine(["demo/4"])
    shown = said("blame", "--pool", pool.uri)
    assert "0 of 0 demonstrations" in shown
    assert "Not compared: 4 demonstrations" in shown
    with pytest.raises(InputError, match="nothing to look at"):
        CliRunner().invoke(commands, ["blame"], standalone_mode=False, catch_exceptions=False)


def last_off(run: Run, use: Use) -> float | None:
    """The off_course value of a log line: how far off the previous retrieval led."""
    at = run.uses.index(use)
    before = run.uses[at - 1] if at else None
    return None if before is None or before.missed_by is None else before.missed_by + before.distance
