"""A robosuite arm as a world: tool poses in and out, scenes equal for all robots, success at the end."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recap.errors import InputError, one_of
from recap.geometry3 import (
    matrix_to_quaternion,
    matrix_to_rotation6,
    quaternion_to_matrix,
    rotation6_to_matrix,
)
from recap.robot import Kinematics, RobotSpec, load_robot
from recap.types import F64, U8, Observation
from recap_worlds.robosuite.control import OperationalSpace
from recap_worlds.robosuite.tasks import Task, task_named

ARM = load_robot(Path(__file__).with_name("robot.yaml"))
KP = 150.0  # robosuite's default gain
MAX_MOVE, MAX_TURN = 0.05, 0.5  # m and rad of a full OSC_POSE action
SETTLE = 10  # control steps before an episode in which objects come to rest and the gripper opens
STILL = 10  # control steps for which success must last
RETREAT_M = 0.07  # distance from the handled object after which a task with release is done
REACHED_M, CARRIED_M = 0.03, 0.05  # of the tool to its grip point, and of an object to its place


@dataclass(frozen=True)
class Arm:
    """A robot of robosuite with its own gripper."""

    name: str  # robosuite's name
    pads: tuple[float, float]  # m between the gripper's pads, closed and open


ARMS = {
    "panda": Arm("Panda", (0.0089, 0.0855)),
    "ur5e": Arm("UR5e", (0.0146, 0.1102)),
    "iiwa": Arm("IIWA", (0.0224, 0.1287)),
    "kinova3": Arm("Kinova3", (0.0146, 0.1102)),
}


def arm_named(name: str) -> Arm:
    """An arm by its name in ReCAP."""
    return ARMS[one_of("embodiment", name, tuple(ARMS))]


def _make(task: Task, arm: Arm, kp: float) -> Any:
    """Create the environment. It is kept while the task is the same, because a reset is much faster."""
    silenced = logging.root.manager.disable
    logging.disable(logging.WARNING)  # one line for each missing optional part
    try:
        import robosuite
        from robosuite.controllers import load_composite_controller_config
    except ImportError as error:
        what = f"robosuite is not installed ({error.name} is missing)"
        raise InputError(f"{what}: install it as docs/worlds/robosuite.md says", code="robosuite") from None
    finally:
        logging.disable(silenced)
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)
    controller = load_composite_controller_config(controller="BASIC", robot=arm.name)
    controller["body_parts"]["right"] |= {"input_ref_frame": "world", "kp": kp}
    return robosuite.make(
        task.env,
        robots=arm.name,
        controller_configs=controller,
        has_renderer=False,
        has_offscreen_renderer=False,
        use_camera_obs=False,
        use_object_obs=False,
        initialization_noise=None,
        hard_reset=False,
        ignore_done=True,
        control_freq=int(ARM.control_hz),
        seed=0,
    )


class RobosuiteWorld:
    """One arm with one task; the metric is success, and further metrics show progress.

    Args:
        embodiment: name of the arm.
        kp: stiffness of its controller.
        poses: include true object poses in observations.
    """

    control_hz = ARM.control_hz

    def __init__(self, embodiment: str, kp: float = KP, poses: bool = True) -> None:
        self.arm, self.kp, self.poses = arm_named(embodiment), kp, poses
        self._env: Any = None
        self._renderer: Any = None
        self.task: Task | None = None

    def reset(self, seed: int, task: str) -> Mapping[str, float]:
        """Set up the scene of the seed, at rest, with an open gripper."""
        wanted = task_named(task)
        if wanted != self.task:
            self.close()
            self._env = _make(wanted, self.arm, self.kp)
            self.task = wanted
            robot = self._env.robots[0]
            self._site = int(robot.eef_site_id["right"])
            geoms = robot.gripper["right"].important_geoms
            model = self._env.sim.model
            self._pads = [int(model.geom_name2id(geoms[f"{s}_fingerpad"][0])) for s in ("left", "right")]
            handled = f"{wanted.placed[0].body}_"
            self._geoms = [name for name in model.geom_names if name and name.startswith(handled)]
            self._bodies = {name: self._body(body) for name, body in wanted.things.items()}
        env = self._env
        env.reset()
        for placed, pose in zip(wanted.placed, wanted.scene(seed), strict=True):
            if wanted.env == "Door":  # a fixture is part of the model
                body = self._body(placed.body)
                env.sim.model.body_pos[body], env.sim.model.body_quat[body] = pose[:3], pose[3:]
            else:
                env.sim.data.set_joint_qpos(f"{placed.body}_joint0", pose)
        for name, place in wanted.moved.items():
            env.sim.model.body_pos[self._body(name)] = place
        env.sim.forward()
        hold = np.append(self._proprio()[:9], 1.0)
        for _ in range(SETTLE):
            self._drive(hold)
        self._steps = self._still = 0
        return {**self._progress(), "success": 0.0}

    def observe(self, image_size: int | None) -> Observation:
        """The state of tool and objects, with images of the robot's cameras if a size is given."""
        task = self._running()
        return Observation(
            proprio=self._proprio().astype(np.float32),
            task=task.words,
            time_s=self._steps / self.control_hz,
            images=self._draw(tuple(ARM.cameras), image_size) if image_size else {},
            objects=self._poses() if self.poses else {},
        )

    def step(self, action: F64) -> tuple[Mapping[str, float], bool]:
        """One control step towards a tool pose (10,); done when success has lasted long enough."""
        self._drive(np.asarray(action, np.float64))
        self._steps += 1
        progress = self._progress()
        self._still = self._still + 1 if progress["done"] else 0
        success = self._still >= STILL
        return {**progress, "success": float(success)}, success

    def reaching(self) -> RobotSpec:
        """The robot description with the arm's model at this task, for checks of reachability."""
        self._running()
        tip = self._env.sim.model.site_id2name(self._site)
        rest = tuple(float(angle) for angle in self._env.robots[0].init_qpos)
        return replace(ARM, kinematics=Kinematics(self._env.model.get_xml(), tip, rest=rest))

    def render(self) -> U8:
        """An image from the front."""
        return self._draw(("frontview",), 480)["frontview"]

    def close(self) -> None:
        """Close the environment."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        if self._env is not None:
            self._env.close()
            self._env = self.task = None

    def _running(self) -> Task:
        if self.task is None:
            raise InputError("the world has not been reset yet: call reset first")
        return self.task

    def _body(self, name: str) -> int:
        model = self._env.sim.model
        known = name if name in model.body_names else f"{name}_main"
        return int(model.body_name2id(known))

    def _proprio(self) -> F64:
        data = self._env.sim.data
        turn = data.site_xmat[self._site].reshape(3, 3)
        one, two = (data.geom_xpos[pad] for pad in self._pads)
        closed, opened = self.arm.pads
        opening = (float(np.linalg.norm(one - two)) - closed) / (opened - closed)
        return np.concatenate(
            [data.site_xpos[self._site], matrix_to_rotation6(turn), [min(max(opening, 0.0), 1.0)]]
        )

    def _poses(self) -> dict[str, F64]:
        data, task = self._env.sim.data, self._running()
        found = {
            name: np.concatenate([data.body_xpos[body], data.body_xquat[body]])
            for name, body in self._bodies.items()
        }
        return found | {name: np.array([*place, 1.0, 0.0, 0.0, 0.0]) for name, place in task.fixed.items()}

    def _drive(self, target: F64) -> None:
        """Convert the target to an OSC_POSE change and step; only the gripper's direction is used."""
        if target.shape != (ARM.act.size,) or not np.isfinite(target).all():
            raise InputError(f"an action is {ARM.act.size} finite numbers, not {target.shape}: {target}")
        data = self._env.sim.data
        turn = rotation6_to_matrix(target[3:9]) @ data.site_xmat[self._site].reshape(3, 3).T
        move = (target[:3] - data.site_xpos[self._site]) / MAX_MOVE
        action = np.concatenate([move, rotation_vector(turn) / MAX_TURN, [1.0 if target[9] < 0.5 else -1.0]])
        # Too large a change is scaled, so that it keeps its direction.
        action[:3] /= max(1.0, float(np.abs(action[:3]).max()))
        action[3:6] /= max(1.0, float(np.abs(action[3:6]).max()))
        env, robot = self._env, self._env.robots[0]  # like its step(), without sensors and rewards
        at = robot._ref_actuators_indexes_dict["right"]
        low, high = env.sim.model.actuator_ctrlrange[at].T
        torques = OperationalSpace(robot.part_controllers["right"], self._site)
        for number in range(int(env.control_timestep / env.model_timestep)):
            env.sim.step1()
            if number == 0:
                env._pre_action(action, True)
            else:  # the goal and the gripper command do not change
                env.sim.data.ctrl[at] = np.clip(torques(), low, high)
            env.sim.step2()

    def _progress(self) -> dict[str, float]:
        """Progress metrics (reached, grasped, carried, done); their maximum shows how far an episode came."""
        env, task, poses = self._env, self._running(), self._poses()
        thing = poses[task.main]
        tool = env.sim.data.site_xpos[self._site]
        away = float(np.linalg.norm(tool - point_of(thing, task.grip)))
        if task.goal:
            carried = float(np.linalg.norm(thing[:2] - poses[task.goal][:2])) < CARRIED_M
        elif task.env == "Door":
            carried = float(env.sim.data.qpos[env.hinge_qpos_addr]) > CARRIED_M
        else:
            carried = float(thing[2]) > task.placed[0].z + CARRIED_M / 2
        grasped = env._check_grasp(env.robots[0].gripper, self._geoms)
        done = bool(env._check_success()) and not (task.releases and away < RETREAT_M)
        found = {"reached": away < REACHED_M, "grasped": grasped, "carried": carried, "done": done}
        return {name: float(value) for name, value in found.items()}

    def _draw(self, cameras: tuple[str, ...], size: int) -> dict[str, U8]:
        from recap_worlds.rendering import Renderer

        sim = self._env.sim
        if self._renderer is None:
            sim.model._model.vis.quality.offsamples = 0  # software rendering is four times as fast
            self._renderer = Renderer(sim.model._model, size)
        pictures: dict[str, U8] = self._renderer.draw(sim.data._data, cameras, size)
        return pictures


def point_of(pose: F64, point: tuple[float, float, float]) -> F64:
    """A point of an object in the world: (3,)."""
    placed: F64 = pose[:3] + quaternion_to_matrix(pose[3:]) @ np.asarray(point)
    return placed


def rotation_vector(turn: F64) -> F64:
    """Rotation vector (axis times angle) of a rotation matrix: (3,)."""
    w, *xyz = matrix_to_quaternion(turn)
    sine = float(np.linalg.norm(xyz))
    return np.asarray(xyz) * (2.0 if sine < 1e-9 else 2 * math.atan2(sine, w) / sine)
