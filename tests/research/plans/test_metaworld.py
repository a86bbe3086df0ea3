"""The plan of Meta-World's rows: what is trained on, and what is only evaluated."""

from pathlib import Path

from recap_research.plans.metaworld import TablePlan, make_plan, toy_of
from recap_worlds.metaworld.tasks import SEEN, UNSEEN

PLAN = TablePlan(SEEN, UNSEEN, 10, (0, 1, 2), tuple(range(10_000, 10_050)))
OUT = Path("runs/metaworld")


def test_policies_learn_from_seen_tasks_alone_but_for_what_is_named_so() -> None:
    files = PLAN.files()
    assert {task for task, _ in files["seen"]} == set(SEEN)
    for run in make_plan(PLAN, OUT).runs:
        learns = run.config.target
        assert ("unseen" in learns) == (run.family in ("co-training", "fine-tune")), run.name


def test_every_row_of_unseen_tasks_has_the_same_scenes_and_as_many_demonstrations() -> None:
    plan = make_plan(PLAN, OUT)
    rows = [*plan.agents, *(e for run in plan.runs for e in run.evaluations)]
    for row in rows:
        number = row.name.rpartition("-")[2]
        if number == "seen":  # for development
            assert row.spec.tasks == SEEN
            assert max(row.spec.seeds) < 1000
        else:
            assert row.spec.tasks == UNSEEN
            assert row.spec.seeds == PLAN.eval_seeds
            if row.name != "expert":
                assert str(row.spec.pool).endswith(f"unseen-{number}.safetensors")
    for n in PLAN.shots:
        assert len(PLAN.files()[f"unseen-{n}"]) == n * len(UNSEEN)
    assert [run.name for run in plan.runs if run.family == "ours"] == ["ours-0", "ours-1", "ours-2"]


def test_no_demonstration_is_of_a_scene_that_is_evaluated() -> None:
    shown = {seed for demos in PLAN.files().values() for _, seed in demos}
    assert min(shown) >= 100_000
    assert max(toy_of(PLAN).eval_seeds) < 1000
