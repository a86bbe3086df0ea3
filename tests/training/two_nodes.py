"""A sharded run with a time limit; started by torchrun on each node."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

from recap.training.data import load_data
from recap.training.presets import preset
from recap.training.trainer import train

if __name__ == "__main__":
    torch.set_num_threads(1)
    target, pool, folder, seconds, *changes = sys.argv[1:]
    config = replace(preset("debug", changes), target=target, pool=pool)
    train(config, Path(folder), data=load_data(config), device="cpu", max_seconds=float(seconds))
    if os.environ["RANK"] == "0":
        print(f"ranks {os.environ['WORLD_SIZE']}, nodes {os.environ['GROUP_WORLD_SIZE']}")
