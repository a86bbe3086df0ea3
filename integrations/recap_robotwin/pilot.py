"""An agent in RoboTwin: converts its observations, and actions for its `ee` control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recap.assembly import assemble_agent, load_policy
from recap.errors import InputError
from recap.geometry3 import ARM_DIM, decode_arms, encode_arms
from recap.pictures import resize_image
from recap.pool.robotwin_write import ARMS, FPS, our_camera, their_camera
from recap.retrieval.explain import observation_at
from recap.robot import RobotSpec, infer_robot
from recap.types import F32, F64, U8, Moment, Observation
from recap_robotwin.spec import PilotSpec, read_spec

if TYPE_CHECKING:
    from recap.agent import RetrievalAgent
    from recap.policies.policy import TrainedPolicy
    from recap.pool.view import PoolSource

SLOT = 0
OBSERVATION, OBJECTS, INSTRUCTION = "observation/", "objects/", "instruction"


class Pilot:
    """Acts in one episode after the other; `open` makes one from RoboTwin's settings."""

    def __init__(self, spec: PilotSpec, pool: PoolSource, policy: TrainedPolicy | None = None) -> None:
        self.spec = spec
        self.agent = assemble_agent(spec.agent, pool, policy, robot=_robot(pool))
        self.n_action_steps = self.agent.n_action_steps
        wanted = list(self.agent.requires.cameras)
        self.cameras = tuple(their_camera(name) for name in wanted)  # cameras that RoboTwin must provide
        self._sizes, self._fps = _look_into(pool, wanted)
        if self.agent.policy is not None and self.agent.image_size is not None:
            self._sizes |= dict.fromkeys(wanted, (self.agent.image_size, self.agent.image_size))
        self._follows_objects = _follows_objects(self.agent)
        self._n_episodes = 0
        self.reset()

    @classmethod
    def open(cls, usr_args: Mapping[str, Any]) -> Pilot:
        """Load the policy, if there is one, and open the pool."""
        from recap.pool.opening import open_pool

        spec = read_spec(usr_args)
        pool, policy = open_pool(spec.pool), load_policy(spec.agent)
        if policy is not None and policy.config.action_dim != 2 * ARM_DIM:
            raise InputError(
                f"policy {spec.agent.policy} has {policy.config.action_dim}-D actions: RoboTwin has two "
                "arms, 20-D"
            )
        if policy is None and not pool.view().episode_ids:
            raise InputError(
                f"pool {spec.pool} is empty and there is nothing to replay: recap pool add it first"
            )
        return cls(spec, pool, policy)

    def reset(self) -> None:
        """A new episode begins."""
        self.agent.reset(SLOT, _Seeded(self._n_episodes))
        self._n_episodes += 1
        self._n_steps = 0

    def act(self, message: Mapping[str, NDArray[Any]]) -> F64:
        """The next `ee` action (16,): for each arm xyz, quaternion with w first, gripper.

        Args:
            message: RoboTwin's observation by path (`endpose/left_endpose`, `observation/head_camera/rgb`),
                with `instruction` and, if known, `objects/NAME` (7,).
        """
        seen = self.observe(message)
        if self._follows_objects and not seen.objects:
            raise InputError(
                f"retrieval '{self.agent.retriever.config.name}' follows objects, whose poses RoboTwin does "
                "not tell: name them as objects: in deploy_policy.yml, or use retrieval world or blind"
            )
        action = self.agent.act([SLOT], [seen])[0]
        if self.agent.retrieval(SLOT) is None:
            raise InputError(
                f"retrieval '{self.agent.retriever.config.name}' needs a goal, or an object other than "
                f"{', '.join(seen.objects) or 'none'}: it is not meant for two arms; use retrieval world or "
                "blind"
            )
        self._n_steps += 1
        return to_ee(action, seen.proprio)

    def observe(self, message: Mapping[str, NDArray[Any]]) -> Observation:
        """Convert RoboTwin's observation to an `Observation`."""
        images = {}
        for name in self.cameras:
            key = f"{OBSERVATION}{name}/rgb"
            if key not in message:
                raise InputError(
                    f"RoboTwin's observation has no '{key}': switch that camera and rgb on in the task config"
                )
            images[our_camera(name)] = _picture(message[key], key, self._sizes.get(our_camera(name)))
        objects = {
            key.removeprefix(OBJECTS): _pose(message[key], key) for key in message if key.startswith(OBJECTS)
        }
        return Observation(
            proprio=_arms(message),
            task=str(message.get(INSTRUCTION, "")),
            time_s=self._n_steps / self._fps,
            images=images,
            objects=objects,
        )


