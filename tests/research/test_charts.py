"""Charts: shapes are in proportion to the values, and labels give the values as text."""

import math
import re

import pytest

from recap_research import charts
from recap_research.charts import Point, Series

POINTS = (Point("-45", 0.5, 0.3, 0.7), Point("0", 0.25, 0.1, 0.5), Point("+45", math.nan))


def heights(svg: str, fill: str) -> list[float]:
    return [float(h) for h in re.findall(rf'height="([\d.]+)" fill="{re.escape(fill)}"', svg)]


def test_bar_heights_are_proportional_to_the_values() -> None:
    first, second = heights(charts.bars("success", POINTS), "var(--c1)")
    assert first == pytest.approx(2 * second, rel=0.01)


def test_a_gain_is_stacked_on_the_previous_value_and_a_loss_is_outlined() -> None:
    svg = charts.bars("success", POINTS[:2], before=[0.25, 0.5])
    grey = heights(svg, "var(--grey)")
    assert grey[0] == pytest.approx(grey[1], abs=0.2)
    assert heights(svg, "var(--c1)") == pytest.approx([grey[0]], abs=0.2)
    assert svg.count("stroke-dasharray") == 1


def test_the_gap_to_a_larger_later_value_is_shaded() -> None:
    assert charts.bars("x", POINTS[:2], ahead=[0.9, 0.1]).count('opacity=".25"') == 1
    assert charts.bars("x", POINTS[:2], ahead=[math.nan, 0.9]).count('opacity=".25"') == 1


def test_the_papers_values_are_marked() -> None:
    assert charts.bars("x", POINTS, paper=[0.4, math.nan, 0.2]).count("paper-mark") == 2


def test_a_chart_has_an_escaped_text_alternative() -> None:
    svg = charts.lines("<b>", [Series("a & b", POINTS)])
    assert 'aria-label="&lt;b&gt;. a &amp; b -45: 0.5, 0: 0.25"' in svg
    assert "<b>" not in svg


def test_a_reference_line_is_within_the_frame() -> None:
    svg = charts.lines("x", [Series("low", (Point("1", 0.2), Point("2", 0.3)))], percent=False, reference=1.0)
    y = float(re.findall(r'd="M40 ([\d.]+)h[\d.]+" stroke="var\(--soft\)"', svg)[0])
    lines = [float(v) for v in re.findall(r'd="M40 ([\d.]+)h[\d.]+" stroke="var\(--line\)"', svg)]
    assert min(lines) <= y + 1e-6 <= max(lines)


def test_differences_are_drawn_left_and_right_of_zero() -> None:
    points = [Point("worse", -0.2, -0.3, -0.1), Point("same", 0.0, -0.1, 0.1), Point("better", 0.2, 0.1, 0.3)]
    left, middle, right = map(float, re.findall(r'cx="([\d.]+)"', charts.differences("d", points)))
    assert left < middle < right
    assert middle - left == pytest.approx(right - middle)


def test_wide_charts_scroll() -> None:
    many = [str(i) for i in range(28)]
    wide = charts.heat("mass", ["a"], many, [[0.1] * 28])
    assert wide.startswith('<div class="wide">')
    assert charts.heat("mass", ["a"], many[:6], [[0.1] * 6]).startswith("<svg")


def test_stacked_counts_are_labelled_and_add_up() -> None:
    svg = charts.stacked("kinds", ["0", "+30"], [("won", [3, 0]), ("lost", [1, 4])])
    assert re.findall(r'fill="var\(--paper\)">(\d)<', svg) == ["3", "1", "4"]
    top = heights(svg, "var(--c1)")[0] + heights(svg, "var(--c2)")[0]
    assert top == pytest.approx(heights(svg, "var(--c2)")[1], abs=0.2)
