"""The robot loop: it keeps its rate, limits every target, and always ends at rest."""

import itertools
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from served import Served, replay_service, served

from recap import config as configs
from recap.errors import InputError, ServerError, UnreachableError
from recap.serving.app import build_app
from recap.types import F64, Episode
from recap_client.client import PolicyClient
from recap_client.lerobot import LeRobotRobot
from recap_client.messages import as_message
from recap_client.robot_loop import LoopSpec, Robot, RobotLoop
from recap_client.robots import make_robot
from recap_worlds.pusht.robot import PUSHT
from recap_worlds.pusht.simulated_robot import PushTRobot

SAID: dict[str, Any] = {
    "control_hz": 50.0,
    "action_horizon": 8,
    "n_action_steps": 4,
    "action_dim": 2,
    "action_low": [0.0, 0.0],
    "action_high": [512.0, 512.0],
    "max_steps": [[0, 2, 60.0]],
    "robot": configs.plain(PUSHT),
}


class Recorder:
    """A robot that reaches every target at once and records them."""

    def __init__(self, fails_at: int = -1, error: BaseException | None = None) -> None:
        self.acted: list[F64] = []
        self.closed = 0
        self._fails_at, self._error = fails_at, error

    def observe(self) -> Mapping[str, Any]:
        here = self.acted[-1] if self.acted else np.array([256.0, 256.0])
        return {"observation/state": here}

    def act(self, action: F64) -> None:
        self.acted.append(action)
        if self._error is not None and len(self.acted) == self._fails_at:
            raise self._error

    def close(self) -> None:
        self.closed += 1


class Scripted:
    """A policy that computes its reply from the message by a function."""

    def __init__(self, reply: Callable[[Mapping[str, Any]], Any], **said: Any) -> None:
        self.metadata: dict[str, Any] = {**SAID, **said}
        self.sent: list[Mapping[str, Any]] = []
        self._reply = reply

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        self.sent.append(observation)
        reply = self._reply(observation)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, dict) else {"actions": reply, "held": False}


def onward(message: Mapping[str, Any]) -> F64:
    """A chunk that moves to the right."""
    return np.asarray(message["observation/state"]) + np.arange(1, 9)[:, None] * [1.0, 0.0]


def driven(policy: Any, robot: Any = None, **spec: Any) -> tuple[RobotLoop, Any]:
    robot = robot or Recorder()
    loop = RobotLoop(robot, policy, LoopSpec(**{"steps": 30, **spec}))
    loop.run()
    return loop, robot


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as peer:
        return int(peer.getsockname()[1])


def test_every_period_sends_one_target_and_the_last_is_repeated_at_the_end() -> None:
    loop, robot = driven(Scripted(onward))
    assert loop.report.reason == "steps"
    assert (loop.report.periods, len(loop.targets)) == (30, 30)
    assert len(robot.acted) == 31
    assert np.array_equal(robot.acted[-1], robot.acted[-2])
    assert robot.closed == 1
    assert loop.report.seconds > 29 / 50 * 0.9, "not faster than the control rate"


def test_messages_report_executed_actions_and_missed_periods() -> None:
    policy = Scripted(onward)
    loop, _ = driven(policy)
    assert policy.sent[0]["executed"] == policy.sent[0]["missed"] == 0
    assert sum(m["executed"] for m in policy.sent) <= 30
    assert sum(m["executed"] for m in policy.sent) >= 30 - 8
    assert sum(m["missed"] for m in policy.sent) <= loop.report.misses


def test_short_delays_cause_few_misses_and_long_delays_many() -> None:
    def share(delay_s: float) -> float:
        loop, _ = driven(Scripted(onward), rate_hz=40, delay_s=delay_s)
        return loop.report.misses / loop.report.periods

    assert share(0.05) < 0.3 < share(0.4)


def test_a_missed_period_holds_the_last_target() -> None:
    loop, robot = driven(Scripted(onward), delay_s=0.4)
    still = sum(np.array_equal(a, b) for a, b in zip(robot.acted[:-1], robot.acted[1:-1], strict=False))
    assert loop.report.misses > 5
    assert still == loop.report.misses
    assert loop.report.limited == 0


@pytest.mark.parametrize(("rate_hz", "speed", "max_step"), [(50.0, 1.0, 60.0), (100.0, 0.5, 15.0)])
def test_targets_stay_within_the_box_and_the_speed_whatever_the_server_sends(
    rate_hz: float, speed: float, max_step: float
) -> None:
    wild = np.array([[9e9, -9e9], [300.0, 300.0]] * 4)
    loop, robot = driven(
        Scripted(lambda _: wild), rate_hz=rate_hz, limits={"position": (100.0, 400.0)}, speed=speed
    )
    path = np.array([[256.0, 256.0], *robot.acted])
    assert (path >= 100).all()
    assert (path <= 400).all()
    assert np.linalg.norm(np.diff(path, axis=0), axis=1).max() <= max_step + 1e-9
    assert loop.report.limited > 10


