"""One page from a folder of evaluations and analyses; made from files only, read without a network."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from recap.evaluation.report_analysis import attention_part, failures_part, masking_part, premise_part
from recap.evaluation.report_files import Material, Run, media_of, read_material
from recap.evaluation.report_success import figure, progression_part, provenance, success_part, sweep_part
from recap.evaluation.summary import INTERVAL
from recap.pages import data_uri, document

MAX_FILE_BYTES = 2 * 1024**2  # of one picture or video
MAX_MEDIA_BYTES = 24 * 1024**2  # of all together; in the page they are a third larger
MAX_SHOWN = 6  # a run


def build_report(folder: Path) -> str:
    """The page."""
    material = read_material(folder)
    sections: list[tuple[str, str]] = []
    for i, part in enumerate(material.parts):
        sections.append((part.title, success_part(part, i)))
    if material.progression is not None:
        sections.append((material.progression.title, progression_part(material.progression)))
    for i, sweep in enumerate(material.of("sweep")):
        sections.append((str(sweep.body["title"]), sweep_part(sweep, material, i)))
    for title, kind, make in (
        ("What the action slot looks at", "attention", attention_part),
        ("What blocking it does", "masking", masking_part),
        ("How it fails", "failures", failures_part),
        ("Is the pool worth retrieving from", "premise", premise_part),
    ):
        found = material.of(kind)
        for i, analysis in enumerate(found):
            label = f": {analysis.body.get('label', analysis.path.parent.name)}" if len(found) > 1 else ""
            sections.append((title + label, make(analysis, i)))
    sections.append(("Episodes", _gallery(material.runs.values())))
    return document(material.title, _body(material, [s for s in sections if s[1]]), STYLE)


def _body(material: Material, sections: list[tuple[str, str]]) -> str:
    links = "".join(f'<li><a href="#s{i}">{escape(title)}</a></li>' for i, (title, _) in enumerate(sections))
    parts = "".join(
        f'<section aria-labelledby="s{i}"><h2 id="s{i}">{escape(title)}</h2>{inside}</section>'
        for i, (title, inside) in enumerate(sections)
    )
    n_episodes = sum(len(run.results) for run in material.runs.values())
    told = f"Runs: {len(material.runs)}; episodes: {n_episodes}; analyses: {len(material.analyses)}."
    of_tasks = all(run.spec.tasks for run in material.runs.values()) and material.runs
    intervals = INTERVAL.replace("angle", "task") if of_tasks else INTERVAL
    lead = f'<p class="lead">{escape(material.lead)}</p>' if material.lead else ""
    return (
        f'<a class="skip" href="#main">Skip to the results</a><header><h1>{escape(material.title)}</h1>{lead}'
        f'<p class="note">{told} Intervals {escape(intervals)}. Every number is read from the files of the '
        'runs; under each figure is where it comes from.</p></header><nav aria-label="Contents"><ol>'
        f'{links}</ol></nav><main id="main">{parts}</main>'
    )


def _gallery(runs: Iterable[Run]) -> str:
    """Strips and videos, failures first, until the page would become too large."""
    left, html, n_left_out = MAX_MEDIA_BYTES, [], 0
    for run in runs:
        files = media_of(run)
        stems = list(dict.fromkeys(file.stem for file in files))
        shown = []
        for stem in stems[:MAX_SHOWN]:
            inside = ""
            for file in sorted((f for f in files if f.stem == stem), key=lambda f: f.suffix != ".png"):
                size = file.stat().st_size
                if size > min(MAX_FILE_BYTES, left):
                    n_left_out += 1
                    continue
                left -= size
                inside += _media(file, stem)
            if inside:
                shown.append(figure(inside, _words(stem)))
        n_left_out += sum(file.stem in stems[MAX_SHOWN:] for file in files)
        if shown:
            label = f"<h3>{escape(run.label)}</h3>"
            html.append(f'{label}<div class="gallery">{"".join(shown)}</div>{provenance([run])}')
    if html and n_left_out:
        html.append(
            f'<p class="note">Left out to keep the page small: {n_left_out} files, beside the runs.</p>'
        )
    return "".join(html)


def _words(stem: str) -> str:
    """`+45_48_failure` in words."""
    angle, _, rest = stem.partition("_")
    seed, _, outcome = rest.partition("_")
    return f"Goal {angle}°, seed {seed}: {outcome}" if outcome else stem


def _media(file: Path, stem: str) -> str:
    words = escape(_words(stem))
    if file.suffix == ".mp4":
        return (
            f'<video controls muted playsinline preload="metadata" aria-label="{words}" '
            f'src="{data_uri(file)}"></video>'
        )
    return f'<img src="{data_uri(file)}" alt="{words}, from its start to its end">'


STYLE = """
body { max-width: 68rem; }
h2 { font-size: 1.35rem; border-top: 1px solid var(--line); padding-top: 1.5rem; margin-top: 3rem; }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .5rem; }
h4 { font-size: .92rem; margin: 0 0 .2rem; font-weight: 600; overflow-wrap: anywhere; }
nav ol { columns: 18rem; padding-left: 1.3rem; }
nav li { break-inside: avoid; margin: 0; line-height: 1.8; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--paper); padding: .3rem .6rem; }
.wide { margin: .9rem 0; border-radius: 6px; }
.wide:focus-visible, a:focus-visible, summary:focus-visible { outline: 2px solid var(--c1);
  outline-offset: 2px; }
.caption { color: var(--soft); font-size: .9rem; margin: 1.2rem 0 .3rem; }
.caption + .wide { margin-top: 0; }
td { vertical-align: baseline; }
small { color: var(--soft); font-size: .85em; }
thead th { white-space: nowrap; }
th[scope=row] { text-align: left; color: var(--ink); font-weight: 500; min-width: 9rem; max-width: 17rem;
  position: sticky; left: 0; background: var(--paper); vertical-align: baseline; }
thead th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
tr.paper td, tr.paper th[scope=row] { color: var(--soft); font-style: italic; }
figure { margin: 1rem 0; }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .4rem; max-width: 48rem; }
.panels, .gallery { display: grid; gap: 1.2rem; }
.panels { align-items: end; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17.5rem), 1fr)); }
.gallery { grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); }
.gallery figure, .pair figure { margin: 0; }
.pair { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.pair { align-items: start; }
.chart { display: block; width: 100%; height: auto; font-family: inherit; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: .4rem 0;
  font-size: .88rem; }
.legend svg { margin-right: .4em; vertical-align: middle; }
.legend li { margin: 0; }
.legend span { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
.from { font-size: .86rem; color: var(--soft); margin: .3rem 0 1rem; }
.from summary { cursor: pointer; width: max-content; max-width: 100%; }
.from p { margin: .6rem 0 .1rem; }
.from dl { margin: 0; }
.from dd { overflow-wrap: anywhere; }
@media (max-width: 34rem) {
  body { padding: 1.2rem .9rem 3rem; }
  .from dl { grid-template-columns: 1fr; gap: 0; }
  th[scope=row] { min-width: 7.5rem; max-width: 9rem; }
}
@media print { .from[open], .from { color: inherit; } nav { display: none; } }
"""
