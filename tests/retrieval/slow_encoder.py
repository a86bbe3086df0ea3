"""An image encoder of another package: slow, without weights, and it records the Ray node it runs on."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from recap.features.vision import PatchEncoder
from recap.types import F32, U8


class SlowPatches(PatchEncoder):
    """Args: delay: seconds per episode."""

    def __init__(self, delay: str) -> None:
        super().__init__(colour_cells=2)
        self.delay_s = float(delay)

    def encode(self, images: Sequence[U8] | U8) -> F32:
        """(n, dim)."""
        if "TOY_LOG" in os.environ:  # set on Ray nodes, which may use several processes
            import ray

            with Path(os.environ["TOY_LOG"]).open("a") as log:
                log.write(f"{ray.get_runtime_context().get_node_id()}\n")
        time.sleep(self.delay_s)
        return super().encode(images)