class Slow(Recorder):
    """A robot that covers a third of the distance to its target in a period."""

    at = np.array([256.0, 256.0])

    def observe(self) -> Mapping[str, Any]:
        return {"observation/state": self.at}

    def act(self, action: F64) -> None:
        super().act(action)
        self.at = self.at + (action - self.at) / 3


def strides(message: Mapping[str, Any]) -> F64:
    """A chunk that moves to the right in steps too large for a slow robot."""
    return np.asarray(message["observation/state"]) + np.arange(1, 9)[:, None] * [12.0, 0.0]


GATE = {"on": True, "patience": 6, "parts": [["position", 0, 2, 5.0]]}


def test_with_the_gate_the_next_action_is_sent_only_after_the_last_was_reached() -> None:
    policy = Scripted(strides, gate=GATE)
    loop, robot = driven(policy, Slow(), n_blend=0)
    path, at = np.array(robot.acted[:-1]), np.array([256.0, 256.0])
    for before, after in itertools.pairwise(path):
        at = at + (before - at) / 3
        assert np.array_equal(before, after) or np.linalg.norm(before - at) <= 5.0
    again = sum(np.array_equal(a, b) for a, b in itertools.pairwise(path))
    assert loop.report.gated + loop.report.misses == again
    assert loop.report.gated > 10
    assert sum(m["executed"] for m in policy.sent) + loop.report.gated + loop.report.misses <= 30
    off, _ = driven(Scripted(strides, gate=GATE), Slow(), n_blend=0, gate=False)
    assert off.report.gated == 0


def test_the_gate_does_not_delay_a_robot_that_follows_exactly() -> None:
    loop, robot = driven(Scripted(onward, gate=GATE), n_blend=0)
    assert loop.report.gated == 0
    with pytest.raises(InputError, match="leave --gate out"):
        RobotLoop(robot, Scripted(onward), LoopSpec(gate=True))


def test_with_the_gate_an_action_beyond_the_largest_step_is_repeated_until_reached() -> None:
    loop, robot = driven(Scripted(lambda _: np.full((8, 2), 400.0), gate=GATE), steps=8)
    assert np.linalg.norm(robot.acted[-1] - 400.0) < 1e-6
    assert loop.report.gated == 3, "204 px at 60 px a period"


def test_local_limits_only_tighten_the_servers() -> None:
    loose = RobotLoop(Recorder(), Scripted(onward), LoopSpec(limits={"position": (-900.0, 900.0)})).limits
    assert (loose.low.tolist(), loose.high.tolist(), loose.steps) == ([0, 0], [512, 512], ((0, 2, 60.0),))
    tight = RobotLoop(
        Recorder(), Scripted(onward), LoopSpec(limits={"position": (50.0, 900.0)}, speed=0.1)
    ).limits
    assert (tight.low.tolist(), tight.high.tolist(), tight.steps) == ([50, 50], [512, 512], ((0, 2, 6.0),))
    with pytest.raises(InputError, match="widen them"):
        RobotLoop(Recorder(), Scripted(onward), LoopSpec(limits={"position": (600.0, 900.0)}))


@pytest.mark.parametrize(
    "actions", [np.full((8, 2), np.nan), np.zeros((8, 3)), np.zeros(2), np.zeros((0, 2)), [["a", "b"]], None]
)
def test_a_malformed_chunk_does_not_move_the_robot(actions: Any) -> None:
    loop, robot = driven(Scripted(lambda _: {"actions": actions}))
    assert "nothing is done" in loop.report.reason
    assert loop.report.failed
    assert [a.tolist() for a in robot.acted] == [[256.0, 256.0]], "only a target to stay in place"


def test_a_held_reply_keeps_the_robot_at_its_current_position() -> None:
    def unsure_later(message: Mapping[str, Any]) -> Any:
        if message["observation/state"][0] == 256.0:
            return onward(message)
        return {"actions": np.tile(message["observation/state"], (8, 1)), "held": True}

    loop, robot = driven(Scripted(unsure_later), delay_s=0.05)
    path = np.array(robot.acted)[:, 0]
    assert loop.report.held >= 1
    assert (np.diff(path) >= 0).all(), "it never returns to where it was when it asked"


