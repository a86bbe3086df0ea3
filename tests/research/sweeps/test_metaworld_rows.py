"""The Meta-World sweep: tasks for training, and tasks for evaluation only."""

from pathlib import Path

from metaworld_rows import Rows

from recap_research.sweep.sweep import Sweep
from recap_worlds.metaworld.tasks import SEEN, UNSEEN

ROWS = Rows(SEEN, UNSEEN, 10, (0, 1, 2), tuple(range(10_000, 10_050)))


def built() -> Sweep:
    sweep = Sweep(Path("runs/metaworld"))
    ROWS.build(sweep)
    return sweep


def test_only_co_training_and_fine_tuning_use_unseen_tasks() -> None:
    assert {task for task, _ in ROWS.files()["seen"]} == set(SEEN)
    for run in built().runs:
        assert ("unseen" in run.config.target) == (run.family in ("co-training", "fine-tune")), run.name


def test_rows_of_unseen_tasks_share_scenes_and_numbers_of_demonstrations() -> None:
    sweep = built()
    rows = [*sweep.agents, *(e for run in sweep.runs for e in run.evaluations)]
    for row in rows:
        number = row.name.rpartition("-")[2]
        if number == "seen":  # for development
            assert row.spec.tasks == SEEN
            assert max(row.spec.seeds) < 1000
        else:
            assert row.spec.tasks == UNSEEN
            assert row.spec.seeds == ROWS.eval_seeds
            if row.name != "expert":
                assert str(row.spec.pool).endswith(f"unseen-{number}.safetensors")
    for n in ROWS.shots:
        assert len(ROWS.files()[f"unseen-{n}"]) == n * len(UNSEEN)
    assert [run.name for run in sweep.runs if run.family == "ours"] == ["ours-0", "ours-1", "ours-2"]


def test_no_demonstration_has_an_evaluation_seed() -> None:
    shown = {seed for demos in ROWS.files().values() for _, seed in demos}
    assert min(shown) >= 100_000
