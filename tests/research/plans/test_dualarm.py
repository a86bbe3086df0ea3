"""Two arms as a plan: what is collected, and what is trained on what."""

from dataclasses import replace
from pathlib import Path

import pytest

from recap.errors import InputError
from recap.pool.packed import PackedPool
from recap.training.data import load_data
from recap_research.plans.dualarm import ArmsPlan, collect, make_plan, toy_of
from recap_research.plans.ledger import data_kind
from recap_research.plans.plan import frame_of
from recap_worlds.dualarm.tasks import SEEN

PLAN = ArmsPlan(("move_can_pot", "lift_pot"), ("ours", "no-retrieval"), per_task=3, image_size=0)


def test_the_robot_shows_only_what_it_is_trained_on() -> None:
    target = {task for task, _, _ in PLAN.wanted("viperx")}
    assert target == {"move_can_pot"}
    assert {task for task, _, _ in PLAN.wanted("ur5e")} == {"move_can_pot", "lift_pot"}
    more = replace(PLAN, pool_only=("click_bell", "lift_pot"))
    assert [len(more.wanted(robot)) for robot in ("viperx", "ur5e")] == [3, 9]
    everything = replace(PLAN, variants=("supervised",))
    assert {task for task, _, _ in everything.wanted("viperx")} == {"move_can_pot", "lift_pot"}
    assert min(seed for _, _, seed in PLAN.wanted("ur5e")) >= 100_000


def test_every_variant_is_trained_before_any_again_and_shares_an_autoencoder(tmp_path: Path) -> None:
    plan = make_plan(replace(PLAN, seeds=(0, 1)), tmp_path)
    assert [run.name for run in plan.runs] == ["ours-0", "no-retrieval-0", "ours-1", "no-retrieval-1"]
    ours, alone = plan.runs[0].config, plan.runs[1].config
    assert ours.target_where == ours.pool_where == ("task_key=move_can_pot",)
    assert ours.autoencoder == alone.autoencoder == str(tmp_path / "autoencoders" / "camera")
    assert frame_of(ours.policy) == frame_of(alone.policy)
    assert data_kind(ours) == data_kind(plan.runs[2].config) != data_kind(alone)
    spec = plan.runs[0].evaluations[0].spec
    assert (spec.env, spec.tasks) == ("dualarm", ("move_can_pot", "lift_pot"))
    assert min(spec.seeds) >= 500, "none that results are told of"
    assert {e.name for e in plan.agents} == {"replay", "replay-world"}


def test_what_is_there_is_not_collected_again(tmp_path: Path) -> None:
    said: list[str] = []
    small = replace(PLAN, per_task=2)
    collect(small, tmp_path, 1, lambda *words: said.append(" ".join(map(str, words))))
    assert [line.split(" (")[0] for line in said] == ["collected 2 of viperx", "collected 4 of ur5e"]
    before = PackedPool.open(small.file(tmp_path, "viperx")).digests
    collect(small, tmp_path, 1, lambda *words: pytest.fail("nothing is missing"))
    collect(PLAN, tmp_path, 1, lambda *words: None)
    after = PackedPool.open(PLAN.file(tmp_path, "viperx")).digests
    assert len(after) == 3
    assert {name: after[name] for name in before} == before


def test_without_a_variant_that_looks_nothing_is_drawn(tmp_path: Path) -> None:
    poses = replace(PLAN, changes=("policy.inputs=S",))
    collect(poses, tmp_path, 1, lambda *words: None)
    assert not any(episode.images for episode in PackedPool.open(poses.file(tmp_path, "ur5e")))
    data = load_data(make_plan(toy_of(poses), tmp_path).runs[0].config)
    assert data.n_episodes == (2, 1, 3)
    assert data.stamp.name == "dualarm-parts"


def test_of_a_pool_only_the_cameras_are_drawn_that_a_policy_is_shown(tmp_path: Path) -> None:
    every = ("head", "left_wrist", "right_wrist")
    plan = ArmsPlan(("move_can_pot",), ("ours",), per_task=2, image_size=16)
    assert (plan.cameras("viperx"), plan.cameras("ur5e")) == (every, ("head",))
    learned_from = replace(plan, variants=("ours", "co-training"))
    assert learned_from.cameras("ur5e") == every
    alone = replace(plan, variants=("no-retrieval",))
    assert (alone.cameras("viperx"), alone.cameras("ur5e")) == (every, ())

    def cameras() -> set[tuple[str, ...]]:
        return {tuple(sorted(e.images)) for e in PackedPool.open(plan.file(tmp_path, "ur5e"))}

    collect(plan, tmp_path, 1, lambda *words: None)
    assert cameras() == {("head",)}
    collect(learned_from, tmp_path, 1, lambda *words: None)
    assert cameras() == {every}, "those that lack a camera are collected anew"


def test_what_cannot_be_run_is_refused() -> None:
    with pytest.raises(InputError, match=f"none of the tasks is one to train on: give some of {SEEN[0]}"):
        ArmsPlan(("lift_pot",))
    with pytest.raises(InputError, match="unknown variant 'mine'"):
        ArmsPlan(("move_can_pot",), ("mine",))
    with pytest.raises(InputError, match="unknown task 'move_can'"):
        ArmsPlan(("move_can",))
    with pytest.raises(InputError, match="leave none to judge by"):
        ArmsPlan(("move_can_pot",), per_task=1)
