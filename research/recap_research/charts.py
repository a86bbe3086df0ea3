"""Charts as SVG for a page: bars, lines with intervals, differences, heat maps.

Colours are those of the page (`--c1` …), so a chart follows the page's dark mode. Each has a title and a text
description for screen readers. The numbers themselves belong in a table next to the chart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

N_COLORS = 5
SIZE = 11  # px, font size
MAX_WIDTH = 400  # px; wider charts scroll on a phone, so that their text stays readable


@dataclass(frozen=True)
class Point:
    """A value with an optional interval; nan is left out."""

    label: str
    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Series:
    """A named series of points."""

    name: str
    points: tuple[Point, ...]


def color(i: int) -> str:
    """The i-th colour of the page."""
    return f"var(--c{i % N_COLORS + 1})"


def bars(
    title: str,
    points: Sequence[Point],
    *,
    before: Sequence[float] | None = None,
    ahead: Sequence[float] | None = None,
    paper: Sequence[float] | None = None,
    seen: Sequence[bool] | None = None,
    tint: int = 0,
    top: float = 1.0,
) -> str:
    """Shares as bars with intervals, 0 to `top`.

    Args:
        before: an earlier value of each, drawn grey; a gain since then is drawn in colour above it.
        ahead: a later value of each; the gap to it is shaded.
        paper: the paper's value of each, drawn as a diamond.
        seen: hatch the bars of goals seen in training.
    """
    slanted = max((len(point.label) for point in points), default=0) > 6  # names rather than angles
    width, height, left, below = (360, 262, 94, 106) if slanted else (300, 190, 40, 34)
    plot = _Plot(width, height, (0.0, top), left=left, bottom=below)
    step = plot.width / max(len(points), 1)
    parts = plot.grid(percent=True)
    for i, point in enumerate(points):
        x, wide = plot.left + (i + 0.16) * step, 0.68 * step
        if not math.isnan(point.value):
            base = before[i] if before is not None and not math.isnan(before[i]) else None
            parts += _bar(plot, x, wide, point.value, base, tint)
            if seen is not None and seen[i]:
                parts.append(plot.rect(x, wide, 0, point.value, "url(#hatch)"))
        if ahead is not None and ahead[i] > point.value:  # nan is not
            gap = plot.rect(x, wide, point.value, ahead[i], color(tint))
            parts.append(f'<g opacity=".25">{gap}</g>')
        middle = x + wide / 2
        parts += plot.whisker(middle, point.low, point.high)
        if paper is not None and not math.isnan(paper[i]):
            y = plot.y(paper[i])
            parts.append(
                f'<path class="paper-mark" d="M{middle:.1f} {y - 5:.1f}l5 5-5 5-5-5z" fill="var(--paper)" '
                'stroke="var(--ink)" stroke-width="1.5"/>'
            )
        if slanted:
            word = _text(0, 0, _short(point.label, 20), "end")
            parts.append(
                f'<g transform="translate({middle + 3:.1f} {plot.bottom + 12}) rotate(-50)">{word}</g>'
            )
        else:
            parts.append(_text(middle, plot.bottom + 14, point.label, "middle"))
    return plot.svg(title, _told(title, [Series("", tuple(points))]), parts)


def _bar(plot: _Plot, x: float, wide: float, value: float, base: float | None, tint: int) -> list[str]:
    if base is None:
        return [plot.rect(x, wide, 0, value, color(tint))]
    low, high = min(base, value), max(base, value)
    gain = plot.rect(x, wide, low, high, color(tint) if value >= base else "none")
    lost = plot.rect(x, wide, low, high, "none", "var(--c2)") if value < base else ""
    return [plot.rect(x, wide, 0, low, "var(--grey)"), gain, lost]


def lines(
    title: str,
    series: Sequence[Series],
    *,
    x_title: str = "",
    y_title: str = "",
    percent: bool = True,
    reference: float | None = None,
    limits: tuple[float, float] | None = None,
) -> str:
    """Lines over ordered labels, each series with a band of its intervals."""
    values = [v for s in series for p in s.points for v in (p.value, p.low, p.high) if math.isfinite(v)]
    if limits is None:
        values += [0.0] if reference is None else [0.0, reference]
        limits = (0.0, 1.0) if percent else (min(values), 1.08 * max(values))
    labels = list(dict.fromkeys(p.label for s in series for p in s.points))
    plot = _Plot(380, 230, limits, left=40, bottom=44, y_title=y_title)
    place = {
        label: plot.left + plot.width * (0.5 if len(labels) == 1 else 0.03 + 0.94 * i / (len(labels) - 1))
        for i, label in enumerate(labels)
    }
    parts = plot.grid(percent=percent)
    if reference is not None:
        y = plot.y(reference)
        parts.append(
            f'<path d="M{plot.left} {y:.1f}h{plot.width:.1f}" stroke="var(--soft)" stroke-dasharray="4 3"/>'
        )
    for i, one in enumerate(series):
        parts += _line(plot, one, place, i)
    every = 1 + len(labels) // 16
    parts += [_text(place[label], plot.bottom + 15, label, "middle") for label in labels[::every]]
    parts.append(_text(plot.left + plot.width / 2, plot.bottom + 36, x_title, "middle"))
    return plot.svg(title, _told(title, series), parts) + legend([s.name for s in series], dashed=True)


DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 2")


def _line(plot: _Plot, series: Series, place: dict[str, float], i: int) -> list[str]:
    known = [p for p in series.points if math.isfinite(p.value)]
    banded = [p for p in known if math.isfinite(p.low) and math.isfinite(p.high)]
    parts = []
    if len(banded) > 1:
        way = [(place[p.label], plot.y(p.high)) for p in banded]
        way += [(place[p.label], plot.y(p.low)) for p in reversed(banded)]
        ring = " ".join(f"{x:.1f},{y:.1f}" for x, y in way)
        parts.append(f'<polygon points="{ring}" fill="{color(i)}" opacity=".12"/>')
    elif banded:
        parts += plot.whisker(place[banded[0].label], banded[0].low, banded[0].high)
    line = " ".join(f"{place[p.label]:.1f},{plot.y(p.value):.1f}" for p in known)
    dash = f' stroke-dasharray="{DASHES[i % len(DASHES)]}"' if DASHES[i % len(DASHES)] else ""
    parts.append(f'<polyline points="{line}" fill="none" stroke="{color(i)}" stroke-width="2"{dash}/>')
    parts += [
        f'<circle cx="{place[p.label]:.1f}" cy="{plot.y(p.value):.1f}" r="3" fill="{color(i)}"/>'
        for p in known
    ]
    return parts


def differences(title: str, points: Sequence[Point], *, words: tuple[str, str] = ("worse", "better")) -> str:
    """Paired differences around 0 with intervals, one per row."""
    reach = max([abs(v) for p in points for v in (p.value, p.low, p.high) if math.isfinite(v)] or [1.0])
    reach = max(0.05, math.ceil(reach * 20) / 20)
    left, width, row = 22, 316, 34
    height = 34 + row * len(points)

    def at(value: float) -> float:
        return left + width * (value + reach) / (2 * reach)

    parts = []
    for tick in (-reach, 0.0, reach):
        dash = "" if tick == 0 else ' stroke-dasharray="2 3"'
        parts.append(f'<path d="M{at(tick):.1f} 14V{height - 18}" stroke="var(--line)"{dash}/>')
        parts.append(_text(at(tick), height - 4, f"{100 * tick:+.0f}" if tick else "0 points", "middle"))
    parts.append(_text(at(-reach), 9, f"← {words[0]}", "start") + _text(at(reach), 9, f"{words[1]} →", "end"))
    for i, point in enumerate(points):
        y = 38 + row * i
        parts.append(_text(left, y - 9, _short(point.label, 48), "start", "var(--ink)"))
        if math.isfinite(point.low) and math.isfinite(point.high):
            a, b = at(point.low), at(point.high)
            parts.append(f'<path d="M{a:.1f} {y}H{b:.1f}" stroke="var(--c1)" stroke-width="2"/>')
        if math.isfinite(point.value):
            parts.append(f'<circle cx="{at(point.value):.1f}" cy="{y}" r="4" fill="var(--c1)"/>')
    return _svg(360, height, title, _told(title, [Series("", tuple(points))]), parts)


def dots(title: str, series: Sequence[Series]) -> str:
    """Rates from 0 to 1 with intervals, one row per label and one dot per series."""
    labels = list(dict.fromkeys(p.label for s in series for p in s.points))
    left, width, row = 14, 326, 20 + 12 * len(series)
    height = 30 + row * len(labels)
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = left + width * tick
        parts.append(f'<path d="M{x:.1f} 6V{height - 20}" stroke="var(--line)"/>')
        parts.append(_text(x, height - 6, f"{100 * tick:.0f}" + (" %" if tick == 1 else ""), "middle"))
    for i, label in enumerate(labels):
        parts.append(_text(left, 16 + row * i, _short(label, 52), "start", "var(--ink)"))
    for k, one in enumerate(series):
        for point in (p for p in one.points if math.isfinite(p.value)):
            y = 26 + row * labels.index(point.label) + 12 * k
            a, b, x = (left + width * v for v in (point.low, point.high, point.value))
            parts.append(f'<path d="M{a:.1f} {y}H{b:.1f}" stroke="{color(k)}" stroke-width="2"/>')
            parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{color(k)}"/>')
    return _svg(360, height, title, _told(title, series), parts) + legend([s.name for s in series])


def heat(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    x_title: str = "",
) -> str:
    """A heat map: darker squares are larger values, which are written inside."""
    left, cell, tall = 136, 33, 26
    most = max([v for row in values for v in row if math.isfinite(v)] or [1.0])
    parts = [_text(left + cell * (j + 0.5), 12, name, "middle") for j, name in enumerate(columns)]
    parts.append(_text(left - 8, 12, x_title, "end"))
    for i, (name, row) in enumerate(zip(rows, values, strict=True)):
        y = 20 + tall * i
        parts.append(_text(left - 8, y + 17, _short(name, 24), "end"))
        for j, value in enumerate(row):
            if not math.isfinite(value):
                continue
            share = value / most if most else 0.0
            parts.append(
                f'<rect x="{left + cell * j + 1}" y="{y + 1}" width="{cell - 2}" height="{tall - 2}" rx="3" '
                f'fill="var(--c1)" opacity="{0.08 + 0.52 * share:.2f}"/>'
            )
            parts.append(_text(left + cell * (j + 0.5), y + 17, f"{value:.2f}", "middle", "var(--ink)"))
    series = [
        Series(n, tuple(Point(c, v) for c, v in zip(columns, r, strict=True)))
        for n, r in zip(rows, values, strict=True)
    ]
    return _svg(left + cell * len(columns) + 4, 24 + tall * len(rows), title, _told(title, series), parts)


def stacked(
    title: str, labels: Sequence[str], parts_of: Sequence[tuple[str, Sequence[int]]], *, y_title: str = ""
) -> str:
    """Stacked counts, one column per label."""
    totals = [sum(counts[i] for _, counts in parts_of) for i in range(len(labels))]
    plot = _Plot(380, 210, (0.0, max([*totals, 1])), left=34, bottom=34, y_title=y_title)
    step = plot.width / max(len(labels), 1)
    drawn = plot.grid(percent=False, counts=True)
    for i, label in enumerate(labels):
        at, x, wide = 0, plot.left + (i + 0.16) * step, 0.68 * step
        for k, (_, counts) in enumerate(parts_of):
            if counts[i]:
                drawn.append(plot.rect(x, wide, at, at + counts[i], color(k)))
                middle = (plot.y(at) + plot.y(at + counts[i])) / 2 + 4
                drawn.append(_text(x + wide / 2, middle, str(counts[i]), "middle", "var(--paper)"))
            at += counts[i]
        drawn.append(_text(x + wide / 2, plot.bottom + 14, label, "middle"))
    series = [
        Series(name, tuple(Point(a, n) for a, n in zip(labels, counts, strict=True)))
        for name, counts in parts_of
    ]
    return plot.svg(title, _told(title, series), drawn) + legend([name for name, _ in parts_of])


def legend(names: Sequence[str], *, dashed: bool = False) -> str:
    """A legend of colours, or of dash styles."""
    items = "".join(f"<li>{_key(i, dashed)}{escape(name)}</li>" for i, name in enumerate(names) if name)
    return f'<ul class="legend">{items}</ul>' if items else ""


def _key(i: int, dashed: bool) -> str:
    if not dashed:
        return f'<span style="background:{color(i)}"></span>'
    line = f'stroke="{color(i)}" stroke-width="3" stroke-dasharray="{DASHES[i % len(DASHES)]}"'
    return f'<svg width="26" height="8" aria-hidden="true"><path d="M0 4H26" {line}/></svg>'


class _Plot:
    """A frame with a vertical axis."""

    def __init__(
        self,
        width: int,
        height: int,
        limits: tuple[float, float],
        left: int,
        bottom: int,
        y_title: str = "",
    ) -> None:
        self.left, self.top = left, 26 if y_title else 10
        self.title = y_title
        self.whole = width, height
        self.width, self.bottom = width - left - 6, height - bottom
        low, high = limits
        self.low, self.high = low, high if high > low else low + 1.0

    def y(self, value: float) -> float:
        """The y coordinate of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.bottom - (self.bottom - self.top) * min(max(share, 0.0), 1.0)

    def rect(self, x: float, wide: float, low: float, high: float, fill: str, stroke: str = "none") -> str:
        """A rectangle from a low to a high value."""
        top, tall = self.y(high), self.y(low) - self.y(high)
        line = f' stroke="{stroke}" stroke-dasharray="3 2"' if stroke != "none" else ""
        return f'<rect x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{tall:.1f}" fill="{fill}"{line}/>'

    def whisker(self, x: float, low: float, high: float) -> list[str]:
        """An interval as a whisker."""
        if not (math.isfinite(low) and math.isfinite(high)):
            return []
        a, b = self.y(low), self.y(high)
        way = f"M{x:.1f} {a:.1f}V{b:.1f}m-3 0h6M{x - 3:.1f} {a:.1f}h6"
        rim = f'<path d="{way}" stroke="var(--paper)" fill="none" stroke-width="3.5"/>'  # visible on any bar
        return [rim, f'<path d="{way}" stroke="var(--ink)" fill="none" stroke-width="1.4"/>']

    def grid(self, *, percent: bool, counts: bool = False) -> list[str]:
        """Grid lines and numbers of the axis."""
        parts = [_text(4, 11, self.title, "start")] if self.title else []
        step = max(_tick((self.high - self.low) / 4), 1.0 if counts else 0.0)
        value = math.ceil(self.low / step) * step
        while value <= self.high + 1e-9:
            y = self.y(value)
            last = value + step > self.high + 1e-9
            label = f"{100 * value:.0f}{' %' if last else ''}" if percent else f"{value:.3g}"
            parts.append(f'<path d="M{self.left} {y:.1f}h{self.width:.1f}" stroke="var(--line)"/>')
            parts.append(_text(self.left - 6, y + 4, label, "end"))
            value += step
        return parts

    def svg(self, title: str, told: str, parts: Sequence[str]) -> str:
        """The complete SVG."""
        return _svg(*self.whole, title, told, parts)


