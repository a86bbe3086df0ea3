"""The evidence page: a summary, policies beside replay at their settings, and the report of every run.

python research/benchmarks/controls_page.py           # docs/evidence.html, from what controls.py kept
python research/benchmarks/controls_page.py --check   # fails where it is not what the files say
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from controls import CONTROLS, ROWS, restore

from recap.errors import InputError
from recap.run_directory import write_whole
from recap_apps.pages import table
from recap_research import charts
from recap_research.charts import Point
from recap_research.report.figures import figure
from recap_research.report.page import build_report

PAGE = CONTROLS.parent.parent / "evidence.html"
SUMMARY = ROWS.with_name("controls_summary.json")
LEAD = (
    "Each policy is compared with replay at its settings: the same pool, poses, retrieval, "
    "sub-trajectories and replanning interval, no network (recap eval replay --settings-of POLICY). "
    "Plain replay retrieves whole demonstrations only and executes all eight actions before it retrieves "
    "again. Of about a hundred intervals, about five exclude 0 by chance."
)
CAPTION = (
    "Per cent of unseen goals above 0.85 / 0.95 (two arms: of successful scenes), and differences in "
    "percentage points over the same starts, with 95 % intervals"
)
FRAMES = tuple(f"{how}, 900 of the T" for how in ("world's frame", "block's frame", "contact"))
SIZES = ("pusht-nano", "pusht-small")


def build() -> str:
    """The complete page."""
    with TemporaryDirectory() as folder:
        restore(Path(folder))
        html = build_report(Path(folder), title="Evidence")
    rows = json.loads(CONTROLS.read_text("utf-8"))["rows"]
    sections = {"Summary": summary(), "Policy against replay with its settings": comparisons(rows)}
    links, parts = "", ""
    for number, (title, inside) in enumerate(sections.items()):
        links += f'<li><a href="#c{number}">{title}</a></li>'
        heading = f'<h2 id="c{number}">{title}</h2>'
        parts += f'<section aria-labelledby="c{number}">{heading}{inside}</section>'
    html = html.replace("<ol>", f"<ol>{links}", 1)
    return html.replace('<main id="main">', f'<main id="main">{parts}', 1)


def summary() -> str:
    """Questions and answers."""
    rows = json.loads(SUMMARY.read_text("utf-8"))
    head = ["question", "figure", "control at equal settings", "verdict"]
    made = table(head, rows, caption="PushT; claim by claim in docs/results/measured", name="summary")
    # Sentences wrap and are aligned to the left.
    style = "white-space:normal;text-align:left;max-width:none"
    made = made.replace("<table ", '<table style="width:100%" ')
    return made.replace("<td>", f'<td style="{style}">').replace(
        '<th scope="col">', f'<th scope="col" style="{style}">'
    )


def comparisons(rows: Sequence[Mapping[str, Any]]) -> str:
    """The two main comparisons as charts, and all as a table."""
    body = []
    for row in rows:
        cells = row["thresholds"].values()
        rates = [" / ".join(per_cent(c.get(side)) for c in cells) for side in ("plain", "same", "policy")]
        gains = [cell["over_same"]["text"] for cell in cells]
        name = f"{row['what']}\n{row['part']}"
        body.append([name, str(row["trainings"]), *rates, *gains, *["–"] * (2 - len(gains))])
    head = ["policy", "trainings", "replay, plain", "replay, same settings", "policy"]
    told = table([*head, "policy − same, > 0.85", "> 0.95"], body, caption=CAPTION, name="controls")
    frames = chart("900 demonstrations of the T", [row for row in rows if row["part"] in FRAMES])
    sizes = chart("by size of the pool", [row for row in rows if row["part"] in SIZES])
    return f"<p>{escape(LEAD)}</p>{frames}{sizes}{told}"


def chart(what: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A chart of differences with their intervals."""
    title = f"Policy less replay at its settings: {what}"
    points = [point for row in rows for point in points_of(row)]
    return figure(charts.differences(title, points), f"{title}, with 95 % intervals", "")


def points_of(row: Mapping[str, Any]) -> Iterable[Point]:
    """One point per threshold."""
    name = row["what"] if row["part"] in FRAMES else f"{row['part']}, {row['what']}"
    for threshold, cell in row["thresholds"].items():
        gain = cell["over_same"]
        yield Point(f"{name}, > {threshold}", gain["difference"], *gain["interval"])


def per_cent(cell: Mapping[str, Any] | None) -> str:
    """The rate over all trainings in per cent."""
    if cell is None:
        return "–"
    return f"{100 * sum(cell['successes']) / len(cell['successes']) / cell['n']:.1f}"


def main() -> None:
    """Write the page, or compare it with the existing one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where it differs")
    options = parser.parse_args()
    html = build()
    if not options.check:
        write_whole(PAGE, html)
        print(f"{PAGE}: {len(html) / 1e6:.1f} MB")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != html:
        raise InputError(
            f"{PAGE.name} is not what the results say: run python research/benchmarks/controls_page.py"
        )


if __name__ == "__main__":
    from recap.cli.one_line import run_script

    run_script(main)
