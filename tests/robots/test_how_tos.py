"""The pages of docs/how-to, followed command by command; `make test-long` runs them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from robots.following import ROOT, follow, follow_lines

PAGES = ROOT / "docs" / "how-to"
ELSEWHERE = {
    "end-to-end": "tests/robots/test_whole_way.py",
    "teach-with-your-hands": "tests/hands/test_how_to.py",
    "from-one-robot-to-a-fleet": "no commands",
    "index": "no commands",
}
# Whose commands the command line takes (tests/test_docs.py), and which are not carried out as a whole.
NOT_FOLLOWED = {
    "correct-a-policy": "a person at a keyboard",
    "drive-a-robot": "a robot",
    "import-your-data": "the reader's own datasets",
    "look-after-a-pool": "a log of use, an S3 bucket and a Ray cluster",
    "robotwin": "RoboTwin's data and simulator",
    "run-the-evidence": "hours of a GPU",
    "report": "half an hour",
    "serve-a-policy": "HAProxy and curl; tests/serving has its requests",
    "teach-in-the-studio": "a person at a mouse; tests/apps/studio has its pages",
    "train-a-policy": "hours, several GPUs",
    "use-a-pretrained-backbone": "weights of 4 GB",
    "use-the-dual-arm-suite": "half an hour; its commands are those of tests/worlds/dualarm",
    "use-with-lerobot": "LeRobot and an arm; tests/integrations and tests/client have its commands",
}
HERE = (
    "add-a-task",
    "check-your-data",
    "choose-a-retrieval",
    "describe-your-robot",
    "evaluate-offline",
    "your-own-robot",
)


def test_of_each_how_to_it_is_known_what_follows_it() -> None:
    known = (*HERE, *ELSEWHERE, *NOT_FOLLOWED)
    assert sorted(known) == sorted(page.stem for page in PAGES.glob("*.md"))
    for test in ELSEWHERE.values():
        assert test == "no commands" or (ROOT / test).is_file()


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of examples/my_robot, its data, and what your-own-robot trains."""
    place = tmp_path_factory.mktemp("robots") / "my_robot"
    shutil.copytree(ROOT / "examples" / "my_robot", place)
    copied = "cp -r examples/my_robot my_robot && cd my_robot"
    less = {copied: "", "--size small --out": "--size debug --out", "500:510": "500:501"}
    follow(PAGES / "your-own-robot.md", place, less)
    return place


@pytest.mark.long
def test_your_own_robot(robot: Path) -> None:
    for run in ("eval", "replay"):
        lines = (robot / f"runs/{run}/episodes.jsonl").read_text("utf-8").splitlines()
        assert sorted(json.loads(line)["task"] for line in lines) == ["blue", "red"]


@pytest.mark.long
def test_evaluate_offline(robot: Path) -> None:
    shutil.copytree(robot / "runs/mine", robot / "runs/other", dirs_exist_ok=True)
    follow_lines(["recap pool create pools/offline", "recap pool add pools/offline data/hand"], robot)
    follow(PAGES / "evaluate-offline.md", robot, {"rerun runs/offline/robot_episode_3.rrd": ""})
    assert (robot / "runs/offline/offline.json").is_file()


@pytest.mark.long
def test_check_your_data(robot: Path) -> None:
    slow = "recap check pusht-triangle pusht-9x100"  # a minute; tests/cli has it on less
    less = {slow: "", " > runs/mine/check.json": ""}  # that of a shell
    follow(PAGES / "check-your-data.md", robot, less)


@pytest.mark.long
def test_choose_a_retrieval(robot: Path) -> None:
    page = PAGES / "choose-a-retrieval.md"
    found = re.search(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert found is not None
    (robot / "retrieval.yaml").write_text(found[1], "utf-8")
    follow_lines(["recap pool create pools/chosen", "recap pool add pools/chosen data/hand"], robot)
    follow(page, robot, {"--size small": "--size debug", "500:510": "500:501"})


@pytest.mark.long
def test_describe_your_robot(tmp_path: Path) -> None:
    place = tmp_path / "one_arm"
    shutil.copytree(ROOT / "examples" / "one_arm", place)
    follow_lines(["python one_arm.py data --n 2"], place)
    follow(PAGES / "describe-your-robot.md", place)
    assert (place / "other_arm.yaml").is_file()


@pytest.mark.long
def test_add_a_task(tmp_path: Path) -> None:
    own = 'recap pool inspect my/dataset --map proprio=observation.state --map "object:block='
    text = (PAGES / "add-a-task.md").read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith(own))
    less = {line: "", "500:510": "500:501", "--per-angle 40": "--per-angle 4"}
    follow(PAGES / "add-a-task.md", tmp_path, less)
    assert (tmp_path / "why.png").is_file()