def to_ee(action: NDArray[Any], now: NDArray[Any]) -> F64:
    """Convert a 20-D action to RoboTwin's 16-D; of q and -q, the quaternion nearer to the current one."""
    if action.shape != (2 * ARM_DIM,):
        raise InputError(f"an action is of shape {action.shape}: the agent does not drive two arms, (20,)")
    try:
        poses = decode_arms(np.stack([action, now]))
    except ValueError as error:
        raise InputError(f"an action holds no rotation ({error}): nothing is sent") from error
    parts = []
    for pose, gripper in (poses[:2], poses[2:]):
        turn = pose[0, 3:] if pose[0, 3:] @ pose[1, 3:] >= 0 else -pose[0, 3:]
        parts += [pose[0, :3], turn, np.clip(gripper[:1], 0, 1)]
    return np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class _Seeded:
    """A trial with a seed."""

    seed: int


def _robot(pool: PoolSource) -> RobotSpec | None:
    """The robot of the pool, inferred from its first demonstration."""
    view = pool.view()
    return infer_robot(view.episode(view.episode_ids[0])) if view.episode_ids else None


def _follows_objects(agent: RetrievalAgent) -> bool:
    """True if the agent's retrieval depends on objects."""
    retriever, view = agent.retriever, agent.retriever.source.view()
    aligner = retriever.config.aligner
    if aligner.from_start or agent.requires.objects or not view.episode_ids:
        return aligner.from_start or bool(agent.requires.objects)
    seen = observation_at(view.episode(view.episode_ids[0]), 0)
    known, bare = (
        retriever.describer.describe(Moment.of([one])) for one in (seen, replace(seen, objects={}))
    )
    return any(not np.array_equal(known[name], bare[name]) for name in known)


def _look_into(pool: PoolSource, cameras: list[str]) -> tuple[dict[str, tuple[int, int]], float]:
    """Height and width of the pool's images, to which observed images are resized, and its rate."""
    view = pool.view()
    if not view.episode_ids:
        return {}, FPS
    first = view.episode(view.episode_ids[0])
    if first.proprio.shape[1] != 2 * ARM_DIM or first.actions.shape[1] != 2 * ARM_DIM:
        raise InputError(
            f"the pool has {first.proprio.shape[1]}-D proprioception and {first.actions.shape[1]}-D actions: "
            "give one of two arms, 20-D"
        )
    shown = {camera: first.images[camera][0] for camera in cameras if camera in first.images}
    return {camera: (image.shape[0], image.shape[1]) for camera, image in shown.items()}, first.fps


def _arms(message: Mapping[str, NDArray[Any]]) -> F32:
    values = []
    for arm in ARMS:
        for key, shape in ((f"endpose/{arm}_endpose", (7,)), (f"endpose/{arm}_gripper", ())):
            if key not in message:
                raise InputError(
                    f"RoboTwin's observation has no '{key}': set data_type: endpose: true in the task config"
                )
            values.append(_numbers(message[key], key, shape)[None])
    try:
        arms: F32 = encode_arms(*values)[0].astype(np.float32)
    except ValueError as error:
        raise InputError(f"RoboTwin's observation holds no pose of a tool: {error}") from error
    return arms


def _pose(given: NDArray[Any], key: str) -> F64:
    pose = _numbers(given, key, (7,))
    if abs(np.linalg.norm(pose[3:]) - 1) > 1e-2:
        raise InputError(f"'{key}' is no pose: give xyz and a unit quaternion, w first")
    return pose


def _numbers(given: NDArray[Any], key: str, shape: tuple[int, ...]) -> F64:
    values = np.asarray(given)
    if values.dtype.kind not in "iuf" or values.shape != shape or not np.isfinite(values).all():
        raise InputError(f"'{key}' is {values.dtype} {values.shape}, or not finite: it should be {shape}")
    return values.astype(np.float64)


def _picture(given: NDArray[Any], key: str, size: tuple[int, int] | None) -> U8:
    """Check an RGB image and resize it to the size of the demonstrations' images, if given."""
    image = np.asarray(given)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise InputError(f"'{key}' is {image.dtype} {image.shape}: it should be uint8 (h, w, 3)")
    return image if size is None else resize_image(image, size)
