"""LeRobot's own writer, patched to close its files after each episode; needs a venv with LeRobot 0.6."""

import os
import subprocess
from pathlib import Path

import pytest

from recap.pool.importers import open_source
from recap.pool.importers.interventions import demonstrations_in

LEROBOT = os.environ.get("RECAP_LEROBOT_PYTHON", "")  # the interpreter of a venv with lerobot[dataset]
RECORD = """
import sys
import numpy as np
from lerobot.datasets import LeRobotDataset
from recap_client.live_rollout import close_after_each_episode

close_after_each_episode()
vector = {"dtype": "float32", "shape": (2,), "names": ["x", "y"]}
features = {
    "observation.state": vector,
    "action": vector,
    "observation.images.front": {
        "dtype": "video", "shape": (48, 64, 3), "names": ["height", "width", "channels"]
    },
    "intervention": {"dtype": "bool", "shape": (1,), "names": None},
}
data = LeRobotDataset.create("me/rollout_x", 10, root=sys.argv[1], robot_type="toy", features=features)
for number in range(2):
    for t in range(24):
        data.add_frame({
            "observation.state": np.array([t, number], np.float32),
            "action": np.array([t + 1, number], np.float32),
            "observation.images.front": np.full((48, 64, 3), 5 * t, np.uint8),
            "intervention": np.array([t >= 10]),
            "task": "go",
        })
    data.save_episode()
import os
os._exit(0)  # a session that is still going on: nothing is closed in the end
"""


@pytest.mark.long
@pytest.mark.skipif(not LEROBOT, reason="RECAP_LEROBOT_PYTHON names no interpreter with LeRobot 0.6")
def test_saved_episodes_can_be_read_during_the_recording_session(tmp_path: Path) -> None:
    client = Path(__file__).parents[2] / "client"
    environment = {**os.environ, "PYTHONPATH": str(client), "HF_HUB_OFFLINE": "1"}
    folder = tmp_path / "rollout_x"
    subprocess.run([LEROBOT, "-c", RECORD, str(folder)], env=environment, check=True, timeout=300)
    source = open_source(folder)
    assert len(source) == 2
    (correction,) = demonstrations_in(source, 1)
    assert correction.first_match == 8
    assert correction.actions[8:, 0].tolist() == list(range(11, 25))
    assert len(correction.images["front"]) == len(correction)
