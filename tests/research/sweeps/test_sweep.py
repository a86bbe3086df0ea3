"""Building and ordering sweeps; mistakes are errors before anything runs."""

import importlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recap.errors import InputError
from recap.training.data import demonstrations
from recap.training.presets import preset
from recap_research.sweep.pools import Selection
from recap_research.sweep.settings import as_markdown, compare_settings
from recap_research.sweep.sweep import Sweep, pusht

FOLDER = Path(__file__).parents[3] / "research" / "sweeps"
OF_WORLDS = ("dualarm_rows", "metaworld_rows")  # with their own options
NAMES = sorted({file.stem for file in FOLDER.glob("*.py")} - {"common", *OF_WORLDS})
ROLLED = partial(pusht, seeds=range(500, 502))
NANO = preset("pusht-nano", ["autoencoder=pusht-nano"])


def built(name: str, out: Path) -> Sweep:
    sweep = Sweep(out, "cuda")
    importlib.import_module(name).build(sweep)
    return sweep


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path / "out")


@pytest.mark.parametrize("name", NAMES)
def test_every_sweep_is_valid_and_reports_everything_it_labels(name: str, tmp_path: Path) -> None:
    sweep = built(name, tmp_path)
    assert sweep.runs or sweep.agents
    assert all(run.evaluations for run in sweep.runs), "every training is evaluated"
    shown = {name.partition("/")[0] for part in sweep.parts for name in part.names}
    assert set(sweep.labels) <= shown
    for one in (*sweep.agents, *(e for run in sweep.runs for e in run.evaluations)):
        assert one.spec.agent.device == "cuda"


Build = Callable[[Sweep], Any]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda s: s.train("a", preset("pusht-nanno"), {}), "did you mean 'pusht-nano'?"),
        (lambda s: s.train("a", preset("pusht-nano", ["policy.residul=no"]), {}), "did you mean 'residual'?"),
        (lambda s: s.roll_out("a", ROLLED("replay", retrieval="pusht-objct")), "'pusht-object'?"),
        (lambda s: s.roll_out("a", ROLLED("ours")), "unknown agent 'ours'"),
        (lambda s: s.roll_out("a", ROLLED("replay", tasks=["north"])), "'north' is not a number"),
        (lambda s: s.roll_out("a", ROLLED("replay", block="el")), "unknown block 'el'"),
        (lambda s: s.roll_out("a", ROLLED("replay"), paper="our"), "did you mean 'ours'?"),
        (
            lambda s: [s.roll_out("a", ROLLED("replay")) for _ in range(2)],
            "two runs or agents are called 'a'",
        ),
        (lambda s: s.roll_out("a/b", ROLLED("replay")), "'a/b' cannot name a file"),
        (lambda s: s.pool("../x", Selection("pusht-9x100")), "'../x' cannot name a file"),
        (lambda s: s.pool("x", Selection("pusht-9x100", -5)), "-5 demonstrations cannot be chosen"),
        (lambda s: s.part("A", ["ours"]), "part 'A' names 'ours', which nothing rolls out"),
        (lambda s: s.select(["ours"]), "no run or agent 'ours'"),
    ],
)
def test_invalid_sweeps_are_errors_of_one_line(sweep: Sweep, build: Build, words: str) -> None:
    with pytest.raises(InputError) as caught:
        build(sweep)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_part_may_name_one_evaluation_of_a_family(sweep: Sweep) -> None:
    sweep.train("ours", NANO, {"all": ROLLED, "ell": partial(ROLLED, block="ell")}, (0, 1))
    assert [e.name for e in sweep.evaluations_of("ours/ell")] == ["ours-0-ell", "ours-1-ell"]
    sweep.part("A", ["ours/ell"])
    with pytest.raises(InputError, match="names 'ours/el'"):
        sweep.part("B", ["ours/el"])


def test_first_seeds_of_all_runs_come_before_second_seeds(sweep: Sweep) -> None:
    sweep.train("ours", NANO, {"all": ROLLED}, (4, 5, 6))
    sweep.train("other", NANO, {"all": ROLLED}, (0, 1))
    assert [run.name for run in sweep.runs] == ["ours-4", "other-0", "ours-5", "other-1", "ours-6"]
    assert [run.config.seed for run in sweep.runs] == [4, 0, 5, 1, 6]
    sweep.select(["other"])
    assert [run.name for run in sweep.runs] == ["other-0", "other-1"]


def test_a_trained_policy_is_evaluated_with_its_own_retrieval(sweep: Sweep) -> None:
    sweep.train("ours", NANO, {"all": ROLLED})
    ((evaluation,),) = (run.evaluations for run in sweep.runs)
    assert evaluation.name == "ours-0-all"
    spec = evaluation.spec
    assert (spec.agent.retrieval, spec.env, spec.seeds) == ("", "pusht", (500, 501))
    assert spec.options == {"pusher": "triangle", "block": "tee"}
    assert spec.agent.policy == sweep.policy("ours-0") == str(sweep.out / "training/ours-0/last")


def test_pools_are_selected_from_existing_demonstrations_and_built_once(sweep: Sweep) -> None:
    few = sweep.pool("few", Selection("pusht-9x100", 18))
    two = sweep.pool("two", Selection("pusht-9x100", 4, ("goal_angle=-45", "goal_angle=45")))
    said: list[str] = []
    sweep.collect(1, lambda *words: said.append(" ".join(words)))
    sweep.collect(1, lambda *words: pytest.fail("nothing is missing"))
    assert said == ["collected few", "collected two"]
    assert goals_of(few) == dict.fromkeys(range(-60, 61, 15), 2)
    assert goals_of(two) == {-45: 2, 45: 2}


def goals_of(file: str) -> dict[int, int]:
    found = [e.goal for e in demonstrations(file)]
    return dict(Counter(round(float(np.degrees(goal[2]))) for goal in found if goal is not None))


def test_the_baselines_differ_only_in_data_and_retrieval() -> None:
    sweep = built("baselines", Path("runs/evidence"))
    for part in sweep.parts:
        head, *rows = compare_settings(sweep, part.names)
        trained = [name for name in part.names if any(run.family == name for run in sweep.runs)]
        assert set(head[1:]) == {sweep.labels[name] for name in trained}
        differing = {row[0].strip("`") for row in rows if len(set(row[1:])) > 1}
        # With or without the goal, and the share of the target's frames.
        differing -= {"policy.retrieval_name", "own_share"}
        assert differing == {"policy.retrieval", "policy.residual", "pool_where", "co_training"}
        shown = {row[0]: row[1:] for row in rows}
        assert set(shown["`n_iterations`"]) == {"1800"}
        assert len(set(shown["frame"])) == 1
        assert rows[-1][0].endswith(" others")
        assert set(rows[-1][1:]) == {"equal"}


def test_compare_settings_names_or_counts_every_setting() -> None:
    def leaves(values: dict[str, object]) -> int:
        return sum(leaves(v) if isinstance(v, dict) else 1 for v in values.values())

    sweep = built("baselines", Path("runs/evidence"))
    rows = compare_settings(sweep, ["ours", "no-retrieval-block"])
    named = [row for row in rows if row[0].startswith("`")]
    n_others = int(rows[-1][0].split()[0])
    assert len(named) + n_others == leaves(sweep.runs[0].config.to_json()) - 2, "all but preset and seed"
    assert compare_settings(sweep, ["replay"]) == []
    assert as_markdown([["a", "b"], ["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
