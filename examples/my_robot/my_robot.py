"""A robot of your own in one file: copy it, and replace the toy arm by yours.

`make_env` is what `recap eval --env my_robot:make_env --map map.yaml` rolls out in, `connect` what
`recap run --robot my_robot:connect` drives, and `python my_robot.py DIR` records demonstrations.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import recap
from recap.pool.lerobot import assemble, stage_episode

COLOURS = {"red": (220, 40, 40), "blue": (40, 60, 220)}
SIZE = (48, 64)  # px of the camera: height, width


class MyEnv(gym.Env[dict[str, Any], np.ndarray[Any, Any]]):
    """A tool above a table: close the gripper on the dot of the task's colour."""

    metadata = {"render_modes": [], "render_fps": 10}  # noqa: RUF012

    def __init__(self, speed: float = 0.06, offset: float = 0.0) -> None:
        self.speed, self.offset = speed, offset  # an embodiment: how fast it is, and where its fingers are
        box, image = gym.spaces.Box(-1.0, 1.0, (4,), np.float32), gym.spaces.Box(0, 255, (*SIZE, 3), np.uint8)
        self.action_space = box
        self.observation_space = gym.spaces.Dict({"state": box, "front": image})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.task = (options or {}).get("task", "red")
        self.dots = dict(zip(COLOURS, self.np_random.uniform(-0.4, 0.4, (2, 2)), strict=True))
        self.state = np.array([0.0, 0.0, 0.2, 1.0])
        return self._seen(), self._info()

    def step(self, action: Any) -> Any:
        way = np.asarray(action, np.float64)[:3] - self.state[:3]
        self.state[:3] += way * min(1.0, self.speed / max(float(np.linalg.norm(way)), 1e-9))
        self.state[3] = np.clip(action[3], 0.0, 1.0)
        done = self._info()["is_success"]
        return self._seen(), float(done), done, False, self._info()

    def _info(self) -> dict[str, Any]:
        goal = np.array([*self.dots[self.task], self.offset])
        near = np.linalg.norm(self.state[:3] - goal) < 0.04
        return {"task": f"grasp the {self.task} dot", "is_success": bool(near and self.state[3] < 0.5)}

    def _seen(self) -> dict[str, Any]:
        picture = np.full((*SIZE, 3), 230, np.uint8)
        for colour, place in [*self.dots.items(), ("tool", self.state[:2])]:
            row, column = (np.array(SIZE) * (0.5 + np.asarray(place)[::-1])).astype(int)
            picture[max(row - 2, 0) : row + 2, max(column - 2, 0) : column + 2] = COLOURS.get(
                colour, (30, 30, 30)
            )
        return {"state": self.state.astype(np.float32), "front": picture}

    def expert(self) -> Any:
        """Above the dot, down, close."""
        goal = np.array([*self.dots[self.task], self.offset])
        above = np.linalg.norm(self.state[:2] - goal[:2]) > 0.01
        low = np.linalg.norm(self.state[:3] - goal) < 0.02
        way = np.array([goal[0], goal[1], 0.2 if above else goal[2]]) - self.state[:3]
        step = way * min(1.0, self.speed / max(float(np.linalg.norm(way)), 1e-9))
        return np.array([*self.state[:3] + step, 0.0 if low else 1.0])


def make_env() -> MyEnv:
    """Where the robot is evaluated."""
    return MyEnv()


class MyRobot:
    """What `recap run` drives: replace the methods by your driver."""

    def __init__(self, metadata: dict[str, Any], person_at: int = 10**9) -> None:
        self.env, self.done, self.period, self.person_at = MyEnv(), False, 0, person_at
        self.seen, self.info = self.env.reset(seed=500)

    def observe(self) -> dict[str, Any]:
        image = self.seen["front"]
        return {
            "observation/state": self.seen["state"],
            "observation/images/front": image,
            "prompt": self.info["task"],
        }

    def act(self, action: Any) -> None:
        self.seen, _, done, _, self.info = self.env.step(action)
        self.done = self.done or done

    def takeover(self) -> Any:
        """What a person wants now, or None while the policy drives: read your gamepad or leader arm here.

        Leave the method out if nobody takes over. Here the expert drives for 12 periods, from `person_at` on.
        """
        self.period += 1
        return self.env.expert() if 0 <= self.period - self.person_at < 12 else None


def connect(metadata: dict[str, Any], person_at: int = 10**9) -> MyRobot:
    """The robot, given what the server says of itself; options come as --robot.NAME VALUE."""
    return MyRobot(metadata, person_at)


def record(env: MyEnv, task: str, seed: int, embodiment: str) -> recap.Episode:
    """One demonstration; two embodiments that begin from the same scene share its id."""
    seen, info = env.reset(seed=seed, options={"task": task})
    states, actions, frames, n_closed = [], [], [], 0
    while n_closed < 4:
        action = env.expert()
        states.append(seen["state"])
        actions.append(action)
        frames.append(seen["front"])
        seen, _, closed, _, _ = env.step(action)
        n_closed += closed
    scene = f"my_robot/{task}/{seed}"
    return recap.Episode(
        id=f"{scene}/{embodiment}",
        scene_id=scene,
        task=info["task"],
        embodiment=embodiment,
        fps=10.0,
        timestamps=np.arange(len(states)) / 10,
        proprio=np.array(states, np.float32),
        actions=np.array(actions, np.float32),
        images={"front": frames},
        attributes={"task_key": task},
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "data")
    robot = recap.load_robot(Path(__file__).with_name("robot.yaml"))
    for name, env in {"robot": MyEnv(), "hand": MyEnv(speed=0.03, offset=0.01)}.items():
        episodes = [record(env, task, 100_000 + i, name) for task in COLOURS for i in range(8)]
        for number, episode in enumerate(episodes):
            stage_episode(folder / f".{name}", number, episode)
        assemble(folder / f".{name}", len(episodes), folder / name, robot=robot)
        print(f"{folder / name}: {len(episodes)} demonstrations")
