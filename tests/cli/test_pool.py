"""The commands of `recap pool`."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest
from arms import arms_episode
from click.testing import CliRunner, Result
from lerobot_files import write_older

from recap.cli.pool import pool as group
from recap.errors import RecapError
from recap.pool.importers import open_source
from recap.pool.lerobot import assemble, stage_episode
from recap.pool.packed import PackedPool
from recap.pool.store import Pool
from recap.types import Episode


def episode(name: str, *, images: bool = True) -> Episode:
    rng = np.random.default_rng(len(name))
    t = 6
    film = [np.full((16, 16, 3), 40 * i + len(name), np.uint8) for i in range(t)]
    return Episode(
        id=name,
        scene_id=name,
        task="push",
        embodiment="disc",
        fps=10.0,
        timestamps=np.arange(t) / 10,
        proprio=rng.normal(size=(t, 2)).astype(np.float32),
        actions=rng.normal(size=(t, 2)).astype(np.float32),
        images={"top": film} if images else {},
        goal=np.zeros(3, np.float32),
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for index, name in enumerate(("one", "a/ü'", "three")):
        stage_episode(root / "staged", index, episode(name))
    assemble(root / "staged", 3, root / "set")
    return root / "set"


def run(*words: object) -> Result:
    result = CliRunner().invoke(group, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, RecapError | click.ClickException):
        raise result.exception
    return result


def said(*words: object) -> str:
    result = run(*words)
    assert result.exception is None, result.exception
    return result.output


def refused(*words: object) -> str:
    result = run(*words)
    assert isinstance(result.exception, RecapError | click.ClickException)
    return " ".join(str(result.exception).split())


@pytest.fixture
def uri(tmp_path: Path, dataset: Path) -> Path:
    said("create", tmp_path / "pool")
    said("add", tmp_path / "pool", dataset)
    return tmp_path / "pool"


def test_the_pool_commands_work_together(uri: Path, dataset: Path, tmp_path: Path) -> None:
    assert "3 of 3 episodes" in said("ls", uri)
    assert "1 of 3" in said("ls", uri, "--limit", 1)
    assert "Added 0 episodes (3 were there): version 2 has 3" in said("add", uri, dataset)
    said("tag", uri, "first")
    assert re.search(r"first\s+2", said("tag", uri))
    assert "version 3 has 2" in said("rm", uri, "a/ü'")
    assert said("diff", uri, "first").splitlines()[0] == "- a/ü'"
    assert "1 added" in said("diff", uri, "3", "first")
    assert "equal to first: 3 episodes" in said("rollback", uri, "first")
    history = said("ls", uri, "--versions")
    assert [word in history for word in ("create", "add", "remove", "rollback", "first")] == [True] * 5
    assert "1 now" in said("compact", uri)
    assert "is sound: 3 episodes" in said("verify", uri)
    assert json.loads(said("stats", uri, "--json"))["n_frames"] == 18
    assert "push 3" in said("stats", uri)
    assert "3 episodes" in said("pack", uri, "--out", tmp_path / "p.safetensors")
    assert "3 episodes" in said("pack", uri, "--out", tmp_path / "q.safetensors", "--no-images")
    assert len(PackedPool.open(tmp_path / "p.safetensors")) == 3


def test_several_datasets_are_added_in_one_command(dataset: Path, tmp_path: Path) -> None:
    stage_episode(tmp_path / "staged", 0, episode("another"))
    assemble(tmp_path / "staged", 1, tmp_path / "more")
    said("create", tmp_path / "pool")
    lines = said("add", tmp_path / "pool", dataset, tmp_path / "more").splitlines()
    assert [line for line in lines if line.startswith("Added")] == [
        "Added 3 episodes: version 2 has 3",
        "Added 1 episodes: version 3 has 4",
    ]
    said("create", tmp_path / "other")
    assert "nothing" in refused("add", tmp_path / "other", dataset, tmp_path / "nothing")
    assert Pool.open(tmp_path / "other").ids() == Pool.open(tmp_path / "pool").ids()[:3], (
        "the dataset before the error is kept"
    )


def test_a_negative_limit_is_refused(uri: Path) -> None:
    assert "not in the range" in refused("ls", uri, "--limit", -1)
    assert "not in the range" in refused("ls", uri, "--versions", "--limit", -1)


def test_an_export_equals_the_added_dataset(uri: Path, dataset: Path, tmp_path: Path) -> None:
    assert "3 demonstrations" in said("export", uri, tmp_path / "out")
    for a, b in zip(open_source(dataset), open_source(tmp_path / "out"), strict=True):
        assert a.id == b.id
        assert np.array_equal(a.actions, b.actions)
    assert "exists already" in refused("export", uri, tmp_path / "out")
    assert not list(tmp_path.glob(".out*"))
    said("create", tmp_path / "empty")
    assert "is empty" in refused("export", tmp_path / "empty", tmp_path / "other")


def test_two_arm_demonstrations_are_exported_in_robotwins_layout(uri: Path, tmp_path: Path) -> None:
    said("create", tmp_path / "arms")
    bell = replace(arms_episode("c"), attributes={"task_key": "click_bell"})
    Pool.open(str(tmp_path / "arms")).add([arms_episode("a", 1), arms_episode("b", 2), bell])
    asked = ("export", tmp_path / "arms", tmp_path / "data", "--format", "robotwin", "--config", "clean")
    shown = said(*asked)
    assert "no joint angles" in shown
    assert re.findall("add OTHER_POOL .*/data/(.*)", shown) == ["lift_pot/clean", "click_bell/clean"]
    said("create", tmp_path / "again")
    for task, n in (("lift_pot", 2), ("click_bell", 1)):
        assert f"Added {n} episodes" in said("add", tmp_path / "again", tmp_path / "data" / task / "clean")
    assert "exists already" in refused(*asked)
    nameless = replace(arms_episode("d"), attributes={})
    Pool.open(str(tmp_path / "arms")).add([nameless])
    assert "give --task" in refused(*asked[:-1], "other")
    assert "lift_pot/other" in said(*asked[:-1], "other", "--task", "lift_pot", "--layout", "v1.0")
    assert "choose one of release, v1.0" in refused(*asked[:-1], "third", "--task", "x", "--layout", "old")
    assert "two arms" in refused("export", uri, tmp_path / "x", "--format", "robotwin", "--task", "push")
    assert "did you mean 'robotwin'" in refused("export", uri, tmp_path / "x", "--format", "robotwn")
    assert not (tmp_path / "x").exists()


def test_add_with_image_size_makes_images_square(dataset: Path, tmp_path: Path) -> None:
    said("create", tmp_path / "pool")
    said("add", tmp_path / "pool", dataset, "--image-size", 24)
    frames = Pool.open(str(tmp_path / "pool")).view().episode("one").images["top"]
    assert frames[2].shape == (24, 24, 3)
    assert "16 to 1024" in refused("add", tmp_path / "pool", dataset, "--image-size", 5)


def test_show_writes_a_filmstrip_or_a_video(uri: Path, tmp_path: Path) -> None:
    assert "frames: 6, 0.50 s" in said("show", uri, "one")
    said("show", uri, "a/ü'", "--out", tmp_path / "strip.png")
    assert (tmp_path / "strip.png").read_bytes().startswith(b"\x89PNG")
    said("show", uri, "one", "--camera", "top", "--out", tmp_path / "film.mp4")
    assert (tmp_path / "film.mp4").stat().st_size > 500
    assert "did you mean 'top'" in refused("show", uri, "one", "--camera", "tap", "--out", tmp_path / "x.png")
    assert ".png or .mp4" in refused("show", uri, "one", "--out", tmp_path / "x.gif")
    assert "did you mean 'one'" in refused("show", uri, "oone")
    blind = tmp_path / "blind"
    Pool.create(blind).add([episode("blind", images=False)])
    assert "has no images" in refused("show", blind, "blind", "--out", tmp_path / "x.png")


def test_verify_and_repair(uri: Path) -> None:
    film = next((uri / "blobs").rglob("*.mp4"))
    film.write_bytes(film.read_bytes()[:-1])
    result = run("verify", uri)
    assert result.return_value == 1
    assert f"{film.name}: a video has changed" in result.output
    assert f"recap pool verify {uri} --repair" in result.output
    result = run("verify", uri, "--repair")
    assert result.return_value == 0
    assert "lost: " in result.output
    assert run("verify", uri).return_value == 0
    assert len(Pool.open(uri)) == 2


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("ls", "POOL/nothing"), "recap pool create"),
        (("create", "POOL"), "there is a pool"),
        (("add", "POOL", "/nowhere/x"), "/nowhere/x"),
        (("add", "POOL", "/nowhere/x", "--map", "proprio"), "FIELD=KEY"),
        (("rm", "POOL", "nobody"), "no episode 'nobody'"),
        (("rollback", "POOL", "never"), "no version 'never'"),
        (("rollback", "POOL", "99"), "no version 99"),
        (("diff", "POOL", "1", "99"), "no version 99"),
        (("tag", "POOL", "x", "--version", "99"), "no version 99"),
    ],
)
def test_wrong_arguments_are_errors_that_name_the_mistake(
    uri: Path, words: tuple[str, ...], match: str
) -> None:
    assert match in refused(*(word.replace("POOL", str(uri)) for word in words))


def test_every_command_has_an_example() -> None:
    for name, command in group.commands.items():
        assert command.help is not None, name
        assert "Example:" in command.help, name


def test_episodes_of_another_frame_rate_are_resampled_to_the_pools(dataset: Path, tmp_path: Path) -> None:
    said("create", tmp_path / "pool")
    said("add", tmp_path / "pool", dataset)
    slow = replace(episode("slow"), fps=5.0, timestamps=np.arange(6) / 5)
    stage_episode(tmp_path / "staged", 0, slow)
    assemble(tmp_path / "staged", 1, tmp_path / "set")
    assert "Resampled 1 episodes to 10 frames a second" in said("add", tmp_path / "pool", tmp_path / "set")
    added = Pool.open(tmp_path / "pool").get("slow")
    assert added.fps == 10.0
    assert len(added) == 11
    assert added.proprio[::2] == pytest.approx(slow.proprio, abs=1e-6)
    said("create", tmp_path / "other")
    said("add", tmp_path / "other", tmp_path / "set", "--rate", "20")
    assert Pool.open(tmp_path / "other").get("slow").fps == 20.0


def test_damaged_episodes_are_refused_or_skipped_on_request(tmp_path: Path) -> None:
    root = write_older(tmp_path / "set")
    (root / "videos/chunk-000/observation.images.front/episode_000001.mp4").unlink()
    said("create", tmp_path / "pool")
    assert "errors: 1" in refused("add", tmp_path / "pool", root)
    assert len(Pool.open(tmp_path / "pool")) == 0
    shown = said("add", tmp_path / "pool", root, "--skip-damaged")
    assert "warning: episode 1: video" in shown
    assert "Added 2 episodes" in shown
    assert Pool.open(tmp_path / "pool").ids() == ("set/0", "set/2")


def test_a_changed_episode_with_an_existing_id_is_refused(uri: Path, tmp_path: Path) -> None:
    pool = Pool.open(uri)
    one = pool.get("one")
    other = [np.full((16, 16, 3), 20, np.uint8)] * 6
    for changed in (replace(one, task="pull"), replace(one, images={"top": other})):
        with pytest.raises(RecapError, match="already, but differs"):
            pool.add_missing([replace(one, id="new"), changed])
    assert len(pool) == 3


def test_add_with_pair_by_sets_the_scene_ids(tmp_path: Path) -> None:
    said("create", tmp_path / "pool")
    said("add", tmp_path / "pool", write_older(tmp_path / "set"), "--pair-by", "order")
    assert [e.scene_id for e in Pool.open(tmp_path / "pool")] == ["task 0/0", "task 1/0", "task 0/1"]
    assert "FILE.csv" in refused("add", tmp_path / "pool", tmp_path / "set", "--pair-by", "orders")


def test_a_killed_import_continues_where_it_stopped(tmp_path: Path) -> None:
    """The process is killed with SIGKILL after its first part was added; then the command is repeated."""
    for index in range(24):
        stage_episode(tmp_path / "staged", index, replace(episode("x"), id=f"e{index}"))
    assemble(tmp_path / "staged", 24, tmp_path / "set")
    said("create", tmp_path / "pool")
    words = ["add", str(tmp_path / "pool"), str(tmp_path / "set")]
    slow = (  # each video takes a while, as large videos do
        "import time, recap.pool.schema as s; was = s.encode\n"
        "s.encode = lambda *a: (time.sleep(0.05), was(*a))[1]\n"
        f"from recap.cli.pool import pool; pool({words!r})"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", slow], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while child.poll() is None and len(Pool.open(tmp_path / "pool")) == 0:
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    n = len(Pool.open(tmp_path / "pool"))
    assert 0 < n < 24
    assert f"Added {24 - n} episodes ({n} were there)" in said("add", tmp_path / "pool", tmp_path / "set")
    assert sorted(Pool.open(tmp_path / "pool").ids()) == sorted(f"e{index}" for index in range(24))
    assert "is sound: 24 episodes" in said("verify", tmp_path / "pool")


def test_an_export_has_all_tasks_or_the_named_one(tmp_path: Path) -> None:
    push = replace(episode("push"), objects={"block": np.ones((6, 3), np.float32)})
    lift = replace(
        episode("lift"),
        task="lift it",
        goal=None,
        objects={"pot": np.full((6, 7), 2, np.float32)},
        attributes={"task_key": "lift_pot"},
    )
    Pool.create(tmp_path / "pool").add([push, lift, episode("plain")])
    assert "3 demonstrations" in said("export", tmp_path / "pool", tmp_path / "all")
    said("create", tmp_path / "again")
    said("add", tmp_path / "again", tmp_path / "all")
    for wanted in (push, lift, episode("plain")):
        for read in (Pool.open(tmp_path / "again").get(wanted.id), *open_source(tmp_path / "all")):
            if read.id != wanted.id:
                continue
            assert read.task == wanted.task
            assert dict(read.attributes) == dict(wanted.attributes)
            assert (read.goal is None) == (wanted.goal is None)
            assert read.objects.keys() == wanted.objects.keys()
            for name, values in wanted.objects.items():
                assert np.array_equal(read.objects[name], values)
    tasks = json.loads((tmp_path / "all/meta/info.json").read_text())["total_tasks"]
    assert tasks == 2
    for number, name in enumerate(("lift_pot", "lift it")):
        assert "1 demonstrations" in said("export", tmp_path / "pool", tmp_path / f"{number}", "--task", name)
    assert "did you mean 'lift it'" in refused(
        "export", tmp_path / "pool", tmp_path / "x", "--task", "lift i"
    )
    other = replace(episode("other"), objects={"pot": np.zeros((6, 3), np.float32)}, task="tip it")
    Pool.open(tmp_path / "pool").add([other])
    assert "object:pot has 7 numbers" in refused("export", tmp_path / "pool", tmp_path / "x")
    assert not list(tmp_path.glob("*x*"))
