"""RoboTwin's script/eval_policy.py re-created on a task of ours; a test runs it as a script."""

import argparse
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import yaml  # type: ignore[import-untyped]

sys.path.append("./policy")
from robotwin_task import Task, evaluate


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    parser.add_argument("--overrides", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    settings = yaml.safe_load(Path(given.config).read_text())
    for key, value in zip(given.overrides[::2], given.overrides[1::2], strict=True):
        settings[key.lstrip("-")] = int(value) if value.isdecimal() else value
    policy = importlib.import_module(settings["policy_name"])
    world = json.loads(Path(f"task_config/{settings['task_config']}.json").read_text())
    goals = {words: np.array(goal) for words, goal in world["goals"].items()}
    task = Task(goals, 120)
    model = policy.get_model(settings)
    results = [
        evaluate(task, policy, model, words, np.array(world["start"]), seed)[0]
        for seed, words in enumerate(goals)
    ]
    print(json.dumps({"task": settings["task_name"], "successes": results}))


if __name__ == "__main__":
    main()
