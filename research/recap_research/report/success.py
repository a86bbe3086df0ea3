"""Tables and charts of success: methods, pairs, a growing pool, sweeps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from recap.errors import InputError
from recap.evaluation.runner import WITHOUT_POOL
from recap.evaluation.settings import differences, settings_text
from recap.evaluation.spec import threshold_key
from recap.evaluation.summary import Rate, compare
from recap.evaluation.worlds import SUCCESS
from recap_apps.pages import table
from recap_research import charts
from recap_research.charts import Point, Series
from recap_research.published import CAUTION, PROGRESSION
from recap_research.report.figures import figure, provenance
from recap_research.report.files import Analysis, Material, Part, Progression, Row, Run, sweep_run
from recap_research.training_seeds import Gain, gain_of

GROUPS = ("seen", "unseen", "all")
PAPER_THRESHOLD = "0.85"  # the success threshold of the paper


def thresholds_of(runs: Iterable[Run]) -> list[str]:
    """All thresholds of the runs, in ascending order."""
    return sorted({threshold_key(t) for run in runs for t in run.spec.thresholds}, key=float)


def tasks_of(runs: Iterable[Run]) -> list[str]:
    """All goal angles in ascending order, then all other tasks."""
    keys = {key: run.spec.env for run in runs for key in run.spec.task_keys}
    return [*sorted((k for k, env in keys.items() if env == "pusht"), key=float)] + [
        key for key, env in keys.items() if env != "pusht"
    ]


def seen_by(runs: Iterable[Run]) -> frozenset[str]:
    """The goals and tasks seen in training."""
    return frozenset().union(*(run.spec.seen_keys for run in runs))


def goal_text(key: str) -> str:
    """A goal angle with its sign, or a task as words."""
    return key.replace("_", " ") if key[0].isalpha() else f"{key}°"


def above(threshold: str) -> str:
    """The text of a threshold; empty if success has only one."""
    return "" if threshold == threshold_key(SUCCESS) else f" above {threshold}"


def rate_text(rate: Rate | None) -> str:
    """Per cent, and the counts below."""
    if rate is None or not rate.n:
        return "–"
    return f"{100 * rate.value:.0f} %\n{rate.k}/{rate.n}"


def group_text(rate: Rate | None) -> str:
    """Per cent with interval and counts."""
    if rate is None or not rate.n:
        return "–"
    return f"{100 * rate.value:.3g} % {rate.interval.in_per_cent()}\n{rate.k}/{rate.n}"


def _rate(run: Run, name: str, threshold: str) -> Rate | None:
    group = run.group(name)
    return None if group is None else group.rates.get(threshold)


def success_table(part: Part, threshold: str, name: str) -> str:
    """Methods by task, with the paper's rows below."""
    tasks = tasks_of(part.runs)
    groups = [g for g in GROUPS[:2] if any(row.rate(g, threshold) for row in part.rows)]
    rows: list[list[str]] = []
    marks: list[str] = []
    for row in part.rows:
        cells = [rate_text(row.rate(task, threshold)) for task in tasks]
        told = [group_text(row.rate(g, threshold)) + _by_training(row, g, threshold) for g in groups]
        trained = f"\n{len(row.runs)} trainings" if len(row.runs) > 1 else ""
        rows.append([row.label + trained, *told, *cells])
        marks.append("")
        if row.paper is not None and threshold == PAPER_THRESHOLD:
            paper = row.paper
            means = {"seen": paper.seen, "unseen": paper.unseen}
            numbers = [means[g] for g in groups] + [paper.angles.get(task) for task in tasks]
            cells = ["–" if value is None else f"{value:.3g} %" for value in numbers]
            rows.append([f"paper: {paper.name}\n{paper.where}", *cells])
            marks.append("paper")
    head = ["success", *groups, *map(goal_text, tasks)]
    what = f"episodes whose coverage was ever{above(threshold)}" if above(threshold) else "tasks done"
    caption = f"{part.title}: {what}, with 95 % intervals in per cent"
    if _trained_often(part):
        caption += "; several trainings are summed and listed below; intervals resample them too"
    return table(head, rows, caption=caption, name=name, marks=marks)


def _trained_often(part: Part) -> bool:
    return any(len(row.runs) > 1 for row in part.rows)


def _by_training(row: Row, group: str, threshold: str) -> str:
    """Per cent of each training, if there are several."""
    rates = [_rate(run, group, threshold) for run in row.runs]
    if len(rates) < 2:
        return ""
    return "\n" + ", ".join("–" if not rate or not rate.n else f"{100 * rate.value:.1f}" for rate in rates)