def test_an_exception_of_the_robot_is_raised_after_hold_and_close() -> None:
    for error in (RuntimeError("motor"), KeyboardInterrupt()):
        robot = Recorder(fails_at=5, error=error)
        loop = RobotLoop(robot, Scripted(onward), LoopSpec(steps=30))
        with pytest.raises(type(error)):
            loop.run()
        assert np.array_equal(robot.acted[-1], robot.acted[3]), "the last accepted target"
        assert (len(robot.acted), robot.closed) == (6, 1)


def test_the_loop_can_be_stopped_from_another_thread() -> None:
    loop = RobotLoop(Recorder(), Scripted(onward), LoopSpec())
    threading.Timer(0.2, loop.stop).start()
    assert loop.run().reason == "stopped"
    assert not loop.report.failed


def test_a_lost_server_is_retried_until_the_patience_ends() -> None:
    gone = UnreachableError("policy server is gone")
    policy = Scripted(lambda m: onward(m) if m["observation/state"][0] < 265 else gone)
    loop, robot = driven(policy, steps=500, patience_s=0.5)
    assert loop.report.reason == "policy server is gone"
    assert loop.report.failures > 2
    assert loop.report.misses > 5
    assert np.array_equal(robot.acted[-1], robot.acted[-5]), "it holds until the end"
    refused = ServerError("policy server refuses")
    loop, _ = driven(Scripted(lambda _: refused), patience_s=60)
    assert loop.report.reason == "policy server refuses", "a refusal is not retried"
    assert loop.report.failures == 0, "lost replies, after which it would ask again"


def test_the_loop_holds_while_the_server_restarts_and_then_continues(demos: list[Episode]) -> None:
    port = free_port()
    service = replay_service(demos, port=port)
    server = Served(service, build_app(service))
    with PolicyClient(f"127.0.0.1:{port}", retries=0, connect_timeout_s=1.0) as client:
        loop = RobotLoop(PushTRobot(96, angle=30.0), client, LoopSpec(rate_hz=20))
        thread = threading.Thread(target=loop.run)
        thread.start()
        wait_until(lambda: loop.report.replies >= 2)
        server.stop()
        wait_until(lambda: loop.report.failures >= 2 and loop.report.misses >= 2)
        replies = loop.report.replies
        again = replay_service(demos, port=port)
        server = Served(again, build_app(again))
        wait_until(lambda: loop.report.replies >= replies + 2)
        loop.stop()
        thread.join(10)
    assert loop.report.reason == "stopped"
    assert client.n_connects == 2
    server.stop()


