"""Sections of the report on failures and on `recap check`, with the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from recap_apps.pages import table
from recap_research import charts, published
from recap_research.charts import Point, Series
from recap_research.report.attention import ratio_name
from recap_research.report.figures import figure, provenance, source_of
from recap_research.report.files import Analysis


def failures_part(analysis: Analysis, number: int) -> str:
    """Clusters, retrieval, anchoring and commit, and the gain of an oracle match."""
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
    caption = f"{name.capitalize()} at layer {found['layer']} ({ratio_name(found['ratio'])}). Paper: {where}"
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


def check_part(analysis: Analysis, number: int) -> str:
    """Errors by chunk length, the verdict, and the worst pairs."""
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
    told = f"The check {body['verdict']}. Recommended chunk length: {body['chunk_size']}."
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
        head, cells, caption="RMS by chunk length, in units of the actions", name=f"check-{number}"
    )
    return f"<p>{escape(told)}</p>{shown}{numbers}{worst}"
