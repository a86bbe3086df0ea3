"""Conformance checks for your own worlds and robots; each raises one InputError that lists all problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recap.errors import InputError
from recap.robot import RobotSpec
from recap.suites import Suite, World
from recap.types import Observation, Requires


def check_world(
    suite: Suite, task: str = "", seed: int = 500, n_steps: int = 5, robot: RobotSpec | None = None
) -> None:
    """Check that a suite's worlds match its robot description.

    Args:
        robot: the description, for a suite without one, such as a Gymnasium environment.
        task: one of the suite's tasks; empty: the first.
        n_steps: number of steps for which the robot is held in place.
    """
    problems: list[str] = []
    options = suite.check({})
    tasks = suite.tasks(options)
    if not tasks:
        raise InputError(f"env '{suite.name}' has no tasks")
    task = suite.task_key(task or tasks[0])
    if not suite.max_steps(task, options) > 0:
        problems.append(f"max_steps of '{task}' is {suite.max_steps(task, options)}")
    robot = robot or suite.robot(options)
    world = suite.make(options)
    first = _begin(world, suite, task, seed, problems)
    problems += _compare(first, robot)
    again = _begin(world, suite, task, seed, problems)
    if not np.array_equal(first.proprio, again.proprio):
        problems.append(f"seed {seed} begins at two places: reset is not reproducible")
    other = _begin(world, suite, task, seed + 1, problems)
    if other.task == "" and any(feature for feature in tasks[1:]):
        problems.append("observations have no instruction, and there are several tasks")
    _begin(world, suite, task, seed, problems)
    for _ in range(n_steps):
        metrics, ended = world.step(robot.hold(world.observe(None).proprio))
        if suite.metric not in metrics:
            problems.append(f"step returns no metric '{suite.metric}': it has {sorted(metrics)}")
            break
        if not isinstance(ended, bool):
            problems.append(f"step says by a {type(ended).__name__} whether it is over: return a bool")
            break
        if ended:
            break
    problems += _compare(world.observe(None), robot, images=False)
    close = getattr(world, "close", None)
    if callable(close):
        close()
    _raise(f"env '{suite.name}'", problems)


def check_robot(robot: Any, spec: RobotSpec, n_steps: int = 3) -> None:
    """Check a robot for `recap run`: its observations, and that it can be held in place.

    Args:
        robot: an object with observe() and act(action).
        spec: the robot description.
    """
    from recap.serving.observations import ObservationSpec, read_observation
    from recap_client.messages import as_message

    problems: list[str] = []
    for name in ("observe", "act"):
        if not callable(getattr(robot, name, None)):
            problems.append(f"it has no {name}()")
    _raise(f"robot '{spec.name}'", problems)
    observed = ObservationSpec(spec, Requires(), estimates=False, default_prompt="")
    for _ in range(n_steps):
        seen = robot.observe()
        message: Mapping[str, Any] = as_message(seen) if isinstance(seen, Observation) else seen
        try:
            read = read_observation(message, observed, 0.0)
        except Exception as error:
            problems.append(" ".join(str(error).split()))
            break
        problems += _compare(read, spec)
        robot.act(np.clip(spec.hold(read.proprio), *spec.act.bounds))
        if problems:
            break
    _raise(f"robot '{spec.name}'", problems)


def _begin(world: World, suite: Suite, task: str, seed: int, problems: list[str]) -> Observation:
    metrics = world.reset(seed, task)
    if suite.metric not in metrics:
        problems.append(f"reset returns no metric '{suite.metric}': it has {sorted(metrics)}")
    return world.observe(64)


def _compare(seen: Observation, robot: RobotSpec, images: bool = True) -> list[str]:
    """The differences between an observation and the description."""
    problems = []
    if np.shape(seen.proprio) != (robot.body.size,):
        problems.append(
            f"proprio has shape {np.shape(seen.proprio)}, the description {robot.body.size} numbers"
        )
    elif not np.isfinite(seen.proprio).all():
        problems.append("proprio holds a number that is not finite")
    for camera, spec in robot.cameras.items() if images else ():
        image = seen.images.get(camera)
        if image is None:
            problems.append(f"camera '{camera}' is missing: there are {sorted(seen.images) or 'none'}")
        elif image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            problems.append(f"camera '{camera}' gives {image.dtype} {image.shape}, not uint8 (h, w, 3)")
        elif spec.size is None and min(image.shape[:2]) < 8:
            problems.append(f"camera '{camera}' gives {image.shape[1]}x{image.shape[0]} px")
    for name, pose in seen.objects.items():
        size = robot.object_size(name)
        if size is None:
            problems.append(f"object '{name}' is not in the description")
        elif np.shape(pose) != (size,):
            problems.append(f"object '{name}' has shape {np.shape(pose)}, the description {size} numbers")
    return problems


def _raise(what: str, problems: list[str]) -> None:
    if problems:
        raise InputError(f"{what} does not conform: {'; '.join(dict.fromkeys(problems))}")
