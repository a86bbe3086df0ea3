"""The pages of docs/how-to, followed with less of everything; `make test-long` runs them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ray_nodes import RAY, two_nodes
from robots.following import ROOT, follow

PAGES = ROOT / "docs" / "how-to"
ELSEWHERE = {
    "end-to-end": "tests/robots/test_whole_way.py",
    "teach-with-your-hands": "tests/hands/test_how_to.py",
    "from-one-robot-to-a-fleet": "no commands",
    "index": "no commands",
}
# Whose commands the command line takes (tests/test_docs.py), and which are not carried out as a whole.
NOT_FOLLOWED = {
    "run-the-evidence": "hours of a GPU",
    "use-with-lerobot": "LeRobot and an arm; tests/integrations and tests/client have stand-ins",
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


TINY = (
    "--target data/triangle --pool data/disc --iterations 2"
    " --set held_out=0.5 --set policy.image.size=32 --set batch_size=4"
    " --set autoencoder_iterations=1 --set autoencoder_batch=4"
)
DRIVE = "recap run --robot my_robot:connect --steps 20"
OURS = "RoboTwin/data/lift_pot/ours_clean"
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
        cp page.0.yaml retrieval.yaml
        recap pool create pools/chosen
        recap pool add pools/chosen data/hand
        """,
        robot=True,
        less={"--size small": "--size debug", "500:510": "500:501"},
    ),
    "correct-a-policy": How(
        """
        recap pool create pools/corrected --robot robot.yaml
        recap pool add pools/corrected data/hand
        cp -r data/robot data/rollout_kitchen
        """,
        robot=True,
        less={
            "recap run --robot my_lab.arm:connect.*": "",
            "--steps 250": "--steps 90",
            "recap pool follow(.*)#.*": r"recap pool follow\1 --once",
            "python -m recap_client.live_rollout.*": "",  # LeRobot; tests/client has its writer
            "python research/benchmarks/.*": "",  # half an hour
        },
    ),
    "describe-your-robot": How(
        """
        cp examples/one_arm/* .
        python one_arm.py data --n 2
        """,
        leaves=("other_arm.yaml",),
    ),
    "drive-a-robot": How(
        """
        recap pool create pools/driven --robot robot.yaml
        recap pool add pools/driven data/hand
        recap collect dualarm --tasks lift_pot --episodes 2 --image-size 0 --out data/lift_pot
        recap pool create pools/gated_arms
        recap pool add pools/gated_arms data/lift_pot
        """,
        robot=True,
        less={
            "serve pusht-nano": "serve pusht-small",
            "--seed 500": "--seed 500 --steps 40",
            "recap run --robot my_lab.arm:connect --url(.*)--steps 300": "recap serve runs/mine/best --pool "
            r"pools/driven\nrecap run --robot my_robot:connect --url\1--steps 40",
            "recap run --robot my_lab.arm:connect --gate on": f"{DRIVE} --gate on",
            "recap run --robot lerobot.*": "",  # LeRobot and an arm; tests/client has fakes of both
            "500:510": "500:501 --tasks lift_pot",
        },
        leaves=("runs/robot.mp4", "runs/robot.json"),
    ),
    "evaluate-offline": How(
        """
        cp -r runs/mine runs/other
        recap pool create pools/offline
        recap pool add pools/offline data/hand
        """,
        robot=True,
        less={"rerun ": "ls "},  # it opens a window
        leaves=("runs/offline/offline.json",),
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
    "look-after-a-pool": How(
        """
        mkdir logs
        recap pool create pools/kept --robot robot.yaml
        recap pool add pools/kept data/hand
        recap pool create $BUCKET/pool --robot robot.yaml
        recap pool add $BUCKET/pool data/hand
        """,
        robot=True,
        less={
            "# while robots run": f"\n{DRIVE}\n{DRIVE}",
            "rm pools/kept demo/17 ": "rm pools/kept my_robot/red/100001/hand ",
            "demo/17": "my_robot/red/100000/hand",
            "s3://bucket/pool": "$BUCKET/pool",
            "--ray .*": "--ray $RAY",
        },
        leaves=("logs/use.jsonl", "runs/mine/best/SHA256SUMS"),
    ),
    "report": How(
        less={
            "--tasks=-30,0,45 --seeds 500:510": "--tasks=45 --seeds 500:501",
            "failures,3": "1",
            "--policy pusht-nano": "",
            r"evidence.py (\w+)": r"evidence.py \1 --policy pusht-small --angles=0",
            "(?<=failures)": " --matches 2 --every 99",
            "500:510": "500:501",
        },
        leaves=("report.html", "evidence.html"),
    ),
    "robotwin": How(
        """
        collected="--episodes 2 --image-size 32 --format robotwin --out RoboTwin/data"
        recap collect dualarm --tasks lift_pot,grab_roller --config ur5_clean_50 $collected
        recap collect dualarm --tasks lift_pot --embodiment viperx --config aloha_clean_50 $collected
        mkdir RoboTwin/policy
        """,
        less={
            "~": "$PWD",
            "--names": "--names | grep -x -e lift_pot -e grab_roller",
            "bash .*": "",  # RoboTwin's simulator; tests/integrations/test_robotwin.py has a stand-in
            "--episodes 50": "--episodes 1 --image-size 32",
        },
        leaves=("RoboTwin/policy/ReCAP/eval.sh", "RoboTwin/data/click_bell/ur5e_clean", OURS),
    ),
    "serve-a-policy": How(
        """
        recap collect dualarm --tasks lift_pot --embodiment ur5e --episodes 2 --image-size 0 --out data/ur5e
        recap pool create pools/two_ur5e
        recap pool add pools/two_ur5e data/ur5e
        sed 's/127.0.0.1:80[0]0/127.0.0.1:8000/' page.2.python > loop.py
        cp -rL examples own && rm examples && mv own examples
        sed -i 's/:80[0]0/:8000/; s/:80[0]1/:8001/; s/:80[0]2/:8002/' examples/fleet/*
        """,
        less={
            "--per-angle 20": "--per-angle 2",
            "# or: (recap serve .*robot.yaml)": r"recap init data/disc --out robot.yaml\n\1",
            "# or: (recap serve .*pusht-small.*)": r"\1\npython loop.py",
            "# or: (recap serve)": r"\1",
            "# or: (nginx)": r"\ncurl -fsS http://127.0.0.1:8000/readyz\n\1",
            "(RECAP_TOKEN.*)": r"\1\n"
            "curl -fsS -H 'Authorization: Bearer a-long-secret' http://127.0.0.1:8000/api/pool\n"
            "curl -fsS http://127.0.0.1:8000/api/pool && exit 1\n"
            "recap serve pusht-small --pool pools/served",
            "curl -(?!f)": "curl -fsS -",
            "curl 'http": "curl -fsS 'http",
            "pusht-nano (.*--port 800[12])": r"pusht-small \1",
            "$": "\ncurl -fsS http://127.0.0.1:8000/readyz",
        },
    ),
    "teach-in-the-studio": How(
        """
        recap pool create pools/shown --robot robot.yaml
        recap pool add pools/shown data/hand
        python -c "from pathlib import Path; from test_changes import lifted; lifted(Path('data/hands/0'))"
        mkdir logs && touch logs/use.jsonl
        """,
        robot=True,
    ),
    "train-a-policy": How(
        """
        for pusher in disc triangle; do
            recap collect pusht --pusher $pusher --angles=-45 --per-angle 2 --out data/$pusher
        done
        mkdir runs/other && cp -r runs/mine/best runs/other
        """,
        robot=True,
        less={
            "(torchrun .*)pusht-nano": r"\1debug",
            "recap train (debug|debug-pi0|pusht\\S+)(?= )": rf"recap train \1 {TINY}",
            "--target data/more --iterations 300": "",
            "--size small": "",
            "train robot.yaml --target": "train robot.yaml --size debug --device cpu --target",
            "--nproc-per-node 8": "--nproc-per-node 2",
            "cosmos-2b --out": f"debug {TINY} --set fsdp=true --out",
            "torchrun --nnodes 2 .*": "",  # tests/training/test_two_nodes.py
            "dualarm_rows.py": "dualarm_rows.py --dry-run",  # minutes; tests/research/sweeps has its parts
            "500:510": "500:501 --tasks=-45 --pool data/disc",
            "--set weights=/models.*": "--dry-run",  # 7 GB; tests/training/test_vla_runs.py has a small file
        },
        leaves=("runs/nano/best", "runs/tuned/last", "runs/2b/best", "runs/pi0/best"),
    ),
    "use-a-pretrained-backbone": How(
        """
        mv data/robot data/arm && mv data/hand data/other
        shown="--size debug --target data/arm --pool data/other --show-config"
        recap train robot.yaml $shown > debug.yaml
        python research/scripts/full_size_run.py backbone weights debug.yaml
        """,
        robot=True,
        less={
            "--size 2b --out": "--size debug --out",
            "--size 2b --backbone /weights/cosmos-2b": "--size debug --backbone weights",
            "--size pi05 --backbone .*@main": "--size pi05-debug",  # test_vla_runs.py has weights
            "python .*encode_instructions.*": "",  # a text encoder of 7 B
            "--set policy.text=states:.*": "--dry-run",
            "run films .*": "run films out debug --parts train,serve --steps 1 --queries 2 --batch 4 --clean",
        },
        leaves=("runs/from_folder/best", "runs/pi05/best", "out/full_size.json"),
    ),
    "use-the-dual-arm-suite": How(
        "python page.0.python",
        less={
            "--episodes 50": "--episodes 2",
            "--tasks seen --embodiment": "--tasks lift_pot --embodiment",
            "--tasks seen,unseen": "--tasks lift_pot,click_bell",
            "500:5[14]0": "500:501",
            "500 600": "500 501",
        },
        leaves=("runs/parts/eval_info.json",),
    ),
}


