"""Two processes, with replicated or with sharded weights: the same run as in one."""

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import recap
from recap.errors import DatasetError
from recap.policies.checkpoint import from_pretrained
from recap.training import trainer
from recap.training.config import TrainConfig
from recap.training.data import TrainingData
from recap.training.networks import describe_plan
from recap.training.presets import preset
from recap.training.records import read_metrics
from recap.training.trainer import train

Configure = Callable[..., TrainConfig]
STEPS = ("policy.inputs=S", "n_iterations=6", "validate_every=3", "save_every=2", "batch_size=8")
EXACT = (*STEPS, "accumulate=2", "bf16=false", "max_norm=0.5", "fsdp=true")


def rows(out: Path, name: str) -> list[Any]:
    return [row[name] for row in read_metrics(out) if name in row]


def state(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "state.safetensors")


def saved_at(out: Path) -> int:
    with safe_open(out / "state.safetensors", framework="pt") as opened:
        return int(json.loads(opened.metadata()["recap"])["iteration"])


@pytest.fixture(scope="module")
def one(configure: Configure, state_data: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process, without sharding."""
    out = tmp_path_factory.mktemp("one") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "LOG_EVERY", 1)
        train(configure(*EXACT), out, data=state_data, device="cpu")
    return out


@pytest.fixture(scope="module")
def two(files: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of two processes; in the last one a process is killed."""
    out = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    script = str(Path(__file__).with_name("two_processes.py"))
    source = os.pathsep.join([str(Path(recap.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, script, *files, str(out), *EXACT],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": source,
            "XDG_CACHE_HOME": str(out / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (out / "rank-0.json").exists(), done.stderr[-3000:]
    assert done.returncode != 0, "a run that lost a process has failed"
    return out


@pytest.mark.parametrize("run", ["copies", "straight"], ids=["each with all weights", "sharded"])
def test_two_processes_train_the_same_weights_as_one(one: Path, two: Path, run: str) -> None:
    for name in ("loss/action", "loss/future_proprio", "held_out/action", "held_out/action_rms"):
        assert rows(two / run, name) == pytest.approx(rows(one, name), rel=1e-5)
    assert len(rows(one, "loss/action")) == 6
    whole, shared = state(one), state(two / run)
    assert whole.keys() == shared.keys()
    for name, value in whole.items():
        assert torch.allclose(value, shared[name], rtol=1e-3, atol=1e-4), name


def test_a_process_holds_half_of_weights_and_optimizer_state(two: Path) -> None:
    for rank in (0, 1):
        seen = json.loads((two / f"rank-{rank}.json").read_text())["held"]
        assert len(seen) == 4 + 2 + 3, "the uninterrupted, the stopped and the resumed run"
        for parts in seen:
            assert set(parts) == {"weights", "smoothed", "moments"}
            for name, share in parts.items():
                assert 0.45 < share < 0.55, name


@pytest.mark.parametrize("name", ["best", "last"])
def test_a_sharded_run_saves_a_whole_checkpoint(one: Path, two: Path, name: str) -> None:
    theirs, ours = from_pretrained(two / "straight" / name), from_pretrained(one / name)
    for key, value in ours.model.state_dict().items():
        assert torch.allclose(value, theirs.model.state_dict()[key], rtol=1e-3, atol=1e-4), key


def test_a_rollout_uses_the_smoothed_weights(two: Path) -> None:
    last = from_pretrained(two / "straight" / "last")
    found = [row["fingerprint"] for row in rows(two / "straight", "rollout")]
    assert len(found) == 2
    assert found[1] == int(last.fingerprint, 16)
    assert found[0] != found[1]


def test_an_interrupt_of_one_process_stops_all_and_resuming_is_bitwise_equal(two: Path) -> None:
    for rank in (0, 1):
        stopped = json.loads((two / f"rank-{rank}.json").read_text())["stopped"]
        assert stopped == "stopped at iteration 3 of 6: kept; the same command resumes"
    straight, resumed = state(two / "straight"), state(two / "stopped")
    assert all(torch.equal(value, resumed[name]) for name, value in straight.items())
    assert rows(two / "stopped", "loss/action") == rows(two / "straight", "loss/action")
    for name in ("best", "last"):
        found = {from_pretrained(two / run / name).fingerprint for run in ("straight", "stopped")}
        assert len(found) == 1, name


def test_after_a_killed_process_the_run_resumes_from_the_last_saved_state(
    configure: Configure, state_data: TrainingData, one: Path, two: Path
) -> None:
    dead = two / "dead"
    assert saved_at(dead) == 2
    assert not list(dead.glob(".*.partial"))
    assert not (dead / "last").exists()
    assert from_pretrained(dead / "best").config == configure(*EXACT).policy
    train(configure(*EXACT), dead, data=state_data, device="cpu")  # one process can resume it
    for name, value in state(one).items():
        assert torch.allclose(value, state(dead)[name], rtol=1e-3, atol=1e-4), name


@contextmanager
def full_disk(n_bytes: int) -> Iterator[None]:
    """Limit the size of files."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_an_error_of_one_line_and_keeps_the_last_state(
    configure: Configure, state_data: TrainingData, tmp_path: Path
) -> None:
    config, out = configure(*STEPS), tmp_path / "run"
    train(config, out, data=state_data, device="cpu", max_seconds=0)
    with (
        full_disk(200_000),
        pytest.raises(DatasetError, match=r"cannot write the run.s state to .*File too large.*one is kept"),
    ):
        train(config, out, data=state_data, device="cpu")
    assert saved_at(out) == 1
    assert not list(out.glob(".*.partial"))


def test_the_plan_lists_the_memory_of_each_process() -> None:
    config = preset("cosmos-2b")
    alone, eight = describe_plan(config), describe_plan(config, 8)
    assert alone["held_gib"] == alone["weights_gib"] == eight["weights_gib"]
    assert eight["held_gib"] == pytest.approx(eight["weights_gib"] / 8, abs=0.01)
    assert eight["memory_gib"] < alone["memory_gib"] / 4
