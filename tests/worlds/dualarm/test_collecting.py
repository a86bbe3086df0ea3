"""Dual-arm collection: reproducible, paired by scene, one dataset per task, in LeRobot or RoboTwin format."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from recap.errors import InputError, RunDirectoryError
from recap.pool.importers import open_source
from recap.pool.importers.checks import check_dataset
from recap_worlds.cli import collect
from recap_worlds.dualarm.collecting import DualArmSpec, collect_dualarm, collect_robotwin

SPEC = DualArmSpec("grab_roller", "ur5e", 2, image_size=32)


def contents(root: Path) -> dict[str, bytes]:
    return {str(f.relative_to(root)): f.read_bytes() for f in sorted(root.rglob("*")) if f.is_file()}


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "roller"
    collect_dualarm(SPEC, out)
    return out


def test_a_dataset_contains_three_cameras_both_arms_and_the_objects(collected: Path) -> None:
    dataset = open_source(collected)
    assert all(len(list(frames)) == len(e) for e in dataset for frames in e.images.values())
    assert [episode.attributes["seed"] for episode in dataset] == [100_000, 100_001]
    for episode in dataset:
        assert episode.success
        assert episode.embodiment == "ur5e"
        assert set(episode.images) == {"head", "left_wrist", "right_wrist"}
        assert episode.images["head"][0].shape == (32, 32, 3)
        assert episode.actions.shape == (len(episode), 20)
        assert episode.objects["roller"].shape == (len(episode), 7)


def test_the_files_do_not_depend_on_the_number_of_workers(collected: Path, tmp_path: Path) -> None:
    collect_dualarm(SPEC, tmp_path / "two", workers=2)
    assert contents(tmp_path / "two") == contents(collected)


def test_both_embodiments_are_collected_in_the_same_scenes(collected: Path, tmp_path: Path) -> None:
    collect_dualarm(replace(SPEC, embodiment="viperx", image_size=0), tmp_path / "viperx")
    for one, two in zip(open_source(collected), open_source(tmp_path / "viperx"), strict=True):
        assert one.scene_id == two.scene_id
        assert one.id != two.id
        assert one.task == two.task
        assert np.abs(one.objects["roller"][0] - two.objects["roller"][0]).max() < 1e-6


def test_each_task_becomes_its_own_dataset_and_a_second_run_adds_nothing(tmp_path: Path) -> None:
    command = ["dualarm", "--tasks", "grab_roller,open_microwave", "--episodes", "1", "--image-size", "0"]
    command += ["--workers", "1", "--out", str(tmp_path / "both")]
    for _ in range(2):
        result = CliRunner().invoke(collect, command, catch_exceptions=False)
        assert result.exit_code == 0
    assert {path.name for path in (tmp_path / "both").iterdir()} == {"grab_roller", "open_microwave"}


@pytest.fixture(scope="module")
def robotwin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("robotwin") / "data"
    command = ["dualarm", "--tasks", "grab_roller", "--episodes", "2", "--image-size", "32", "--workers", "1"]
    command += ["--format", "robotwin", "--layout", "v1.0", "--out", str(out)]
    result = CliRunner().invoke(collect, command, catch_exceptions=False)
    assert result.exit_code == 0
    assert "grab_roller/ur5e_clean (2 demonstrations)" in result.output
    return out / "grab_roller/ur5e_clean"


def test_robotwin_files_contain_the_same_episodes_as_the_lerobot_dataset(
    collected: Path, robotwin: Path
) -> None:
    source = open_source(robotwin)
    assert (source.format, len(source)) == ("robotwin", 2)
    assert not check_dataset(source)
    for wanted, found in zip(open_source(collected), source, strict=True):
        np.testing.assert_allclose(found.proprio, wanted.proprio, rtol=0, atol=1e-6)
        np.testing.assert_allclose(found.actions, wanted.actions, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(found.objects["roller"], wanted.objects["roller"])
        assert (found.task, found.embodiment, found.fps) == (wanted.task, "ur5e", wanted.fps)
        for key in ("seed", "task_key", "main_object"):
            assert found.attributes[key] == wanted.attributes[key]
        for camera, frames in wanted.images.items():
            ours, theirs = found.images[camera][0].astype(int), frames[0].astype(int)
            assert np.abs(ours - theirs).mean() < 6  # different codecs
            assert np.abs(ours[..., ::-1] - theirs).mean() > 1.5 * np.abs(ours - theirs).mean()


def test_a_stopped_robotwin_collection_is_resumed(robotwin: Path, tmp_path: Path) -> None:
    out = tmp_path / "data/grab_roller/ur5e_clean"

    def stop(done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="1 of 2 demonstrations are done and kept"):
        collect_robotwin(SPEC, out, layout="v1.0", progress=stop)
    assert [path.name for path in out.parent.iterdir()] == ["ur5e_clean.partial"]
    staged = out.parent / "ur5e_clean.partial/dataset/data"
    (staged / "episode_0000001.hdf5").write_bytes(b"cut off")
    first = (staged / "episode_0000000.hdf5").stat().st_mtime_ns
    with pytest.raises(RunDirectoryError, match="another layout"):
        collect_robotwin(SPEC, out)
    collect_robotwin(SPEC, out, layout="v1.0")
    assert [path.name for path in out.parent.iterdir()] == ["ur5e_clean"]
    assert (out / "data/episode_0000000.hdf5").stat().st_mtime_ns == first, (
        "the first episode is not collected again"
    )
    assert contents(out) == contents(robotwin)
    with pytest.raises(RunDirectoryError, match="exists already"):
        collect_robotwin(SPEC, out, layout="v1.0")


def test_collecting_another_format_into_an_existing_dataset_is_an_error(
    collected: Path, robotwin: Path
) -> None:
    with pytest.raises(RunDirectoryError, match="is a LeRobot dataset"):
        collect_robotwin(SPEC, collected / "grab_roller/clean")
    both = ["dualarm", "--tasks", "grab_roller,lift_pot", "--out", str(robotwin.parents[1])]
    with pytest.raises(RunDirectoryError, match="exists already"):
        CliRunner().invoke(collect, both, catch_exceptions=False)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--format", "robotwn", "did you mean 'robotwin'"),
        ("--layout", "old", "choose one of release, v1.0"),
        ("--config", "../clean", "no config name"),
    ],
)
def test_an_invalid_option_is_an_error_of_one_line(
    tmp_path: Path, option: str, value: str, words: str
) -> None:
    command = ["dualarm", "--tasks", "lift_pot", "--format", "robotwin", "--out", str(tmp_path / "data")]
    with pytest.raises(InputError, match=words) as caught:
        CliRunner().invoke(collect, [*command, option, value], catch_exceptions=False)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"task": "grab_rollers"},
        {"embodiment": "ur10"},
        {"split": "dirty"},
        {"episodes": 0},
        {"first_seed": 42},
        {"image_size": 33},
    ],
    ids=lambda change: next(iter(change)),
)
def test_invalid_settings_are_errors(change: dict[str, object]) -> None:
    with pytest.raises(InputError):
        replace(SPEC, **change)  # type: ignore[arg-type]
