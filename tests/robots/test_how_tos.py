"""The pages of docs/how-to, followed command by command with less of everything; `make test-long` runs them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ray_nodes import RAY, two_nodes

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


@dataclass(frozen=True)
class How:
    """How a page is followed.

    Args:
        before: commands that make what its reader has.
        less: patterns in its commands -> what stands there instead.
        leaves: files that are there afterwards.
        robot: whether it goes on where your-own-robot ended.
    """

    before: str = ""
    less: Mapping[str, str] = field(default_factory=dict)
    leaves: tuple[str, ...] = ()
    robot: bool = False


FOLLOWED = {
    "add-a-task": How(
        less={"recap pool inspect my/.*\n": "", "500:510": "500:501", "--per-angle 40": "--per-angle 4"},
        leaves=("why.png",),
    ),
    "check-your-data": How(
        robot=True,
        less={"recap check pusht-triangle pusht-9x100": ""},  # a minute; tests/cli has it on less
        leaves=("runs/mine/check.json",),
    ),
    "choose-a-retrieval": How(
        """
        python -c "import re; print(re.search('```yaml\\n(.*?)```', open('page.md').read(), re.S)[1])" > retrieval.yaml
        recap pool create pools/chosen
        recap pool add pools/chosen data/hand
        """,
        robot=True,
        less={"--size small": "--size debug", "500:510": "500:501"},
    ),
    "describe-your-robot": How(
        """
        cp examples/one_arm/* .
        python one_arm.py data --n 2
        """,
        leaves=("other_arm.yaml",),
    ),
    "evaluate-offline": How(
        """
        cp -r runs/mine runs/other
        recap pool create pools/offline
        recap pool add pools/offline data/hand
        """,
        robot=True,
        less={"rerun .*": ""},  # opens a window
        leaves=("runs/offline/offline.json", "runs/offline/robot_episode_3.rrd"),
    ),
    "import-your-data": How(
        """
        python examples/one_arm/one_arm.py data --n 2
        mv data/other_press data/hand
        python -m robots.own_data
        recap pool create pools/arms
        recap pool add pools/arms data/robotwin/grab_roller/clean
        """,
        less={
            "s3://bucket": "$BUCKET",
            "/shared/arm --ray .*": "$PWD/data/arm --ray $RAY",
            "train robot.yaml": "train robot.yaml --size debug --device cpu",
        },
        leaves=("data/all/meta/info.json", "data/press/meta/info.json", "data/twin/grab_roller/ours_clean"),
    ),
}


def test_of_each_how_to_it_is_known_what_follows_it() -> None:
    known = (*FOLLOWED, "your-own-robot", *ELSEWHERE, *NOT_FOLLOWED)
    assert sorted(known) == sorted(page.stem for page in PAGES.glob("*.md"))
    for test in ELSEWHERE.values():
        assert test == "no commands" or (ROOT / test).is_file()


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of examples/my_robot, its data, and what your-own-robot trains."""
    place = tmp_path_factory.mktemp("robots")
    (place / "examples").symlink_to(ROOT / "examples")
    less = {"--size small --out": "--size debug --out", "500:510": "500:501"}
    follow(PAGES / "your-own-robot.md", place, less)
    return place / "my_robot"


@pytest.mark.long
def test_your_own_robot(robot: Path) -> None:
    for run in ("eval", "replay"):
        lines = (robot / f"runs/{run}/episodes.jsonl").read_text("utf-8").splitlines()
        assert sorted(json.loads(line)["task"] for line in lines) == ["blue", "red"]


@contextmanager
def cluster(place: Path, words: str) -> Iterator[None]:
    """A Ray cluster of this machine, at $RAY, for commands that ask for one."""
    if "$RAY" not in words:
        yield
        return
    with two_nodes(place) as (_, address), pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY", address)
        for key, value in RAY.items():
            patch.setenv(key, value)
        yield


@pytest.mark.long
@pytest.mark.parametrize("name", FOLLOWED)
def test_a_how_to_is_followed(
    name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    object_store: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    how = FOLLOWED[name]
    if how.robot:
        shutil.copytree(request.getfixturevalue("robot"), tmp_path, dirs_exist_ok=True)
    for folder in ("examples", "research"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    shutil.copy(PAGES / f"{name}.md", tmp_path / "page.md")
    monkeypatch.setenv("BUCKET", object_store)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    follow_lines(how.before.splitlines(), tmp_path)
    with cluster(tmp_path, "".join(how.less.values())):
        follow(PAGES / f"{name}.md", tmp_path, how.less)
    for file in how.leaves:
        assert (tmp_path / file).exists(), file
