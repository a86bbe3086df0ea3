"""Sections of the report on attention and on masking it, with the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from recap.evaluation.statistics import Interval
from recap_apps import pages
from recap_apps.pages import table
from recap_research import charts, published
from recap_research.charts import Point, Series
from recap_research.report.figures import figure, source_of
from recap_research.report.files import Analysis

ROI_TITLES = {
    "frame": "present view",
    "retrieved_frame_0": "first retrieved frame",
    "retrieved_frame_1": "last retrieved frame",
    "t_block": "block now",
    "t_block_next": "block at the chunk's end",
    "predicted_end": "predicted end",
}
SHOWN = tuple(published.ROI_PEAKS)


def ratio_name(key: str) -> str:
    """The name of a ratio such as `frame>t_block`."""
    slot, _, region = key.partition(">")
    return f"{ROI_TITLES.get(slot, slot)} on {ROI_TITLES.get(region, region)}"


def attention_part(analysis: Analysis, number: int) -> str:
    """Ratios by layer, attention by slot, peaks next to the paper's, and overlays."""
    body = analysis.body
    roi: Mapping[str, Any] = body["roi"]
    keys = [key for key in SHOWN if key in roi]
    n_layers = len(next(iter(body["mass"].values())))
    layers = [str(i) for i in range(n_layers)]
    html: list[str] = []
    for title, some in (
        ("Intake: block now, and at the chunk's end", [k for k in keys if not k.endswith("predicted_end")]),
        ("Commit: the predicted end", [k for k in keys if k.endswith("predicted_end")]),
    ):
        if not some:
            continue
        series = [
            Series(
                ratio_name(key),
                tuple(
                    Point(layer, *(_number(roi[key][part][i]) for part in ("layers", "low", "high")))
                    for i, layer in enumerate(layers)
                ),
            )
            for key in some
        ]
        drawn = charts.lines(title, series, x_title="layer", y_title="ratio", percent=False, reference=1.0)
        caption = (
            f"{title}. Attention of the action slot on a region, over what even attention would give it (the "
            f"paper's ROI ratio; dashed: 1, even). {body['episodes']} episodes; bands: 95 %, a bootstrap "
            "over them."
        )
        html.append(figure(drawn, caption, source_of(analysis)))
    html = [f'<div class="pair">{"".join(html)}</div>']
    html.append(_peaks(body, keys, number))
    mass = {name: [sum(heads) / len(heads) for heads in rows] for name, rows in body["mass"].items()}
    names = [ROI_TITLES.get(name, name.replace("_", " ")) for name in mass]
    drawn = charts.heat(
        "Share of attention by slot and layer", names, layers, list(mass.values()), x_title="layer"
    )
    caption = "Share of the action slot's attention by slot and layer, mean over heads."
    html.append(figure(drawn, caption, source_of(analysis)))
    html.append(_by_head(body["mass"], layers))
    if body.get("overlap"):
        told = "; ".join(
            f"{' and '.join(ROI_TITLES.get(one, one) for one in pair.split('&'))}: {share:.2f}"
            for pair, share in body["overlap"].items()
        )
        html.append(
            f'<p class="note">How much the regions share (1: they are the same): {escape(told)}. Where they '
            "coincide, looking at one cannot be told from looking at the other.</p>"
        )
    html += [_picture(analysis, name) for name in body.get("overlays", [])]
    return "".join(html)


