"""The dual-arm sweep: the collected data, and the trainings."""

from dataclasses import replace
from pathlib import Path

import pytest
from dualarm_rows import Arms

from recap.errors import InputError
from recap.pool.packed import PackedPool
from recap.training.data import load_data
from recap_research.sweep.sweep import Sweep
from recap_research.sweep.toy import shrink
from recap_worlds.dualarm.tasks import SEEN

ARMS = Arms(("move_can_pot", "lift_pot"), ("ours", "no-retrieval"), per_task=3, image_size=0)


def quiet(*_: object) -> None:
    """Print nothing."""


def test_the_target_robot_is_collected_on_training_tasks_only() -> None:
    target = {task for task, _, _ in ARMS.wanted("viperx")}
    assert target == {"move_can_pot"}
    assert {task for task, _, _ in ARMS.wanted("ur5e")} == {"move_can_pot", "lift_pot"}
    more = replace(ARMS, pool_only=("click_bell", "lift_pot"))
    assert [len(more.wanted(robot)) for robot in ("viperx", "ur5e")] == [3, 9]
    everything = replace(ARMS, variants=("supervised",))
    assert {task for task, _, _ in everything.wanted("viperx")} == {"move_can_pot", "lift_pot"}
    assert min(seed for _, _, seed in ARMS.wanted("ur5e")) >= 100_000


def test_every_variant_is_trained_once_before_the_second_seed(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    replace(ARMS, seeds=(0, 1)).build(sweep)
    assert [run.name for run in sweep.runs] == ["ours-0", "no-retrieval-0", "ours-1", "no-retrieval-1"]
    ours = sweep.runs[0].config
    assert ours.target_where == ours.pool_where == ("task_key=move_can_pot",)
    spec = sweep.runs[0].evaluations[0].spec
    assert (spec.env, spec.tasks) == ("dualarm", ("move_can_pot", "lift_pot"))
    assert min(spec.seeds) >= 500, "development seeds only"
    assert {e.name for e in sweep.agents} == {"replay", "replay-world"}


def test_existing_demonstrations_are_not_collected_again(tmp_path: Path) -> None:
    said: list[str] = []
    small = replace(ARMS, per_task=2)
    small.collect(tmp_path, 1, lambda *words: said.append(" ".join(map(str, words))))
    assert [line.split(" (")[0] for line in said] == ["collected 2 of viperx", "collected 4 of ur5e"]
    before = PackedPool.open(small.file(tmp_path, "viperx")).digests
    small.collect(tmp_path, 1, lambda *words: pytest.fail("nothing is missing"))
    ARMS.collect(tmp_path, 1, quiet)
    after = PackedPool.open(ARMS.file(tmp_path, "viperx")).digests
    assert len(after) == 3
    assert {name: after[name] for name in before} == before


def test_without_image_inputs_no_images_are_rendered(tmp_path: Path) -> None:
    poses = replace(ARMS, changes=("policy.inputs=S",))
    poses.collect(tmp_path, 1, quiet)
    assert not any(episode.images for episode in PackedPool.open(poses.file(tmp_path, "ur5e")))
    sweep = Sweep(tmp_path)
    poses.build(sweep)
    shrink(sweep)
    data = load_data(sweep.runs[0].config)
    assert data.n_episodes == (2, 1, 3)
    assert data.stamp.name == "dualarm-parts"


def test_only_cameras_that_a_policy_uses_are_rendered(tmp_path: Path) -> None:
    every = ("head", "left_wrist", "right_wrist")
    arms = Arms(("move_can_pot",), ("ours",), per_task=2, image_size=16)
    assert (arms.cameras("viperx"), arms.cameras("ur5e")) == (every, ("head",))
    learned_from = replace(arms, variants=("ours", "co-training"))
    assert learned_from.cameras("ur5e") == every
    alone = replace(arms, variants=("no-retrieval",))
    assert (alone.cameras("viperx"), alone.cameras("ur5e")) == (every, ())

    def cameras() -> set[tuple[str, ...]]:
        return {tuple(sorted(e.images)) for e in PackedPool.open(arms.file(tmp_path, "ur5e"))}

    arms.collect(tmp_path, 1, quiet)
    assert cameras() == {("head",)}
    learned_from.collect(tmp_path, 1, quiet)
    assert cameras() == {every}, "episodes that lack a camera are collected again"


def test_invalid_settings_are_errors() -> None:
    with pytest.raises(InputError, match=f"none of the tasks is one to train on: give some of {SEEN[0]}"):
        Arms(("lift_pot",))
    with pytest.raises(InputError, match="unknown variant 'mine'"):
        Arms(("move_can_pot",), ("mine",))
    with pytest.raises(InputError, match="unknown task 'move_can'"):
        Arms(("move_can",))
    with pytest.raises(InputError, match="leave none to judge by"):
        Arms(("move_can_pot",), per_task=1)
