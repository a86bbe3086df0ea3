from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recap.cli import main
from recap.errors import InputError, RecapError, RunDirectoryError
from recap.evaluation.runner import evaluate
from recap.pool.opening import open_pool
from recap.workers import WorkerLostError
from specs import pusht_spec

SPEC = pusht_spec("toy_agents:Wanderer", angles=(-30.0, 45.0), seeds=tuple(range(500, 507)), max_steps=30)
HERE = Path(__file__).parent
ARGUMENTS = ["eval", "toy_agents:Slow", "--env=pusht", "--tasks=-30,45", "--seeds=500:504", "--batch-size=2"]
LOADING = "Loading toy_agents:Slow for pusht …"


def lines(out: Path) -> list[str]:
    file = out / "episodes.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def test_results_do_not_depend_on_workers_and_batch_size(tmp_path: Path) -> None:
    infos = []
    for workers, batch_size in ((1, 1), (1, 3), (2, 8), (3, 1)):
        out = tmp_path / f"{workers}-{batch_size}"
        evaluate(SPEC, out, workers=workers, batch_size=batch_size)
        assert len(lines(out)) == 14
        infos.append((out / "eval_info.json").read_bytes())
    assert len(set(infos)) == 1


def test_progress_is_reported_and_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    evaluate(SPEC, tmp_path, progress=lambda done, total: told.append((done, total)))
    assert told == [(i, 14) for i in range(15)]
    before = (tmp_path / "eval_info.json").read_bytes()
    summary = evaluate(SPEC, tmp_path, workers=2)
    assert summary.n_run == 0
    assert (tmp_path / "eval_info.json").read_bytes() == before


def test_a_run_finished_on_another_device_is_accepted(tmp_path: Path) -> None:
    evaluate(SPEC, tmp_path)
    for name in ("config.json", "eval_info.json"):
        file = tmp_path / name
        file.write_text(file.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert evaluate(SPEC, tmp_path).n_run == 0
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    (tmp_path / "eval_info.json").unlink()  # unfinished: the rest must run on the same device
    with pytest.raises(RunDirectoryError, match=r"another agent\.device"):
        evaluate(SPEC, tmp_path)


def test_errors_are_kept_and_repeated_only_with_retry_errors(tmp_path: Path) -> None:
    spec = SPEC.with_agent(policy="toy_agents:Fragile")
    assert evaluate(spec, tmp_path, workers=2, batch_size=3).n_errors == 2
    assert evaluate(spec, tmp_path).n_run == 0
    again = evaluate(spec, tmp_path, retry_errors=True)
    assert (again.n_run, again.n_errors) == (2, 2)
    assert len(lines(tmp_path)) == 14


@pytest.mark.parametrize("workers", [1, 2])
def test_an_agent_that_cannot_be_created_is_an_error(tmp_path: Path, workers: int) -> None:
    with pytest.raises(InputError, match="this toy has no weights: train it first"):
        evaluate(SPEC.with_agent(policy="toy_agents:refused"), tmp_path, workers=workers)


def test_non_positive_workers_or_batch_size_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="workers 0 is too few"):
        evaluate(SPEC, tmp_path, workers=0)
    with pytest.raises(InputError, match="batch_size -1 is too few"):
        evaluate(SPEC, tmp_path, batch_size=-1)


def test_a_worker_that_dies_does_not_hang_the_run(tmp_path: Path) -> None:
    spec = SPEC.with_agent(policy="toy_agents:Deadly")
    message = r"ended by SIGKILL \(out of memory\?\); \d+ of 14 episodes are done and kept; the same"
    with pytest.raises(WorkerLostError, match=message):
        evaluate(spec, tmp_path, workers=2, batch_size=1)
    assert not (tmp_path / "eval_info.json").exists()
    assert len(lines(tmp_path)) < 14


def start(out: Path, workers: int, delay_s: float = 0.0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from recap.cli import main; main()"]
    return subprocess.Popen(
        [*command, *ARGUMENTS, "--workers", str(workers), "--out", str(out)],
        cwd=HERE,
        env={**os.environ, "TOY_DELAY_S": str(delay_s)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def without_progress(err: str) -> list[str]:
    """The lines of stderr without progress output."""
    return [line for line in err.splitlines() if not line.startswith("episodes: ")]


def wait_for_episodes(out: Path, n: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while len(lines(out)) < n:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    ("workers", "sig", "whole_group"),
    [
        (1, signal.SIGINT, True),
        (2, signal.SIGINT, True),
        (2, signal.SIGINT, False),
        (2, signal.SIGKILL, False),
    ],
)
def test_a_stopped_run_is_resumed(
    tmp_path: Path, workers: int, sig: int, whole_group: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    process = start(tmp_path, workers, delay_s=0.001)
    wait_for_episodes(tmp_path, 2, process)
    (os.killpg if whole_group else os.kill)(process.pid, sig)  # a terminal sends Ctrl-C to the whole group
    out, err = process.communicate(timeout=120)
    n_before = len(lines(tmp_path))
    assert 2 <= n_before < 8
    if sig == signal.SIGINT:
        assert process.returncode == 130
        state = f"{n_before} of 8 episodes are done and kept"
        assert without_progress(err) == [LOADING, f"recap: stopped: {state}; the same command resumes"]
        assert out == ""
    deadline = time.monotonic() + 60
    while not group_is_gone(process.pid):  # no worker outlives the run
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(SystemExit) as ended:
        main([*ARGUMENTS, "--workers=1", "--out", str(tmp_path)])
    out, err = capsys.readouterr()
    assert (ended.value.code, without_progress(err)) == (0, [LOADING])
    assert f"Ran {8 - n_before} episodes" in out
    keys = [(e["task"], e["seed"]) for e in map(json.loads, lines(tmp_path))]
    assert sorted(keys) == [(task, seed) for task in ("+45", "-30") for seed in range(500, 504)]


def test_resuming_with_another_pool_version_is_an_error(tmp_path: Path) -> None:
    from recap.pool.store import Pool

    shown = open_pool("pusht-9x100").view()
    demos = [replace(shown.episode(name), images={}) for name in shown.episode_ids[:3]]
    pool = Pool.create(tmp_path / "pool")
    pool.add(demos[:2])
    asked = pusht_spec("replay", angles=(-30.0,), seeds=(500, 501), max_steps=5, pool=str(tmp_path / "pool"))
    evaluate(asked, tmp_path / "out")
    evaluate(asked, tmp_path / "out")
    pool.add(demos[2:])
    with pytest.raises(RunDirectoryError, match="another pool_version"):
        evaluate(asked, tmp_path / "out")


@pytest.mark.parametrize(
    "settings", [{"policy": "toy_agents:refused"}, {"policy": "replay", "pool": "no/such/pool"}]
)
def test_a_run_that_cannot_start_leaves_no_directory(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(RecapError):
        evaluate(pusht_spec(**settings), tmp_path / "out")
    assert not (tmp_path / "out").exists()
