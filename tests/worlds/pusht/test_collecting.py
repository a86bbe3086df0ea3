"""PushT collection: reproducible, resumable, paired by scene, never partially written."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recap.errors import InputError, RunDirectoryError
from recap.geometry import transform_points
from recap.pool.importers import open_source
from recap_worlds.pusht.collecting import CollectSpec, Demo, collect, demonstrate
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.starts import start_near_goal

SPEC = CollectSpec("disc", (-45.0, 45.0), 2, image_size=32)


def contents(root: Path) -> dict[str, bytes]:
    return {str(f.relative_to(root)): f.read_bytes() for f in sorted(root.rglob("*")) if f.is_file()}


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "disc"
    collect(SPEC, out, workers=1)
    return out


def test_written_demonstrations_are_read_back_exactly(collected: Path) -> None:
    dataset = open_source(collected)
    assert all(len(list(frames)) == len(e) for e in dataset for frames in e.images.values())
    assert len(dataset) == 4
    for demo, episode in zip(SPEC.demos(), dataset, strict=True):
        again = demonstrate(SPEC, demo)
        assert episode.id == again.id
        assert episode.scene_id == again.scene_id
        assert np.array_equal(episode.proprio, again.proprio)
        assert np.array_equal(episode.actions, again.actions)
        assert np.array_equal(episode.objects["block"], again.objects["block"])
        assert episode.goal is not None
        assert np.array_equal(episode.goal, again.goal)
        assert dict(episode.attributes) == dict(again.attributes)
        assert np.array_equal(episode.timestamps, again.timestamps)
        film = np.array(episode.images["top"]).astype(int)
        assert np.abs(film - np.array(again.images["top"])).mean() < 4
    assert len({episode.task for episode in dataset}) == 1, "one sentence for every angle"


def test_the_recorded_actions_solve_the_scene(collected: Path) -> None:
    for episode in open_source(collected):
        env = PushTEnv(goal_angle=float(episode.attributes["goal_angle"]))
        env.reset(seed=int(episode.attributes["seed"]))
        done = [env.step(action)[2] for action in episode.actions.astype(float)]
        assert done[-1]
        assert episode.success


def test_the_files_do_not_depend_on_the_number_of_workers(collected: Path, tmp_path: Path) -> None:
    collect(SPEC, tmp_path / "two", workers=2)
    assert contents(tmp_path / "two") == contents(collected)
    assert not list(tmp_path.glob("*.partial"))


def test_two_pushers_are_paired_by_scene() -> None:
    for demo in SPEC.demos()[:2]:
        disc, triangle = (demonstrate(replace(SPEC, pusher=p), demo) for p in ("disc", "triangle"))
        assert disc.scene_id == triangle.scene_id
        assert disc.id != triangle.id
        assert np.array_equal(disc.proprio[0], triangle.proprio[0])


def test_a_resumed_collection_equals_an_uninterrupted_one(collected: Path, tmp_path: Path) -> None:
    out = tmp_path / "disc"
    command = [sys.executable, "-m", "recap", "collect", "pusht", "--angles=-45,45", "--per-angle", "2"]
    command += ["--image-size", "32", "--workers", "2", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    staging = tmp_path / "disc.partial"
    deadline = time.monotonic() + 300
    while not list(staging.glob("episode-*.parquet")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=120)
    if process.returncode == 0:
        pytest.fail("it finished before it could be stopped: collect more in this test")
    assert process.returncode == 130
    assert "the same command resumes" in message
    assert not out.exists()
    kept = {f.name: f.stat().st_mtime_ns for f in staging.glob("episode-*.parquet")}
    assert kept
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    assert contents(out) == contents(collected)
    assert not staging.exists()


def test_stopping_before_the_first_demonstration_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("recap_worlds.pusht.collecting.demonstrate", stopped)
    with pytest.raises(KeyboardInterrupt) as told:
        collect(SPEC, tmp_path / "disc")
    assert "nothing is kept" in str(told.value)
    assert ".partial" not in str(told.value)
    assert not list(tmp_path.iterdir())


def test_noise_is_executed_but_not_recorded() -> None:
    noisy = replace(SPEC, noise=12.0)
    demo = noisy.demos()[0]
    clean, rough = demonstrate(SPEC, demo), demonstrate(noisy, demo)
    off_course = int(np.argmax((clean.proprio[:40] != rough.proprio[:40]).any(axis=1)))
    assert off_course > 0
    assert np.array_equal(clean.actions[:off_course], rough.actions[:off_course]), "the plan is the same"
    bends = np.linalg.norm(np.diff(rough.actions, n=2, axis=0), axis=1)
    assert np.median(bends) < 3, "recorded actions stay smooth"


def test_styles_vary_by_demonstration() -> None:
    vary = replace(SPEC, style=None)
    demo = vary.demos()[0]
    assert not np.array_equal(demonstrate(vary, demo).actions[:30], demonstrate(SPEC, demo).actions[:30])


@pytest.mark.parametrize("block", ["tee", "zed"])
def test_starts_near_the_goal_are_within_the_distance_and_not_yet_successful(block: str) -> None:
    for seed in range(100_000, 100_012):
        env = PushTEnv("triangle", 30.0, block=block)
        env.reset(seed=seed)
        state = start_near_goal(env, 20.0)
        env.reset(options={"reset_to_state": state})
        arm = np.array([env.shape.center_of_gravity])
        away = transform_points(state[2:], arm) - transform_points(env.goal_pose, arm)
        assert np.hypot(*away[0]) <= 20
        assert abs(np.degrees(state[4] - env.goal_pose[2])) <= 20
        assert env.coverage_at(state[2:]) < 0.95
        before = env.state()
        env.step(state[:2])
        assert np.allclose(env.state()[2:5], before[2:5]), "the pusher starts off the block"


def test_a_demonstration_from_near_the_goal_has_its_own_scene() -> None:
    near = replace(SPEC, near=30.0, image_size=0)
    demo = near.demos()[0]
    episode = demonstrate(near, demo)
    assert episode.success
    assert episode.attributes["near"] == 30.0
    assert episode.scene_id != demonstrate(replace(SPEC, image_size=0), demo).scene_id
    assert demonstrate(near, demo).actions.tobytes() == episode.actions.tobytes(), (
        "the seed determines the episode"
    )


def test_a_demonstration_ends_at_the_threshold() -> None:
    demo = SPEC.demos()[2]
    early, late = (demonstrate(replace(SPEC, threshold=t, image_size=0), demo) for t in (0.6, 0.95))
    n = len(early)
    assert n < len(late)
    assert np.array_equal(early.actions, late.actions[:n]), "the actions up to there are the same"
    env = PushTEnv(goal_angle=demo.angle, success_threshold=0.6)
    env.reset(seed=demo.seed)
    passed = [env.step(action)[2] for action in early.actions.astype(float)]
    assert passed == [False] * (n - 1) + [True]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"first_seed": 42}, "kept for evaluation"),
        ({"first_seed": 0}, "start at 100000"),
        ({"angles": ()}, "nothing to collect"),
        ({"per_angle": 0}, "nothing to collect"),
        ({"noise": -1.0}, "noise"),
        ({"pusher": "disk"}, "did you mean 'disc'"),
        ({"block": "L"}, "unknown block"),
        ({"image_size": 33}, "even number"),
        ({"speed": 9.0}, "speed"),
        ({"near": 101.0}, "near 101.0 is out of range"),
        ({"near": float("nan")}, "near nan is out of range"),
        ({"threshold": 0.4}, "threshold 0.4 is out of range: give 0.5 to 0.99"),
        ({"threshold": 1.0}, "threshold 1.0 is out of range"),
    ],
)
def test_invalid_settings_are_errors(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(SPEC, **changes)  # type: ignore[arg-type]


def test_an_existing_output_is_an_error_and_stays_unchanged(collected: Path) -> None:
    before = contents(collected)
    with pytest.raises(RunDirectoryError, match="exists already"):
        collect(SPEC, collected)
    assert contents(collected) == before


def test_a_staging_folder_with_other_files_is_an_error_and_stays_unchanged(tmp_path: Path) -> None:
    theirs = tmp_path / "disc.partial"
    theirs.mkdir()
    (theirs / "notes.txt").write_text("mine")
    with pytest.raises(RunDirectoryError, match="holds no run"):
        collect(SPEC, tmp_path / "disc")
    assert (theirs / "notes.txt").read_text() == "mine"


def test_a_collection_in_use_by_another_process_is_an_error(tmp_path: Path) -> None:
    from dataclasses import asdict

    from recap.run_directory import hold_run_directory

    with hold_run_directory(tmp_path / "disc.partial", asdict(SPEC)):
        with pytest.raises(RunDirectoryError, match="in use by another process"):
            collect(SPEC, tmp_path / "disc")
        assert (tmp_path / "disc.partial" / "config.json").exists()


def test_resuming_with_other_settings_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "disc"

    def stop_after_one(spec: CollectSpec, demo: Demo) -> object:
        if demo.index == 1:
            raise KeyboardInterrupt
        return demonstrate(spec, demo)

    monkeypatch.setattr("recap_worlds.pusht.collecting.demonstrate", stop_after_one)
    with pytest.raises(KeyboardInterrupt, match="1 of 4"):
        collect(SPEC, out)
    monkeypatch.undo()
    with pytest.raises(RunDirectoryError, match="another noise"):
        collect(replace(SPEC, noise=3.0), out)
    assert len(list((tmp_path / "disc.partial").glob("*.parquet"))) == 1


def test_a_full_disk_leaves_no_partial_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("recap.pool.lerobot.stage_episode", full)
    with pytest.raises(OSError, match="No space left"):
        collect(SPEC, tmp_path / "disc")
    assert list(tmp_path.iterdir()) == []
