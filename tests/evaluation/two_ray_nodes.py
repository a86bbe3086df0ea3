"""A Ray cluster of two one-core nodes on this machine: prints its address, then obeys its stdin.

A process of its own, because Ray reads its settings when it is imported. A line on stdin kills the second
node; the end of stdin ends the cluster.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

if __name__ == "__main__":
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