def _by_head(mass: Mapping[str, Any], layers: Sequence[str]) -> str:
    """The attention of every head, in a collapsed section."""
    panels = []
    for name, rows in mass.items():
        heads = [f"head {i}" for i in range(len(rows[0]))]
        title = ROI_TITLES.get(name, name.replace("_", " "))
        columns = [[row[i] for row in rows] for i in range(len(heads))]
        drawn = charts.heat(f"{title}, by head", heads, layers, columns, x_title="layer")
        panels.append(f"<div><h3>{escape(title)}</h3>{drawn}</div>")
    inside = f'<div class="pair">{"".join(panels)}</div>'
    return f'<details class="from"><summary>For every head</summary>{inside}</details>'


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _peaks(body: Mapping[str, Any], keys: Sequence[str], number: int) -> str:
    rows = []
    n_layers = len(next(iter(body["mass"].values())))
    for key in keys:
        peak = body["roi"][key]["peak"]
        layer, ratio = published.ROI_PEAKS[key]
        told = ["–", "–", "–"]
        if peak is not None:
            interval = f"{peak['ratio']:.2f} [{peak['low']:.2f}, {peak['high']:.2f}]"
            told = [f"{peak['layer']} of {n_layers}", interval, "yes" if peak["clear"] else "no"]
        rows.append([ratio_name(key), *told, f"{layer} of 28", f"{ratio:g}"])
    for axis, peak in body.get("axes", {}).items():
        if peak is not None:
            interval = f"{peak['ratio']:.2f} [{peak['low']:.2f}, {peak['high']:.2f}]"
            clear = "yes" if peak["clear"] else "no"
            rows.append(
                [f"{axis}, mean of its two", f"{peak['layer']} of {n_layers}", interval, clear, "–", "–"]
            )
    head = [
        "action slot looks at",
        "peak layer",
        "ratio [95 %]",
        "stands out",
        "paper: layer",
        "paper: ratio",
    ]
    caption = f"Layers, from 0, at which attention peaks: found, not assumed. Paper: {published.ROI_WHERE}"
    return table(head, rows, caption=caption, name=f"attention-{number}")


def _picture(analysis: Analysis, name: str) -> str:
    file = analysis.file(name)
    if not file.exists():
        return ""
    words = f"Attention along a rollout ({file.stem.replace('_', ' ')}), red where it is above the mean"
    shown = f'<img src="{pages.data_uri(file)}" alt="{escape(words)}">'
    return figure(shown, words + ".", source_of(analysis))


def masking_part(analysis: Analysis, number: int) -> str:
    """Results by condition and subset, controls marked, with the paper's numbers."""
    body = analysis.body
    rows: list[list[str]] = []
    marks: list[str] = []
    points: dict[str, list[Point]] = {"former successes": [], "former failures": []}
    for row in body["rows"]:
        cells = []
        for subset in ("successes", "failures"):
            rate = row[subset]
            if not rate["n"]:
                cells.append("–")
                continue
            interval = Interval(rate["low"], rate["high"]).in_per_cent()
            cells.append(f"{100 * rate['rate']:.3g} % {interval}\n{rate['successes']}/{rate['n']}")
            label = f"{row['name']}{' (control)' if row['control'] else ''}"
            points[f"former {subset}"].append(Point(label, rate["rate"], rate["low"], rate["high"]))
        rows.append([row["name"], "control" if row["control"] else "", *cells])
        marks.append("")
    for name, column, place in (("L10", 0, 1), ("L15", 1, 1), ("L10", 2, 2)):
        values = [v[column] for v in published.MASKING.values()]
        cells = ["", "–", "–"]
        cells[place] = f"{sum(values) / len(values):.3g} %"
        rows.append([f"paper: {name} blocked, mean over angles\n{published.MASKING_WHERE}", *cells])
        marks.append("paper")
    head = [f"success > {body['threshold']} of", "", "former successes", "former failures"]
    there = "; ".join(
        f"{subset}: {sum(counts.values())} to choose from" for subset, counts in body["available"].items()
    )
    caption = f"The same starts again with the action slot's attention blocked. {there.capitalize()}."
    series = [Series(name, tuple(found)) for name, found in points.items() if found]
    drawn = charts.dots("Success of the same starts under each condition", series)
    told = (
        "Success of the same starts under each condition, per cent; controls show what any disturbance does. "
        "A mask blocks what is attended to: a residual policy still adds its output to what was retrieved."
    )
    return figure(drawn, told, source_of(analysis)) + table(
        head, rows, caption=caption, name=f"masking-{number}", marks=marks
    )
