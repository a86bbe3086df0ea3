"""The table that says in what runs differ."""

from pathlib import Path

import pytest

from recap_research.plans.plan import Plan, read_plan
from recap_research.plans.settings import as_markdown, compare_settings

BASELINES = Path(__file__).parents[3] / "research" / "scripts" / "plans" / "baselines.json"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return read_plan(BASELINES, Path("runs/evidence"))


def test_the_baselines_differ_in_what_they_learn_from_and_retrieve_alone(plan: Plan) -> None:
    for part in plan.parts:
        head, *rows = compare_settings(plan, part.names)
        trained = [name for name in part.names if any(run.family == name for run in plan.runs)]
        assert set(head[1:]) == {plan.labels[name] for name in trained}
        differing = {row[0].strip("`") for row in rows if len(set(row[1:])) > 1}
        differing -= {
            "policy.retrieval_name",
            "own_share",
        }  # with or without the goal; how often a moment is drawn
        assert differing == {"policy.retrieval", "policy.residual", "pool_where", "co_training"}
        told = {row[0]: row[1:] for row in rows}
        assert set(told["`n_iterations`"]) == {"1800"}
        assert len(set(told["frame"])) == 1
        assert rows[-1][0].endswith(" others")
        assert set(rows[-1][1:]) == {"equal"}


def test_every_setting_is_named_or_counted(plan: Plan) -> None:
    def leaves(values: dict[str, object]) -> int:
        return sum(leaves(v) if isinstance(v, dict) else 1 for v in values.values())

    rows = compare_settings(plan, ["ours", "no-retrieval-block"])
    named = [row for row in rows if row[0].startswith("`")]
    n_others = int(rows[-1][0].split()[0])
    assert len(named) + n_others == leaves(plan.runs[0].config.to_json()) - 2, "all but preset and seed"


def test_a_table_of_agents_alone_is_empty(plan: Plan) -> None:
    assert compare_settings(plan, ["replay"]) == []
    assert as_markdown([["a", "b"], ["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
