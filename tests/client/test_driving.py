"""The summary at the end of a run."""

import pytest

from recap_client.driving import _summarise
from recap_client.robot_loop import LoopReport


@pytest.mark.parametrize(("jerk", "shown"), [(float("nan"), False), (1.5, True)])
def test_the_summary_leaves_out_a_jerk_that_is_nan(
    capsys: pytest.CaptureFixture[str], jerk: float, shown: bool
) -> None:
    _summarise(LoopReport("steps", jerk=jerk))
    text = capsys.readouterr().out.splitlines()[-1]
    assert ("jerk 1.50" in text) is shown
    assert text.startswith("Misses: ")
    assert "jerk nan" not in text
