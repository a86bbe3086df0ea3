"""The report's sections on attention, masking, failures and the premise, each beside the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from recap import charts, pages
from recap.charts import Point, Series
from recap.evaluation import published
from recap.evaluation.report_files import Analysis
from recap.evaluation.report_success import figure, provenance
from recap.pages import table

ROI_TITLES = {
    "frame": "present view",
    "retrieved_frame_0": "first retrieved frame",
    "retrieved_frame_1": "last retrieved frame",
    "t_block": "block now",
    "t_block_next": "block at the chunk's end",
    "predicted_end": "predicted end",
}
SHOWN = tuple(published.ROI_PEAKS)


def source_of(analysis: Analysis) -> str:
    """Its command and what it was made with."""
    told = [
        (key, str(analysis.body.get(key) or "not recorded"))
        for key in ("command", "seeds", "pool", "checkpoint")
    ]
    return provenance((), told)


def _ratio_name(key: str) -> str:
    slot, _, region = key.partition(">")
    return f"{ROI_TITLES.get(slot, slot)} on {ROI_TITLES.get(region, region)}"


def attention_part(analysis: Analysis, number: int) -> str:
    """Ratios by layer, attention by slot, peaks beside the paper's, and overlays."""
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
                _ratio_name(key),
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
    """The same for every head, folded away."""
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
        rows.append([_ratio_name(key), *told, f"{layer} of 28", f"{ratio:g}"])
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
    """Conditions by subset, controls marked, and the paper's."""
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
            interval = f"[{100 * rate['low']:.0f}, {100 * rate['high']:.0f}]"
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


def failures_part(analysis: Analysis, number: int) -> str:
    """Clusters, retrieval, anchoring and commit, and what an oracle would change."""
    body = analysis.body
    angles = list(body["clusters"])
    names = list(body["total"])
    counts = [(name, [body["clusters"][a][name] for a in angles]) for name in names]
    caption = (
        f"Episodes by angle: success > {body['threshold']}; failures that gained {body['engaged_from']:g} of "
        "coverage or more move the block but never complete, the others never engage."
    )
    html = [
        figure(
            charts.stacked("Behaviour by goal angle", [f"{a}°" for a in angles], counts, y_title="episodes"),
            caption,
            source_of(analysis),
        )
    ]
    ours, theirs = body["total"], published.CLUSTERS
    rows = [
        ["here", *(str(ours[name]) for name in theirs)],
        [f"paper ({published.CLUSTERS_WHERE})", *map(str, theirs.values())],
    ]
    html.append(
        table(
            ["failures", *theirs],
            rows,
            caption="Two kinds of failure",
            name=f"clusters-{number}",
            marks=["", "paper"],
        )
    )
    html.append(_retrieval(body, number))
    for name, where, paper in (
        ("anchoring", published.ANCHORING_WHERE, published.ANCHORING),
        ("commit", published.COMMIT_WHERE, published.COMMIT),
    ):
        if name in body.get("attention", {}):
            html.append(_outcomes(name, body["attention"][name], where, paper, number))
    if "oracle" in body:
        html.append(_oracle(body["oracle"], number))
    return "".join(html)


def _retrieval(body: Mapping[str, Any], number: int) -> str:
    keys = {
        "episodes": "episodes",
        "distance": "distance",
        "last_distance": "at the last look",
        "confidence": "confidence",
        "last_confidence": "at the last look",
        "unsure_looks": "looks below 0.05",
    }
    rows = [[name, *(_short(row[key]) for key in keys)] for name, row in body["retrieval"].items()]
    caption = "Retrieval by outcome: medians over episodes of each one's median look"
    return table(["outcome", *keys.values()], rows, caption=caption, name=f"retrieval-{number}")


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _outcomes(
    name: str, found: Mapping[str, Any], where: str, paper: Mapping[str, tuple[float, float]], number: int
) -> str:
    rows = []
    for angle, row in found["angles"].items():
        interval = row["interval"]
        told = "–" if row["difference"] is None else f"{row['difference']:+.2f}"
        if interval is not None:
            told += f" [{interval[0]:+.2f}, {interval[1]:+.2f}]"
        theirs = paper.get(angle)
        beside = (
            "–" if theirs is None else f"{theirs[0]:.2f} / {theirs[1]:.2f} / {theirs[1] - theirs[0]:+.2f}"
        )
        label = angle if angle == "all" else f"{angle}°"
        n = f"{row['n'][0]} / {row['n'][1]}"
        rows.append([label, n, _short(row["success"]), _short(row["failure"]), told, beside])
    head = [
        "goal",
        "episodes",
        "success",
        "failure",
        "failure − success [95 %]",
        "paper: success / failure / difference",
    ]
    caption = f"{name.capitalize()} at layer {found['layer']} ({_ratio_name(found['ratio'])}). Paper: {where}"
    return table(head, rows, caption=caption, name=f"{name}-{number}")


