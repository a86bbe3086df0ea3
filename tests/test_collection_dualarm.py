"""Dual-arm collection: repeatable, paired by scene, one dataset a task."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from recap.cli.collect import collect
from recap.collection_dualarm import DualArmSpec, collect_dualarm
from recap.errors import InputError
from recap.pool.lerobot import LeRobotDataset

SPEC = DualArmSpec("grab_roller", "ur5e", 2, image_size=32)


def contents(root: Path) -> dict[str, bytes]:
    return {str(f.relative_to(root)): f.read_bytes() for f in sorted(root.rglob("*")) if f.is_file()}


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "roller"
    collect_dualarm(SPEC, out)
    return out


def test_a_dataset_holds_three_cameras_both_arms_and_the_objects(collected: Path) -> None:
    dataset = LeRobotDataset.open(collected)
    dataset.check()
    assert [episode.attributes["seed"] for episode in dataset] == [100_000, 100_001]
    for episode in dataset:
        assert episode.success
        assert episode.embodiment == "ur5e"
        assert set(episode.images) == {"head", "left_wrist", "right_wrist"}
        assert episode.images["head"][0].shape == (32, 32, 3)
        assert episode.actions.shape == (len(episode), 20)
        assert episode.objects["roller"].shape == (len(episode), 7)


def test_the_number_of_workers_changes_no_byte(collected: Path, tmp_path: Path) -> None:
    collect_dualarm(SPEC, tmp_path / "two", workers=2)
    assert contents(tmp_path / "two") == contents(collected)


def test_the_other_robot_demonstrates_in_the_same_scenes(collected: Path, tmp_path: Path) -> None:
    collect_dualarm(replace(SPEC, embodiment="viperx", image_size=0), tmp_path / "viperx")
    for one, two in zip(
        LeRobotDataset.open(collected), LeRobotDataset.open(tmp_path / "viperx"), strict=True
    ):
        assert one.scene_id == two.scene_id
        assert one.id != two.id
        assert one.task == two.task
        assert np.abs(one.objects["roller"][0] - two.objects["roller"][0]).max() < 1e-6


def test_several_tasks_make_one_dataset_each_and_a_second_call_does_nothing(tmp_path: Path) -> None:
    command = ["dualarm", "--task", "grab_roller,open_microwave", "--episodes", "1", "--image-size", "0"]
    command += ["--workers", "1", "--out", str(tmp_path / "both")]
    for _ in range(2):
        result = CliRunner().invoke(collect, command, catch_exceptions=False)
        assert result.exit_code == 0
    assert {path.name for path in (tmp_path / "both").iterdir()} == {"grab_roller", "open_microwave"}


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
def test_what_cannot_be_collected_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError):
        replace(SPEC, **change)  # type: ignore[arg-type]
