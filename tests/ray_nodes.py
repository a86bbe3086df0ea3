"""A Ray cluster of two one-core nodes on this machine, in a separate process.

Ray reads its settings when it is imported. A line on the process's stdin kills the second node; the end of
stdin ends the cluster.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RAY = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "only-for-this-test-0123456789abcdef",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A dead node is noticed within a second, as it refuses at once. A busy one has half a minute to answer.
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_timeout_ms": "10000",
    "RAY_health_check_failure_threshold": "3",
}


@contextmanager
def two_nodes(folder: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process that runs the cluster, and the cluster's address.

    Args:
        environment: variables of the nodes and of all that runs on them.
    """
    with (
        (folder / "cluster.err").open("w") as log,
        subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, **RAY, **environment},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address, (folder / "cluster.err").read_text()
            yield process, address
        finally:
            process.stdin.close()
            process.wait(timeout=120)


def kill_the_second(nodes: subprocess.Popen[str]) -> None:
    """Kills the second node without a graceful shutdown."""
    assert nodes.stdin is not None
    nodes.stdin.write("kill\n")
    nodes.stdin.flush()


def main() -> None:
    """Runs the cluster while stdin is open."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80_000_000}
    head = {**node, "node_ip_address": "127.0.0.2", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        second = cluster.add_node(**node, node_ip_address="127.0.0.3")
        print(cluster.address, flush=True)
        if sys.stdin.readline():
            cluster.remove_node(second, allow_graceful=False)
        sys.stdin.readline()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