def success_panels(part: Part, threshold: str) -> str:
    """One panel per method, with bars by task."""
    tasks = tasks_of(part.runs)
    panels = []
    for i, row in enumerate(part.rows):
        paper = None
        if row.paper is not None and row.paper.angles and threshold == PAPER_THRESHOLD:
            paper = [row.paper.angles.get(task, math.nan) / 100 for task in tasks]
        drawn = charts.bars(
            f"{row.label}, success{above(threshold)} by goal",
            [point(row.rate(task, threshold), goal_text(task)) for task in tasks],
            paper=paper,
            seen=[task in seen_by(part.runs) for task in tasks],
            tint=i,
        )
        panels.append(f"<div><h4>{escape(row.label)}</h4>{drawn}</div>")
    return f'<div class="panels">{"".join(panels)}</div>'


def point(rate: Rate | None, label: str) -> Point:
    """A rate as a point of a chart."""
    if rate is None or not rate.n:
        return Point(label, math.nan)
    return Point(label, rate.value, rate.interval.low, rate.interval.high)


def success_part(part: Part, number: int) -> str:
    """The settings in which rows differ, then tables, panels and paired differences of one part."""
    html = [f"<p>{escape(part.text)}</p>" if part.text else "", settings_part(part, number)]
    for threshold in thresholds_of(part.runs):
        html.append(f"<h3>Success{above(threshold)}</h3>")
        html.append(success_table(part, threshold, f"success-{number}-{threshold}"))
        kind = part.runs[0].unit
        drawn = ", also over trainings if there are several" if _trained_often(part) else ""
        hint = f"Per cent by {kind} with 95 % Wilson intervals{drawn}; hatched: {kind}s used in training."
        if threshold == PAPER_THRESHOLD and any(run.paper and run.paper.angles for run in part.runs):
            hint += f" Diamonds: the paper. {CAUTION}"
        html.append(figure(success_panels(part, threshold), hint, provenance(part.runs)))
        if part.reference is not None:
            html.append(pairs(part, threshold, f"pairs-{number}-{threshold}"))
    return "".join(html) + _errors(part.runs)


def settings_part(part: Part, number: int) -> str:
    """Every setting in which the rows differ, shown above the results."""
    rows = [row for row in part.rows if row.runs[0].spec.agent.policy not in WITHOUT_POOL]
    if len(rows) < 2:
        return ""
    found = differences(*((row.runs[0].spec, row.runs[0].settings) for row in rows))
    unknown = ", ".join(row.label for row in rows if row.runs[0].settings is None)
    note = f"Runs whose agent settings were not recorded: {unknown}." if unknown else ""
    told = {key: values for key, values in found.settings.items() if key not in ("agent", "settings_of")}
    if not told:
        note = note or "The rows differ only in the agent: pool, poses, retrieval, replanning interval agree."
    html = f'<p class="note">{escape(note)}</p>' if note else ""
    if not told:
        return html
    body = [[key, *map(settings_text, values)] for key, values in told.items()]
    caption = f"{part.title}: settings in which its rows differ"
    return html + table(
        ["setting", *(row.label for row in rows)], body, caption=caption, name=f"settings-{number}"
    )


def _errors(runs: Sequence[Run]) -> str:
    guilty = [f"{run.label}: {run.summary.n_errors}" for run in runs if run.summary.n_errors]
    told = f"Episodes that ended in an error are excluded from rates: {'; '.join(guilty)}."
    return f'<p class="note">{escape(told)}</p>' if guilty else ""


def pairs(part: Part, threshold: str, name: str) -> str:
    """The difference of every method from the reference, on the starts that both have."""
    reference = part.reference
    assert reference is not None
    rows, points = [], []
    for row in part.rows:
        for group, found, counts in _differences(row, reference, threshold) if row is not reference else ():
            low, high = found.interval
            rows.append([f"{row.label}, {group}", str(found), *counts])
            label = row.label if len(row.label) <= 36 else "…" + row.label[-35:]  # paths differ at their ends
            points.append(Point(f"{label}, {group}", found.difference, low, high))
    if not rows:
        return ""
    title = f"Paired with {reference.label}, success{above(threshold)}"
    head = ["minus the reference", "points [95 %]", "pairs", "both", "only reference", "only this", "neither"]
    drawn = charts.differences(title, points)
    over = "trainings and start seeds" if _trained_often(part) else "start seeds"
    caption = f"{title}: the same starts, differences in percentage points; intervals are over {over}."
    counted = f"{title}: number of episode pairs in which both succeed, only one does, or neither"
    if all(row[2] == "–" for row in rows):
        head, rows, counted = head[:2], [row[:2] for row in rows], title
    elif _trained_often(part):
        counted += "; there are no pairs between several trainings"
    others = (run for row in part.rows if row is not reference for run in row.runs)
    source = provenance([*reference.runs, *others])
    return figure(drawn, caption, source) + table(head, rows, caption=counted, name=name)


