"""`lerobot-rollout` with a recording that can be read after every episode.

    python -m recap_client.live_rollout --strategy.type=dagger --dataset.repo_id=me/rollout_kitchen …

LeRobot 0.6 leaves its Parquet files open, without a footer, until the session is over. Here each episode gets
its own files, as if the session had been resumed for it, so that `recap pool follow` can read it at once.
"""

from __future__ import annotations

import sys
from typing import Any


def close_after_each_episode() -> None:
    """Make LeRobot's writer begin new files after every episode; another LeRobot than 0.6 is refused."""
    from lerobot.datasets.dataset_writer import DatasetWriter
    from lerobot.datasets.io_utils import load_episodes

    save = DatasetWriter.save_episode

    def save_and_close(self: Any, *given: Any, **named: Any) -> None:
        save(self, *given, **named)
        meta = self._meta
        for owner, name in ((self, "_latest_episode"), (meta, "latest_episode"), (meta, "episodes")):
            if not hasattr(owner, name):
                raise RuntimeError(f"LeRobot's {type(owner).__name__} has no {name}: use LeRobot 0.6")
        self.close_writer()
        meta._close_writer()
        meta.episodes = load_episodes(meta.root)
        meta.latest_episode = self._latest_episode = None  # continue as after a resume

    DatasetWriter.save_episode = save_and_close


def main() -> None:
    """Run `lerobot-rollout` with the arguments of this command."""
    try:
        from lerobot.scripts.lerobot_rollout import main as rollout
    except ImportError as error:
        sys.exit(f"recap_client.live_rollout: LeRobot 0.6 is not installed here ({error})")
    close_after_each_episode()
    rollout()


if __name__ == "__main__":
    main()
