from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from recap.errors import InputError
from recap.evaluation.summary import Comparison, compare, render_comparison
from recap.types import EpisodeResult
from specs import pusht_spec

SPEC = pusht_spec("one", angles=(0.0, 45.0), seeds=(1, 2, 3))


def results(passed: dict[str, str], seeds: tuple[int, ...] = SPEC.seeds) -> list[EpisodeResult]:
    """One letter per seed: `+` both thresholds passed, `~` only the first, `-` neither, `!` an error."""
    out = []
    for task, letters in passed.items():
        for seed, letter in zip(seeds, letters, strict=True):
            steps = {"0.85": 7 if letter in "+~" else None, "0.95": 9 if letter == "+" else None}
            outcome = {"+": "success", "!": "error"}.get(letter, "failure")
            out.append(EpisodeResult(task, seed, outcome, 9, {"coverage": 0.5}, steps))  # type: ignore[arg-type]
    return out


A = (SPEC, results({"0": "+~-", "+45": "+-+"}))
B = (SPEC.with_agent(policy="two"), results({"0": "+++", "+45": "-!+"}))


def test_compare_counts_pairs_per_task_and_threshold() -> None:
    comparison = compare(A, B)
    assert comparison.settings.settings == {"agent": ("one", "two")}
    assert (comparison.n_errors, comparison.n_unpaired) == (1, 0)
    late = comparison.thresholds["0.95"]
    assert list(late) == ["0", "+45", "seen", "unseen", "all"]
    assert [getattr(late["0"], c) for c in ("both", "only_a", "only_b", "neither")] == [1, 0, 2, 0]
    assert [getattr(late["all"], c) for c in ("both", "only_a", "only_b", "neither")] == [2, 1, 2, 0]
    assert late["all"].difference == pytest.approx(1 / 5)
    assert comparison.thresholds["0.85"]["0"].difference == pytest.approx(1 / 3)
    plain = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert plain["b_minus_a"]["0.95"]["+45"]["only_a"] == 1


def test_only_shared_trials_are_paired() -> None:
    fewer = replace(SPEC, tasks=("+45",), seeds=(2, 3, 4))
    comparison = compare(A, (fewer, results({"+45": "++-"}, fewer.seeds)))
    assert comparison.thresholds["0.95"]["all"].n == 2
    assert comparison.n_unpaired == 5
    assert comparison.settings.settings["tasks"] == (["0", "+45"], ["+45"])


def test_runs_without_shared_trials_or_thresholds_are_an_error() -> None:
    with pytest.raises(InputError, match="share no task and seed"):
        compare(A, (replace(SPEC, tasks=("+7",)), results({"+7": "+++"})))
    with pytest.raises(InputError, match="share no success threshold"):
        compare(A, (replace(SPEC, thresholds=(0.5,)), B[1]))


def test_the_comparison_table_fits_in_80_columns() -> None:
    text = io.StringIO()
    Console(file=text, width=80).print(render_comparison(compare(A, B)))
    assert max(map(len, text.getvalue().splitlines())) <= 80
    rows = [line.split() for line in text.getvalue().splitlines()]
    assert ["0", "3", "33", "100", "+67", "[-65,", "+100]", "1", "0", "2", "0"] in rows
    assert ["agent", "one", "two"] in rows
    assert "Pairs left out because one of them is an error: 1." in text.getvalue()


OF_REPLAY = {"n_action_steps": 8, "retrieval": "pusht-contact", "retrieval.subtrajectories": False}
OF_POLICY = {**OF_REPLAY, "retrieval.subtrajectories": True, "policy.residual": True}
REPLAY = SPEC.with_agent(policy="replay", retrieval="contact")
POLICY = SPEC.with_agent(policy="pusht-small")


def shown(found: Comparison) -> str:
    text = io.StringIO()
    Console(file=text, width=80).print(render_comparison(found))
    return " ".join(text.getvalue().split())


def test_a_control_with_other_settings_is_stated_above_the_results() -> None:
    found = compare((REPLAY, A[1]), (POLICY, A[1]), (OF_REPLAY, OF_POLICY))
    assert found.settings.of_the_run == ["retrieval.subtrajectories"]
    assert not found.settings.equal_but_for_the_network
    text = shown(found)
    unequal = text.index("Not equal settings: retrieval.subtrajectories differ")
    assert unequal < text.index("Success > 0.85")
    assert "recap eval replay --settings-of pusht-small" in text
    plain = found.to_json()
    assert plain["equal_but_for_the_network"] is False
    assert plain["settings_that_differ"]["retrieval.subtrajectories"] == {"a": False, "b": True}


def test_a_control_with_equal_settings_differs_only_in_the_network() -> None:
    same = {key: value for key, value in OF_POLICY.items() if not key.startswith("policy.")}
    asked = REPLAY.with_agent(settings_of="pusht-small")
    found = compare((asked, A[1]), (POLICY, A[1]), (same, OF_POLICY))
    assert set(found.settings.settings) == {"agent", "policy.residual"}
    assert found.settings.equal_but_for_the_network
    assert "Equal settings: pool, poses, retrieval and replanning interval are the same" in shown(found)


@pytest.mark.parametrize(
    "change",
    [
        {"pool": "other"},
        {"objects": "pixels"},
        {"pose_noise": (4.0, 0.0)},
        {"noise_seed": 1},
        {"pusher": "triangle"},
    ],
)
def test_another_pool_pose_source_or_noise_is_listed_as_a_different_setting(change: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"angles": (0.0, 45.0), "seeds": (1, 2, 3), "retrieval": "contact"}
    found = compare((REPLAY, A[1]), (pusht_spec(**usual, **change), A[1]), (OF_REPLAY, OF_REPLAY))
    assert found.settings.of_the_run == list(change)


def test_runs_without_recorded_settings_are_not_called_equal() -> None:
    found = compare((REPLAY, A[1]), (REPLAY, A[1]), (OF_REPLAY, None))
    assert not found.settings.equal_but_for_the_network
    assert "has no record of what its agent was run with" in shown(found)
    hold = compare((SPEC.with_agent(policy="hold"), A[1]), (SPEC.with_agent(policy="expert"), A[1]))
    assert hold.settings.recorded, "these agents have no settings to record"


def test_the_device_is_no_setting() -> None:
    found = compare((REPLAY, A[1]), (REPLAY.with_agent(device="cuda"), A[1]), (OF_REPLAY, OF_REPLAY))
    assert not found.settings.settings


def test_markup_and_escape_codes_in_settings_are_printed_literally() -> None:
    hostile = {**OF_REPLAY, "[/x]": "[/y]\x1b[31m", "retrieval.trim": {"a": ["[/z]"]}}
    text = shown(compare((REPLAY, A[1]), (POLICY, A[1]), (OF_REPLAY, hostile)))
    assert "[/x]" in text
    assert "[/y]\\x1b[31m" in text
    assert "\x1b" not in text