def wait_until(is_so: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_simulated_robot_is_driven_through_a_server_that_counts_its_misses(
    demos: list[Episode],
) -> None:
    with served(replay_service(demos)) as server, PolicyClient(server.ws, retries=0) as client:
        robot = make_robot("pusht-sim", client.metadata, {"angle": 30.0, "seed": 510})
        loop, _ = driven(client, robot, steps=60, rate_hz=30, delay_s=0.5)
        counted = int(re.findall(rb"recap_robot_misses_total (\d+)", server.http("/metrics")[1])[0])
        assert client.metadata["control_hz"] == 10
    assert np.ptp(np.array(loop.targets), axis=0).max() > 5, "it moves"
    assert loop.report.misses > 5
    assert 0 < counted <= loop.report.misses
    assert loop.report.failures == 0
    assert set(loop.report.status) == {"coverage", "best"}
    assert np.isfinite([loop.report.jerk, loop.report.acceleration, loop.report.latency_p99_ms]).all()


def test_with_delta_actions_the_loop_holds_with_zeros() -> None:
    """On a miss, on a held reply and at the end the last delta is not repeated."""
    delta = replace(PUSHT, action_mode="delta", max_step={"position": 3.0})
    said = {"robot": configs.plain(delta), "action_mode": "delta", "max_steps": [[0, 2, 3.0]]}
    said |= {"action_low": [-10.0, -10.0], "action_high": [10.0, 10.0]}
    chunk = np.tile([5.0, 0.0], (8, 1))
    loop, robot = driven(Scripted(lambda _: chunk, **said), delay_s=0.4)
    acted = np.array(robot.acted)
    assert loop.report.misses > 5
    assert (np.abs(acted).max(axis=0) == [3.0, 0.0]).all(), "within the speed limit"
    assert (acted == 0).all(axis=1).sum() >= loop.report.misses + 1
    assert not acted[-1].any(), "at rest at the end"
    replies = iter([{"actions": chunk, "held": False}])
    unsure = {"actions": np.zeros((8, 2)), "held": True}
    loop, robot = driven(Scripted(lambda _: next(replies, unsure), **said))
    assert loop.report.held >= 1
    assert not np.array(robot.acted)[-10:].any()


def test_an_observation_is_converted_to_a_message_completely() -> None:
    seen = PushTRobot(96).env.observe(96)
    message = as_message(seen)
    assert set(message) == {
        "observation/state",
        "observation/images/top",
        "observation/goal",
        "observation/objects/block",
        "observation/time_s",
        "prompt",
    }
    assert "observation/goal" not in as_message(PushTRobot(96).observe()), "without poses no goal is sent"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pusht-simm", "did you mean 'pusht-sim'"),
        ("no.such.module:make", "cannot import"),
        ("builtins:dict", "without observe and act"),
    ],
)
def test_an_unknown_or_unusable_robot_is_an_error(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_robot(name, {}, {})


def test_robot_options_are_keyword_arguments_of_its_factory() -> None:
    with pytest.raises(InputError, match=r"robot 'pusht-sim' has other options than given: .*colour"):
        make_robot("pusht-sim", {}, {"colour": "red"})
    robot = make_robot("pusht-sim", {"option_names": []}, {"block": "zed"})
    assert isinstance(robot, PushTRobot)
    assert robot.options == {}, "the server has no option block"
    known = make_robot("pusht-sim", {"option_names": ["block", "pusher"]}, {"block": "zed"})
    assert isinstance(known, PushTRobot)
    assert known.options == {"block": "zed"}


def test_a_state_of_another_width_than_the_actions_is_refused_before_moving() -> None:
    robot = Recorder()
    robot.observe = lambda: {"observation/state": np.zeros(7)}  # type: ignore[method-assign]
    with pytest.raises(InputError, match="give 2 finite numbers"):
        driven(Scripted(onward), robot)
    assert robot.acted == []
    assert robot.closed == 1


def test_an_observation_without_a_state_is_refused_with_its_keys() -> None:
    robot = Recorder()
    robot.observe = lambda: {"observation.state": np.zeros(2)}  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"no 'observation/state', only 'observation\.state': give 2"):
        driven(Scripted(onward), robot)
    assert robot.acted == []


def test_incomplete_or_invalid_server_metadata_is_refused() -> None:
    policy = Scripted(onward)
    del policy.metadata["max_steps"]
    for odd in (policy, Scripted(onward, control_hz=0.0), Scripted(onward, action_horizon=0)):
        with pytest.raises(ServerError, match="recap serve"):
            RobotLoop(Recorder(), odd)


@pytest.mark.parametrize(
    "spec", [{"rate_hz": 0.0}, {"rate_hz": float("nan")}, {"delay_s": -1.0}, {"steps": 0}, {"speed": 1.5}]
)
def test_an_invalid_loop_spec_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="give"):
        LoopSpec(**spec)


def test_the_robot_loop_imports_neither_torch_nor_aiohttp() -> None:
    code = (
        "import sys; import recap_client.robot_loop, recap.cli.run; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'aiohttp', 'pyarrow', 'numba')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


class LeRobotShaped:
    """The interface of LeRobot's `Robot`: flat dictionaries of floats and images."""

    def __init__(self) -> None:
        self.board = PushTRobot(96, angle=30.0)
        self.is_connected = False
        self.observation_features = {"x.pos": float, "y.pos": float, "top": (96, 96, 3)}
        self.action_features = {"x.pos": float, "y.pos": float}

    def connect(self, calibrate: bool = True) -> None:
        self.is_connected = True

    def disconnect(self) -> None:
        self.is_connected = False

    def get_observation(self) -> dict[str, Any]:
        assert self.is_connected
        seen = self.board.observe()
        x, y = map(float, seen.proprio)
        return {"x.pos": x, "y.pos": y, "top": seen.images["top"]}

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        assert self.is_connected
        assert {key: type(value) for key, value in action.items()} == self.action_features
        self.board.act(np.array([action["x.pos"], action["y.pos"]]))
        return action


def test_a_lerobot_robot_is_driven_by_the_servers_description(demos: list[Episode]) -> None:
    arm = LeRobotShaped()
    arm.connect()
    before = arm.get_observation()
    with served(replay_service(demos)) as server, PolicyClient(server.ws, retries=0) as client:
        robot = LeRobotRobot(arm, client.metadata, {})
        assert isinstance(robot, Robot)
        loop, _ = driven(client, robot, steps=20, rate_hz=20)
    assert loop.report.reason == "steps"
    assert not arm.is_connected, "it is disconnected at the end"
    arm.connect()
    assert arm.get_observation()["x.pos"] != before["x.pos"]
