"""Two torchrun nodes on loopback: a sharded run is saved by two ranks and resumed by four."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import recap
from recap.training.config import TrainConfig
from recap.training.data import TrainingData
from recap.training.trainer import train

pytestmark = pytest.mark.long
EXACT = (
    *("policy.inputs=S", "n_iterations=4", "validate_every=4", "save_every=2", "batch_size=8"),
    *("accumulate=2", "bf16=false", "max_norm=0.5", "fsdp=true"),
)


def on_two_nodes(files: tuple[str, str], out: Path, ranks_a_node: int, seconds: float) -> str:
    """Run until training ends or the time is over; returns the output of the first rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = os.pathsep.join([str(Path(recap.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": source}
    script = str(Path(__file__).with_name("two_nodes.py"))
    given, nodes = [*files, str(out), str(seconds), *EXACT], []
    for rank in (0, 1):
        where = ["--nnodes", "2", "--node-rank", str(rank), "--nproc-per-node", str(ranks_a_node)]
        where += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
        cache = {"XDG_CACHE_HOME": str(out.parent / f"cache of node {rank}")}
        nodes.append(
            subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", *where, script, *given],
                env={**os.environ, **environment, **cache},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        told = [node.communicate(timeout=400) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    assert [node.returncode for node in nodes] == [0, 0], told[0][1][-3000:]
    return told[0][0]


def test_a_run_of_two_ranks_resumed_by_four_equals_one_process(
    configure: Callable[..., TrainConfig], state_data: TrainingData, files: tuple[str, str], tmp_path: Path
) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    train(configure(*EXACT), alone, data=state_data, device="cpu")
    assert "ranks 2, nodes 2" in on_two_nodes(files, shared, 1, seconds=0)
    with safe_open(shared / "state.safetensors", framework="pt") as opened:
        assert 0 < json.loads(opened.metadata()["recap"])["iteration"] < 4
    assert "ranks 4, nodes 2" in on_two_nodes(files, shared, 2, seconds=10**6)
    whole, found = load_file(alone / "state.safetensors"), load_file(shared / "state.safetensors")
    assert whole.keys() == found.keys()
    for name, value in whole.items():
        assert torch.allclose(value, found[name], rtol=1e-3, atol=1e-4), name
