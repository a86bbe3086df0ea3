"""LeRobotDataset v3, the format in which demonstrations are kept and exchanged."""

from recap.pool.lerobot_read import LeRobotDataset
from recap.pool.lerobot_write import Sizes, alike, assemble, stage_episode, staged_indices

__all__ = ["LeRobotDataset", "Sizes", "alike", "assemble", "stage_episode", "staged_indices"]