def _differences(row: Row, reference: Row, threshold: str) -> Iterable[tuple[str, Gain, list[str]]]:
    """For each group: the difference, and the counts n, both, only reference, only this, neither.

    Nothing if the runs share no trial or no threshold.
    """
    groups = [g for g in GROUPS if row.rate(g, threshold) and reference.rate(g, threshold)]
    groups = groups[:1] if len(groups) == 2 else groups  # with two groups, the second equals the first
    if len(row.runs) > 1 or len(reference.runs) > 1:
        for group in groups:
            gain = gain_of(row.rolled, reference.rolled, group, threshold)
            if gain is not None:
                yield group, gain, ["–"] * 5
        return
    try:
        found = compare(reference.rolled[0], row.rolled[0]).thresholds[threshold]
    except (InputError, KeyError):
        return
    for group in groups:
        if group in found and found[group].n:
            pair = found[group]
            counts = (pair.n, pair.both, pair.only_a, pair.only_b, pair.neither)
            yield group, Gain(pair.difference, pair.interval), [str(count) for count in counts]


def progression_part(grown: Progression, number: int) -> str:
    """No retrieval first, then a panel per snapshot: the previous success grey, the gain in colour."""
    runs = [grown.first, *grown.snapshots]
    html = [f"<p>{escape(grown.text)}</p>" if grown.text else ""]
    tasks = tasks_of(runs)
    for threshold in thresholds_of(runs):
        panels = []
        values = [[point(_rate(run, task, threshold), goal_text(task)) for task in tasks] for run in runs]
        for i, run in enumerate(runs):
            before = [p.value for p in values[i - 1]] if i else None
            drawn = charts.bars(
                f"{run.label}, success{above(threshold)} by goal",
                values[i],
                before=before,
                ahead=None if i else [p.value for p in values[-1]],
                seen=[task in seen_by(runs) for task in tasks] if i == 0 else None,
            )
            panels.append(f"<div><h4>{escape(run.label)}</h4>{drawn}</div>")
        caption = (
            f"Success{above(threshold)} as the pool grows, weights unchanged. Grey: the panel before; in "
            "colour what was gained, dashed what was lost. In the first panel the gap to the last is shaded."
        )
        if threshold == PAPER_THRESHOLD:
            caption += f" The paper, {PROGRESSION}."
        html.append(f"<h3>Success{above(threshold)}</h3>")
        html.append(figure(f'<div class="panels">{"".join(panels)}</div>', caption, provenance(runs)))
        part = Part(grown.title, tuple(Row(run.label, (run,)) for run in runs))
        html.append(success_table(part, threshold, f"progression-{number}-{threshold}"))
    return "".join(html)


def sweep_part(sweep: Analysis, material: Material, number: int) -> str:
    """The success at several values of one setting."""
    body = sweep.body
    named = [(point, material.runs.get(sweep_run(sweep, material.folder, point))) for point in body["points"]]
    known = [(point, run) for point, run in named if run is not None]
    if not known:
        return ""
    runs = [run for _, run in known]
    labels = [str(p["value"]) for p, _ in known]
    thresholds = thresholds_of(runs)
    series = []
    for group in ("seen", "unseen"):
        for threshold in thresholds:
            rates = [_rate(run, group, threshold) for run in runs]
            if any(rates):
                points = tuple(point(r, x) for r, x in zip(rates, labels, strict=True))
                series.append(Series(f"{group} > {threshold}", points))
    extra = sorted({key for p, _ in known for key in p} - {"value", "run"})
    for key in extra:
        values = tuple(Point(x, float(p.get(key, math.nan))) for (p, _), x in zip(known, labels, strict=True))
        series.append(Series(key, values))
    title = str(body["title"])
    drawn = charts.lines(title, series, x_title=str(body.get("x", "")))
    told = [(g, t) for t in thresholds for g in GROUPS[:2] if any(_rate(run, g, t) for run in runs)]
    head = [str(body.get("x", "value")), "run", *(f"{g} > {t}" for g, t in told), *extra]
    rows = [
        [
            x,
            run.label,
            *(group_text(_rate(run, g, t)) for g, t in told),
            *(f"{100 * p[key]:.1f} %" if key in p else "–" for key in extra),
        ]
        for x, (p, run) in zip(labels, known, strict=True)
    ]
    source = provenance(runs, [("command", str(body["command"]))] if "command" in body else [])
    caption = f"{title}. Bands are 95 % intervals."
    note = f"<p>{escape(str(body.get('text', '')))}</p>" if body.get("text") else ""
    return note + figure(drawn, caption, source) + table(head, rows, caption=title, name=f"sweep-{number}")
