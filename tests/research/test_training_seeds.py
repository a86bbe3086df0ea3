"""Results of one recipe trained with several seeds."""

import pytest

from recap.assembly import AgentConfig
from recap.evaluation.spec import EvalSpec
from recap.types import EpisodeResult
from recap_research.training_seeds import Rolled, gain_of, share_of

SPEC = EvalSpec(AgentConfig(), "pusht", tasks=("-30", "0", "+45"), seeds=(500, 501, 502, 503))


def rolled(**done: int) -> Rolled:
    """Results in which the given number of four starts per goal succeeds at 0.85, and none at 0.95."""
    results = [
        EpisodeResult(
            task,
            seed,
            "failure",
            9,
            {"coverage": 0.9},
            {"0.85": 5 if i < done.get(name, 0) else None, "0.95": None},
        )
        for task, name in (("-30", "left"), ("0", "none"), ("+45", "seen"))
        for i, seed in enumerate(SPEC.seeds)
    ]
    return SPEC, results


def test_share_of_is_the_mean_over_trainings_by_group_or_goal() -> None:
    runs = [rolled(left=4, none=0, seen=1), rolled(left=2, none=2, seen=3)]
    for group, models in (
        ("unseen", (0.5, 0.5)),
        ("seen", (0.25, 0.75)),
        ("all", (5 / 12, 7 / 12)),
        ("-30", (1.0, 0.5)),
    ):
        share = share_of(runs, group, "0.85")
        assert share is not None
        assert share.models == pytest.approx(models)
        assert share.mean == pytest.approx(sum(models) / 2)
        assert share.interval.low <= share.mean <= share.interval.high
    assert share_of(runs, "+60", "0.85") is None


def test_gain_of_is_the_difference_of_the_means() -> None:
    ours, theirs = [rolled(left=4, none=4), rolled(left=4, none=2)], [rolled(left=1, none=0)]
    gain = gain_of(ours, theirs, "unseen", "0.85")
    assert gain is not None
    assert gain.difference == pytest.approx((1.0 + 0.75) / 2 - 0.125)
    assert gain.interval.low <= gain.difference <= gain.interval.high
    assert str(gain).startswith("+75.0 [+")
    back = gain_of(theirs, ours, "unseen", "0.85")
    assert back is not None
    assert back.difference == -gain.difference


def test_different_starts_give_no_gain() -> None:
    spec, results = rolled(left=2)
    fewer = [r for r in results if r.seed != 503]
    assert gain_of([(spec, results)], [(spec, fewer)], "unseen", "0.85") is None
