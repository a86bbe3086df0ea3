from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_nodes import RAY, kill_the_second, two_nodes
from recap.errors import InputError
from recap.evaluation.runner import evaluate
from recap.on_ray import run_on_ray
from specs import pusht_spec

HERE = Path(__file__).parent
SPEC = pusht_spec("toy_agents:Slow", angles=(-30.0, 45.0), seeds=tuple(range(500, 508)))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process that runs a Ray cluster of two nodes, and the address of the cluster."""
    with two_nodes(tmp_path, TOY_DELAY_S="0.001", TOY_LOG=str(tmp_path / "log")) as found:
        yield found


def begun(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def test_every_episode_has_one_result_after_a_node_is_killed(
    cluster: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    nodes, address = cluster
    command = [sys.executable, "-c", "from recap.cli import main; main()", "eval", SPEC.agent.policy]
    what = ["--env=pusht", "--tasks=-30,45", "--seeds=500:508", "--batch-size=2"]
    with subprocess.Popen(
        [*command, *what, "--ray", address, "--out", str(tmp_path / "ray")],
        cwd=HERE,
        env={**os.environ, **RAY},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            deadline = time.monotonic() + 120
            while len({node for node, _ in begun(tmp_path / "log")}) < 2:  # one on each node
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            kill_the_second(nodes)
            out, err = process.communicate(timeout=300)
        finally:
            process.kill()
    said = [line for line in err.splitlines() if not line.startswith("episodes: ")]
    assert (process.returncode, said) == (0, [f"Loading {SPEC.agent.policy} for pusht …"]), out
    refused = subprocess.run(
        [*command[:-1], "toy_agents:refused", "--env=pusht", "--ray", address, "--out", tmp_path / "refused"],
        cwd=HERE,
        env={**os.environ, **RAY},
        text=True,
        capture_output=True,
    )
    assert refused.returncode == 2
    _, error = refused.stderr.splitlines()
    assert error.startswith("recap: this toy has no weights: train it first")
    assert not (tmp_path / "refused").exists()
    begun_seeds = Counter(seed for _, seed in begun(tmp_path / "log"))
    assert min(begun_seeds.values()) >= 2  # once per task, and again for the killed node's episodes
    lines = [json.loads(line) for line in (tmp_path / "ray/episodes.jsonl").read_text().splitlines()]
    assert sorted((e["task"], e["seed"]) for e in lines) == [
        (task, seed) for task in sorted(SPEC.tasks) for seed in SPEC.seeds
    ]
    evaluate(SPEC, tmp_path / "local")
    assert (tmp_path / "ray/eval_info.json").read_bytes() == (tmp_path / "local/eval_info.json").read_bytes()


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "nowhere.invalid:6379", "127.0.0.1:port", "ray://127.0.0.1:1"]
)
def test_an_unreachable_ray_cluster_is_an_error(address: str) -> None:
    with pytest.raises(InputError, match="no Ray cluster answers at"):
        next(run_on_ray(sum, [1, 2], 2, address))


def test_an_unreachable_ray_cluster_leaves_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no Ray cluster answers at"):
        evaluate(SPEC, tmp_path / "runs/ray", ray_address="127.0.0.1:1")
    assert not (tmp_path / "runs").exists()


def test_a_missing_ray_installation_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'recap-robot\[ray\]'"):
        next(run_on_ray(sum, [1, 2], 2, "127.0.0.1:1"))