def test_of_each_how_to_it_is_known_what_follows_it() -> None:
    known = (*FOLLOWED, "your-own-robot", *ELSEWHERE, *NOT_FOLLOWED)
    assert sorted(known) == sorted(page.stem for page in PAGES.glob("*.md"))
    for test in ELSEWHERE.values():
        assert test == "no commands" or (ROOT / test).is_file()


def test_each_how_to_has_pools_of_its_own() -> None:
    """So that what one page adds is not what another finds."""
    pools: dict[str, set[str]] = {}
    for page in PAGES.glob("*.md"):
        commands = "".join(re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
        for pool in re.findall(r"pools/\w+", commands):
            pools.setdefault(pool, set()).add(page.stem)
    assert {pool: pages for pool, pages in pools.items() if len(pages) > 1} == {}


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
    blocks = re.findall(r"```(\w+)\n(.*?)```", (PAGES / f"{name}.md").read_text("utf-8"), re.DOTALL)
    for number, (language, text) in enumerate(each for each in blocks if each[0] != "sh"):
        (tmp_path / f"page.{number}.{language}").write_text(text, "utf-8")
    monkeypatch.setenv("BUCKET", object_store)
    monkeypatch.setenv("BROWSER", "true")  # opens nothing
    with cluster(tmp_path, "".join(how.less.values())):
        follow(PAGES / f"{name}.md", tmp_path, how.less, how.before)
    for file in how.leaves:
        assert (tmp_path / file).exists(), file
