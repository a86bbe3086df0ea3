"""PyPI's `openpi-client`, in its own environment, works with the policy server unchanged."""

import json
import sys
from pathlib import Path

import numpy as np
from openpi_environment import run_with_openpi
from served import board, replay_service, replay_spec, served

from recap.pool.store import Pool
from recap.serving.service import Service
from recap.types import Episode

ROBOT = """
import json
import numpy as np
from openpi_client.websocket_client_policy import WebsocketClientPolicy

port, token, images = int(sys.argv[1]), sys.argv[2] or None, np.load(sys.argv[3])
policy = WebsocketClientPolicy("127.0.0.1", port, token)
metadata = policy.get_server_metadata()
told = {"metadata": metadata, "numpy": np.__version__, "replies": []}
for image, state in zip(images["images"], images["states"]):
    reply = policy.infer({"observation/image": image, "observation/state": state, "prompt": "push"})
    told["replies"].append({
        "shape": reply["actions"].shape,
        "kind": reply["actions"].dtype.str,
        "actions": reply["actions"].tolist(),
        "confidence": reply["confidence"],
        "timing": sorted(reply["server_timing"]),
    })
policy.reset()
try:
    policy.infer({"prompt": "no state"})
except RuntimeError as error:
    told["error"] = str(error)
told["after"] = policy.infer({"observation/image": image, "observation/state": state})["actions"].shape
print(json.dumps(told))
"""


def test_openpi_client_connects_infers_and_receives_errors(tmp_path: Path, demos: list[Episode]) -> None:
    Pool.create(tmp_path / "pool").add(demos)
    env = board(seed=511)
    moments = [env.observe(96)]
    for _ in range(3):
        env.step(np.array([256.0, 256.0]))
        moments.append(env.observe(96))
    np.savez(
        tmp_path / "moments.npz",
        images=np.stack([m.images["top"] for m in moments]),
        states=np.stack([m.proprio for m in moments]),
    )
    spec = replay_spec(pool=str(tmp_path / "pool"), token="a-long-secret")
    with served(Service.open(spec)) as server:
        ran = run_with_openpi(ROBOT, str(server.port), "a-long-secret", str(tmp_path / "moments.npz"))
        refused = run_with_openpi(ROBOT, str(server.port), "", str(tmp_path / "moments.npz"))
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["numpy"].startswith("1.") or sys.version_info >= (3, 13)
    assert told["metadata"]["action_horizon"] == 8
    assert told["metadata"]["fingerprint"]
    for reply in told["replies"]:
        assert (reply["shape"], reply["kind"]) == ([8, 2], "<f4")
        assert np.isfinite(reply["actions"]).all()
        assert "infer_ms" in reply["timing"]
    assert "observation/state" in told["error"]
    assert told["after"] == [8, 2]
    assert refused.returncode != 0
    assert "401" in refused.stderr


def test_openpi_client_gets_503_when_the_server_is_full(tmp_path: Path) -> None:
    from recap.serving.spec import Limits

    code = """
from openpi_client.websocket_client_policy import WebsocketClientPolicy
one = WebsocketClientPolicy("127.0.0.1", int(sys.argv[1]))
two = WebsocketClientPolicy("127.0.0.1", int(sys.argv[1]))
"""
    with served(replay_service(limits=Limits(max_connections=1))) as server:
        ran = run_with_openpi(code, str(server.port))
    assert "503" in ran.stderr
