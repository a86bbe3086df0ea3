"""The metadata that a server sends to a client that connects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recap import __version__
from recap import config as configs
from recap_client.messages import IMAGE, STATE

if TYPE_CHECKING:
    from recap.serving.service import Service


def metadata_of(service: Service) -> dict[str, Any]:
    """The first message of a connection."""
    robot, limits = service.wire_robot, service.limits_of(service.wire_robot)
    sizes = {camera: spec.size for camera, spec in robot.cameras.items()}
    return {
        "server": f"recap {__version__}",
        "policy": service.spec.agent.policy,
        "fingerprint": service.fingerprint,
        "retrieval": service.agent.retriever.config.name,
        "robot": configs.plain(robot),
        "action_horizon": service.chunk_size,
        "n_action_steps": service.agent.n_action_steps,
        "action_dim": robot.act.size,
        "action_mode": robot.action_mode,
        "action_space": ", ".join(f"{f.name} ({f.kind}, {f.size} {f.unit})" for f in robot.action),
        "state_dim": robot.body.size,
        "hold": robot.measured.tolist(),
        "state_key": STATE,
        "image_key": IMAGE,
        "image_keys": {camera: service.obs_spec.key_of(camera) for camera in robot.cameras},
        "camera_size": (service.agent.policy and service.agent.image_size)
        or next((s[0] for s in sizes.values() if s), 96),
        "cameras": {camera: None if size is None else list(size) for camera, size in sizes.items()},
        "cameras_required": list(service.obs_spec.requires.cameras),
        "objects_required": list(service.obs_spec.requires.objects),
        "poses_from_images": service.obs_spec.estimates,
        "control_hz": robot.control_hz,
        "budget_ms": service.budget_ms,
        "options": dict(service.scene.options),
        "option_names": [] if service.suite is None else sorted(service.suite.options),
        "reaction": service.spec.agent.reaction,
        "min_confidence": service.spec.agent.min_confidence,
        "action_low": limits.low.tolist(),
        "action_high": limits.high.tolist(),
        "max_steps": [list(step) for step in limits.steps],
        "gate": service.gate,
        "pool_version": service.agent.retriever.source.view().version,
        "pool_writable": service.is_writable,
        "default_prompt": service.obs_spec.default_prompt,
        "reset": "a new connection, or {'reset': true, 'seed': n, 'options': {...}}, begins an episode",
    }
