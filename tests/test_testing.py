"""`check_world` and `check_robot` on our own worlds and on broken ones."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from recap.body import Feature
from recap.errors import InputError
from recap.robot import CameraSpec, RobotSpec
from recap.suites import Options, Suite, suites
from recap.testing import check_robot, check_world
from recap.types import F64, Observation
from recap_worlds.pusht.robot import PUSHT
from recap_worlds.pusht.simulated_robot import PushTRobot

ARM = RobotSpec("arm", 10.0, (Feature("joints", "joint", 2),), cameras={"front": CameraSpec()})


class Broken(Suite):
    """A suite that breaks many rules."""

    name: ClassVar[str] = "broken"

    def tasks(self, options: Options) -> tuple[str, ...]:
        return ("one",)

    def max_steps(self, task: str, options: Options) -> int:
        return 0

    def robot(self, options: Options) -> RobotSpec:
        return ARM

    def make(self, options: Options) -> Any:
        return BrokenWorld()


class BrokenWorld:
    n = 0

    def reset(self, seed: int, task: str) -> Mapping[str, float]:
        BrokenWorld.n += 1
        return {"reward": 0.0}

    def observe(self, image_size: int | None) -> Observation:
        return Observation(
            np.full(3, float(BrokenWorld.n), np.float32), "", 0.0, objects={"cube": np.zeros(7)}
        )

    def step(self, action: F64) -> tuple[Mapping[str, float], bool]:
        return {}, False


@pytest.mark.parametrize("name", suites())
def test_our_worlds_pass_check_world(name: str) -> None:
    if name == "robosuite":  # 157 MB, installed only by `make test-long`
        pytest.importorskip("robosuite", reason="no robosuite: make .venv/.robosuite installs it")
    check_world(suites()[name])


def test_check_world_names_all_faults_at_once() -> None:
    with pytest.raises(InputError) as refused:
        check_world(Broken())
    text = str(refused.value)
    for named in ("max_steps", "'success'", "(3,)", "camera 'front'", "object 'cube'", "two places"):
        assert named in text, named


def test_check_robot_accepts_our_robot_and_refuses_broken_ones() -> None:
    check_robot(PushTRobot(), PUSHT)
    with pytest.raises(InputError, match=r"no observe\(\)"):
        check_robot(object(), PUSHT)
    with pytest.raises(InputError, match="2 numbers"):
        check_robot(Wide(), PUSHT)


class Wide:
    def observe(self) -> dict[str, Any]:
        return {"observation/state": np.zeros(3, np.float32)}

    def act(self, action: F64) -> None: ...