def _tick(rough: float) -> float:
    """A round step size near the given one."""
    power = 10.0 ** math.floor(math.log10(rough))
    return power * min((1, 2, 2.5, 5, 10), key=lambda m: abs(m * power - rough))


def _text(x: float, y: float, words: str, anchor: str, fill: str = "var(--soft)") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{escape(words)}</text>'


def _short(words: str, n: int) -> str:
    return words if len(words) <= n else words[: n - 1] + "…"


def _told(title: str, series: Sequence[Series]) -> str:
    """The text description of the chart."""
    told = []
    for one in series:
        values = ", ".join(f"{p.label}: {p.value:.3g}" for p in one.points if math.isfinite(p.value))
        told.append(f"{one.name} {values}".strip())
    return f"{title}. " + "; ".join(told)


HATCH = (
    '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path d="M0 0V5" stroke="var(--paper)" stroke-width="2"/></pattern></defs>'
)


def _svg(width: float, height: float, title: str, told: str, parts: Sequence[str]) -> str:
    hatch = HATCH if any("url(#hatch)" in part for part in parts) else ""
    wide = width > MAX_WIDTH
    room = f"max-width:{width * 1.35:.0f}px" + (f";min-width:{width * 0.9:.0f}px" if wide else "")
    drawn = (
        f'<svg class="chart" viewBox="0 0 {width:.0f} {height:.0f}" style="{room}" '
        f'font-size="{SIZE}" role="img" aria-label="{escape(told)}">'
        f"<title>{escape(title)}</title>{hatch}{''.join(parts)}</svg>"
    )
    return f'<div class="wide">{drawn}</div>' if wide else drawn
