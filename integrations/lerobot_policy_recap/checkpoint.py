"""`lerobot-policy-recap`: write the folder that LeRobot's `--policy.path` wants, for a served policy."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from recap_client.errors import InputError, RecapError


def write_checkpoint(folder: Path, url: str) -> str:
    """Write a checkpoint that refers to the server; returns a description of the served policy."""
    from lerobot.configs.types import FeatureType, PolicyFeature

    from .configuration_recap import RecapConfig
    from .modeling_recap import RecapPolicy
    from .processor_recap import make_recap_pre_post_processors

    if folder.exists():
        raise InputError(f"{folder} exists: give another folder, or remove it")
    policy = RecapPolicy(RecapConfig(url=url))
    remote, config = policy.remote, policy.config
    config.chunk_size = remote.chunk_size
    config.output_features = {"action": PolicyFeature(FeatureType.ACTION, (remote.action_dim,))}
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        policy.save_pretrained(partial)
        for pipeline in make_recap_pre_post_processors(config):
            pipeline.save_pretrained(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        remote.close()
    said = remote.said
    return f"{said['policy']} ({said['fingerprint']}) of robot '{said['robot']['name']}' at {url}"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser("lerobot-policy-recap", description=__doc__)
    parser.add_argument("folder", type=Path, help="to write")
    parser.add_argument(
        "--url", default="ws://127.0.0.1:8000", help="of `recap serve`  [default: %(default)s]"
    )
    given = parser.parse_args()
    try:
        served = write_checkpoint(given.folder, given.url)
    except RecapError as error:
        print(f"lerobot-policy-recap: {error} [{error.code}]", file=sys.stderr)
        return 2
    print(f"{given.folder}: {served}")
    return 0