def _oracle(oracle: Mapping[str, Any], number: int) -> str:
    rows = []
    for name, row in oracle["clusters"].items():
        if not row["states"]:
            continue
        low, high = row["gain_interval_px"]
        rows.append(
            [
                name,
                str(row["states"]),
                f"{row['nearest_px']:.2f}",
                f"{row['other_noise_px']:.2f}",
                f"{row['oracle_px']:.2f}",
                f"{row['gain_px']:+.2f} [{low:+.2f}, {high:+.2f}]",
                f"{100 * row['harmful']:.0f} %",
                f"{100 * row['harm_avoidable']:.0f} % ({100 * row['harm_avoidable_by_noise']:.0f} %)",
            ]
        )
    head = [
        "states of",
        "n",
        "nearest match, px",
        "best of as much noise",
        "best match",
        "best match beyond noise [95 %]",
        "moves away",
        "another match would not (other noise)",
    ]
    caption = (
        "What a better retrieval would change: progress of the block over one chunk by the nearest match, "
        f"and by the best of the {oracle['n_matches']} nearest, chosen afterwards, from the same states"
    )
    return table(head, rows, caption=caption, name=f"oracle-{number}")


def premise_part(analysis: Analysis, number: int) -> str:
    """Error by chunk length, the verdict and the worst pairs."""
    body = analysis.body
    rows = body["rows"]
    curves = {
        "retrieved": "residual",
        "corrected": "corrected",
        "as paired": "paired",
        "perfect retriever": "perfect",
    }
    series = [
        Series(name, tuple(Point(str(r["horizon"]), r[key] / r["still"]) for r in rows))
        for name, key in curves.items()
    ]
    drawn = charts.lines(
        "Error against holding still",
        series,
        x_title="chunk length, actions",
        y_title="error / holding still",
        percent=False,
        reference=1.0,
    )
    caption = (
        f"{body['n_target']} demonstrations of {body['target']} against {body['n_pool']} of {body['pool']}: "
        "error of the next actions over that of holding still (dashed)."
    )
    head = ["chunk", "still", *curves, "corrected / still [95 %]"]
    cells = [
        [
            str(r["horizon"]),
            *(f"{r[key]:.4g}" for key in ("still", *curves.values())),
            f"{r['corrected_ratio']:.2f} [{r['low']:.2f}, {r['high']:.2f}]",
        ]
        for r in rows
    ]
    bad = [pair for pair in body["pairs"] if pair["misaligned"]][:20]
    listed = "".join(f"<li><code>{escape(p['episode_id'])}</code>: ratio {p['ratio']:.2f}</li>" for p in bad)
    told = f"The premise {body['verdict']}. Recommended chunk length: {body['chunk_size']}."
    versions = body.get("versions", ("not recorded", "not recorded"))
    source = provenance(
        (),
        [
            ("command", str(body.get("command", "not recorded"))),
            ("target", f"{body['target']}, version {versions[0]}, {body['n_target']} demonstrations"),
            ("pool", f"{body['pool']}, version {versions[1]}, {body['n_pool']} demonstrations"),
            ("checkpoint", "none: nothing is trained, and no dice are thrown"),
        ],
    )
    worst = f"<p>Pairs that are probably mis-aligned:</p><ul>{listed}</ul>" if listed else ""
    shown = figure(drawn, caption, source)
    numbers = table(
        head, cells, caption="RMS by chunk length, in units of the actions", name=f"premise-{number}"
    )
    return f"<p>{escape(told)}</p>{shown}{numbers}{worst}"
