"""One arm on MuJoCo in joint space, with two cameras and no object poses; another arm shows what to do.

`make_env` is what `recap eval --env one_arm:make_env --map map.yaml` rolls out in, `connect` what
`recap run --robot one_arm:connect` drives, and `python one_arm.py DIR` records demonstrations of both arms.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("MUJOCO_GL", "egl" if sys.platform == "linux" else "")

import gymnasium as gym
import mujoco
import numpy as np

if TYPE_CHECKING:
    import recap  # to record alone: the world runs without it

HERE = Path(__file__).parent
HZ = 30
SIZE = (240, 320)  # px of each camera: height, width
JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "forearm_roll", "wrist_flex", "wrist_roll")
OPENING = 0.022  # m of each finger
TASKS = {"press": "press the red button", "slide": "slide the blue knob along its rail"}
HOME = np.array([0.27, 0.0, 0.2])
DOWN = np.diag([-1.0, 1.0, -1.0])  # the tool's axes: z points down
SCENE = """
<mujoco>
  <option timestep="0.0041666666667" integrator="implicitfast"/>
  <visual><global offwidth="320" offheight="240"/><quality shadowsize="0"/></visual>
  <worldbody>
    <light pos="0.3 0 1.5" dir="0 0 -1" diffuse="0.45 0.45 0.45"/>
    <light pos="1 -0.6 1" dir="-0.7 0.5 -0.7" diffuse="0.25 0.25 0.25"/>
    <geom name="table" type="box" size="0.5 0.5 0.02" pos="0.3 0 -0.02" rgba="0.82 0.8 0.76 1"/>
    <camera name="front" pos="0.85 0 0.6" xyaxes="0 1 0 -0.74 0 0.67" fovy="36"/>
    <body name="button" pos="0.3 -0.1 0">
      <geom type="cylinder" size="0.03 0.004" pos="0 0 0.004" rgba="0.25 0.25 0.25 1" contype="0"
        conaffinity="0"/>
      <body><joint name="button" type="slide" axis="0 0 1" range="-0.012 0" limited="true"
        stiffness="80" damping="4"/>
        <geom type="cylinder" size="0.022 0.008" pos="0 0 0.02" rgba="0.85 0.1 0.1 1" mass="0.02"/></body>
    </body>
    <body name="rail" pos="0.3 0.06 0">
      <geom type="box" size="0.008 0.075 0.003" pos="0 0.055 0.003" rgba="0.3 0.3 0.3 1"
        contype="0" conaffinity="0"/>
      <body><joint name="knob" type="slide" axis="0 1 0" range="0 0.11" limited="true"
        frictionloss="0.6" damping="4"/>
        <geom type="box" size="0.022 0.013 0.025" pos="0 0 0.032" rgba="0.1 0.25 0.85 1" mass="0.05"/></body>
    </body>
  </worldbody>
