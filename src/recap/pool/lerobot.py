"""Writes LeRobotDataset v3, the format for collection and export; `recap.pool.importers` reads it."""

from recap.pool.lerobot_stage import alike, stage_episode, staged_indices
from recap.pool.lerobot_write import Sizes, assemble

__all__ = ["Sizes", "alike", "assemble", "stage_episode", "staged_indices"]