</mujoco>
"""


def build(arm: str) -> Any:
    """The scene with that arm in it: a URDF file of this folder."""
    scene = mujoco.MjSpec.from_string(SCENE)
    text = (HERE / f"{arm}.urdf").read_text("utf-8")
    keep = '<mujoco><compiler fusestatic="false" discardvisual="false"/></mujoco>'
    robot = mujoco.MjSpec.from_string(text.replace("</robot>", f"{keep}</robot>"))
    for body in robot.bodies[1:]:
        body.gravcomp = 1.0
    for joint in robot.joints:
        finger = "finger" in joint.name
        joint.armature, joint.damping = (0.01, 4.0) if finger else (0.02, 1.0)
        servo = robot.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        servo.set_to_position(kp=300.0 if finger else 120.0, kv=10.0 if finger else 9.0)
    hand = robot.body("hand")
    hand.add_camera(name="wrist", pos=[-0.07, 0, -0.01], xyaxes=[0, -1, 0, -0.94, 0, 0.34], fovy=70)
    scene.attach(robot, frame=scene.worldbody.add_frame(), prefix="")
    return scene.compile()


class OneArm(gym.Env[dict[str, Any], np.ndarray[Any, Any]]):
    """An arm at a table with a button and a knob on a rail; actions are joint targets and an opening."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": HZ}  # noqa: RUF012
    render_mode = "rgb_array"

    def __init__(self, arm: str = "arm", speed: float = 0.3) -> None:
        self.model = build(arm)
        self.data = mujoco.MjData(self.model)
        self.speed = speed  # m/s of its expert
        self._renderer: Any = None
        joints = [self.model.joint(name) for name in JOINTS]
        self._q = np.array([joint.qposadr[0] for joint in joints])
        self._v = np.array([joint.dofadr[0] for joint in joints])
        self._range = np.array([joint.range for joint in joints])
        self._motors = [self.model.actuator(name).id for name in (*JOINTS, "left_finger", "right_finger")]
        self._tool = self.model.body("tool").id
        low, high = np.append(self._range[:, 0], 0.0), np.append(self._range[:, 1], 1.0)
        self.action_space = gym.spaces.Box(low.astype(np.float32), high.astype(np.float32))
        image = gym.spaces.Box(0, 255, (*SIZE, 3), np.uint8)
        self.observation_space = gym.spaces.Dict(
            {
                "state": gym.spaces.Box(-4.0, 4.0, (7,), np.float32),
                "images": gym.spaces.Dict({"front": image, "wrist": image}),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.task = (options or {}).get("task", "press")
        mujoco.mj_resetData(self.model, self.data)
        x, y = self.np_random.uniform((0.24, -0.17), (0.38, -0.05))
        self.model.body("button").pos[:2] = self.button = np.array([x, y])
        x, y = self.np_random.uniform((0.24, 0.05), (0.38, 0.12))
        self.model.body("rail").pos[:2] = self.rail = np.array([x, y])
        joints = self.joints_for(HOME + self.np_random.uniform(-0.01, 0.01, 3))
        self.data.qpos[self._q] = joints
        self._command(np.append(joints, 1.0), settle=True)
        return self._seen(), self._info()

    def step(self, action: Any) -> Any:
        self._command(np.clip(np.asarray(action, np.float64), self.action_space.low, self.action_space.high))
        mujoco.mj_step(self.model, self.data, nstep=round(1 / HZ / self.model.opt.timestep))
        info = self._info()
        return self._seen(), float(info["is_success"]), info["is_success"], False, info

    def render(self) -> Any:
        return self._picture("front")

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()

    def _command(self, action: Any, settle: bool = False) -> None:
        opening = OPENING * action[6]
        self.data.ctrl[self._motors] = [*action[:6], opening, -opening]
        if settle:
            for name, value in (("left_finger", opening), ("right_finger", -opening)):
                self.data.qpos[self.model.joint(name).qposadr[0]] = value
            mujoco.mj_forward(self.model, self.data)

    def _info(self) -> dict[str, Any]:
        pressed = self.data.joint("button").qpos[0] < -0.007
        slid = self.data.joint("knob").qpos[0] > 0.07
        done = pressed if self.task == "press" else slid
        return {"task": TASKS[self.task], "is_success": bool(done)}

    def _seen(self) -> dict[str, Any]:
        opening = self.data.joint("left_finger").qpos[0] / OPENING
        state = np.append(self.data.qpos[self._q], np.clip(opening, 0.0, 1.0)).astype(np.float32)
        return {"state": state, "images": {name: self._picture(name) for name in ("front", "wrist")}}

    def _picture(self, camera: str) -> Any:
        if self._renderer is None:
            self._renderer = mujoco.Renderer(self.model, *SIZE)
            atexit.register(self._renderer.close)
        self._renderer.update_scene(self.data, camera)
        return self._renderer.render().copy()

    def joints_for(self, place: Any, start: Any = None) -> Any:
        """Joints (6,) that bring the tool to a place (3,), pointing down: damped least squares."""
        data = mujoco.MjData(self.model)
        joints = np.array([0.0, 0.3, 1.6, 0.0, 1.2, 0.0]) if start is None else np.array(start)
        jacobian = np.zeros((6, self.model.nv))
        for _ in range(100 if start is None else 12):
            data.qpos[self._q] = joints
            mujoco.mj_kinematics(self.model, data)
            mujoco.mj_comPos(self.model, data)
            turn = DOWN @ data.xmat[self._tool].reshape(3, 3).T
            axis = 0.5 * np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
            error = np.concatenate([place - data.xpos[self._tool], axis])
            mujoco.mj_jacBody(self.model, data, jacobian[:3], jacobian[3:], self._tool)
            j = jacobian[:, self._v]
            joints = joints + j.T @ np.linalg.solve(j @ j.T + 1e-4 * np.eye(6), error)
            joints = np.clip(joints, *self._range.T)
        return joints

    def expert(self) -> Iterator[Any]:
        """Joint targets that do the task, one a period."""
        x, y = self.button if self.task == "press" else self.rail
        way = [(x, y, 0.09, 1.0), (x, y, 0.09, 0.0), (x, y, 0.006, 0.0), (x, y, 0.09, 0.0)]
        if self.task == "slide":
            beside = (x, y - 0.05, 0.09)
            way = [(*beside, 1.0), (*beside, 0.0), (x, y - 0.05, 0.03, 0.0), (x, y + 0.085, 0.03, 0.0)]
        joints = self.data.qpos[self._q].copy()
        data = self.data
        at = data.xpos[self._tool].copy()
        for *place, opening in way:
            while np.linalg.norm(place - at) > 1e-6:
                left = np.asarray(place) - at
                at = at + left * min(1.0, self.speed / HZ / float(np.linalg.norm(left)))
                joints = self.joints_for(at, joints)
                yield np.append(joints, opening)
            for _ in range(4):
                yield np.append(joints, opening)


def make_env() -> OneArm:
    """Where the robot is evaluated."""
    return OneArm()


class Driver:
    """What `recap run` drives: the simulated arm in place of yours."""

    def __init__(self, task: str = "press", seed: int = 500) -> None:
        self.env, self.done = OneArm(), False
        self.seen, self.info = self.env.reset(seed=seed, options={"task": task})

    def observe(self) -> dict[str, Any]:
        images = {f"observation/images/{name}": image for name, image in self.seen["images"].items()}
        return {"observation/state": self.seen["state"], "prompt": self.info["task"], **images}

    def act(self, action: Any) -> None:
        self.seen, _, done, _, self.info = self.env.step(action)
        self.done = self.done or done

    def picture(self) -> Any:
        return self.seen["images"]["front"]

    def close(self) -> None:
        self.env.close()


def connect(metadata: dict[str, Any], task: str = "press", seed: str = "500") -> Driver:
    """The robot, given what the server says of itself."""
    return Driver(task, int(seed))


def record(env: OneArm, task: str, seed: int, name: str) -> recap.Episode:
    """One demonstration; both arms begin from the same scene for the same seed."""
    import recap

    seen, info = env.reset(seed=seed, options={"task": task})
    frames: dict[str, list[Any]] = {"front": [], "wrist": []}
    states, actions, solved = [], [], False
    for action in env.expert():
        states.append(seen["state"])
        actions.append(action)
        for camera, image in seen["images"].items():
            frames[camera].append(image)
        seen, _, done, _, _ = env.step(action)
        solved = solved or done
    if not solved:
        raise RuntimeError(f"the expert of {name} did not {task} in scene {seed}")
    scene = f"one_arm/{task}/{seed}"
    return recap.Episode(
        id=f"{scene}/{name}",
        scene_id=scene,
        task=info["task"],
        embodiment=name,
        fps=float(HZ),
        timestamps=np.arange(len(states)) / HZ,
        proprio=np.array(states, np.float32),
        actions=np.array(actions, np.float32),
        images=frames,
        attributes={},
    )


def write(folder: Path, env: OneArm, name: str, tasks: list[str], n: int) -> None:
    """A LeRobot v3 dataset of n demonstrations a task, with the names of the motors."""
    from recap.pool.lerobot import assemble, stage_episode

    work = folder.with_name(f".{folder.name}")
    scenes = [(task, 100_000 + i) for task in tasks for i in range(n)]
    for number, (task, seed) in enumerate(scenes):
        stage_episode(work, number, record(env, task, seed, name))
        if (number + 1) % 10 == 0:
            print(f"{folder}: {number + 1} of {len(scenes)} demonstrations", flush=True)
    assemble(work, len(scenes), folder)
    info = json.loads((folder / "meta/info.json").read_text("utf-8"))
    for key in ("observation.state", "action"):
        info["features"][key]["names"] = [f"{joint}.pos" for joint in (*JOINTS, "gripper")]
    (folder / "meta/info.json").write_text(json.dumps(info, indent=4), "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record demonstrations of both arms.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("data"))
    parser.add_argument("--n", type=int, default=30, help="demonstrations a task")
    given = parser.parse_args()
    other = OneArm("other_arm", speed=0.2)
    write(given.folder / "arm", OneArm(), "arm", ["press"], given.n)
    write(given.folder / "other_press", other, "other_arm", ["press"], given.n)
    write(given.folder / "other_slide", other, "other_arm", ["slide"], given.n)
