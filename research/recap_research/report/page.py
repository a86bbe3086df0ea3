"""The report page from a folder of evaluations and analyses. It is one file and needs no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import zip_longest
from pathlib import Path

from recap.evaluation.summary import INTERVAL
from recap_apps.pages import data_uri, document
from recap_research.report.attention import attention_part, masking_part
from recap_research.report.failures import check_part, failures_part
from recap_research.report.figures import figure, provenance
from recap_research.report.files import Film, Material, Run, films_of, read_material
from recap_research.report.success import progression_part, success_part, sweep_part

MAX_FILM_BYTES = 2 * 1024**2  # of one video with its still image
MAX_MEDIA_BYTES = 24 * 1024**2  # of all videos; base64 makes them a third larger
MAX_SHOWN = 6  # videos per run
TERMS = "Coverage is the share of the goal area that the block covers; seen goals were used in training. "
FILMS = (
    "Recorded reruns of episodes, failures first. Left: the world. Next to it, if available: the future that "
    "the policy predicts, over the faded board, and the retrieved moment of the pool. Below each film are "
    "evenly spaced frames."
)


def build_report(*folders: Path, title: str | None = None) -> str:
    """The HTML page; several folders are shown one after another.

    Args:
        title: of the page; by default that of the first folder.
    """
    materials = [read_material(folder) for folder in folders]
    sections = _sections(materials)
    films = _gallery(run for material in materials for run in material.runs.values())
    sections.append(("Episodes on film", films))
    title = materials[0].title if title is None else title
    return document(title, _body(title, materials, [s for s in sections if s[1]]), STYLE)


def _sections(materials: Sequence[Material]) -> list[tuple[str, str]]:
    """Titles and their HTML: success first, then the analyses."""
    sections: list[tuple[str, str]] = []
    parts = [part for material in materials for part in material.parts]
    sections += [(part.title, success_part(part, i)) for i, part in enumerate(parts)]
    grown = [material.progression for material in materials if material.progression is not None]
    sections += [(one.title, progression_part(one, i)) for i, one in enumerate(grown)]
    sweeps = [(sweep, material) for material in materials for sweep in material.of("sweep")]
    sections += [(str(one.body["title"]), sweep_part(one, of, i)) for i, (one, of) in enumerate(sweeps)]
    for title, kind, make in (
        ("Attention of the action token", "attention", attention_part),
        ("Effect of masking attention", "masking", masking_part),
        ("Failures", "failures", failures_part),
        ("Is the pool worth retrieving from", "check", check_part),
    ):
        found = [analysis for material in materials for analysis in material.of(kind)]
        for i, analysis in enumerate(found):
            label = f": {analysis.label}" if len(found) > 1 else ""
            sections.append((title + label, make(analysis, i)))
    return sections


def _body(title: str, materials: Sequence[Material], sections: Sequence[tuple[str, str]]) -> str:
    links = "".join(f'<li><a href="#s{i}">{escape(title)}</a></li>' for i, (title, _) in enumerate(sections))
    parts = "".join(
        f'<section aria-labelledby="s{i}"><h2 id="s{i}">{escape(title)}</h2>{inside}</section>'
        for i, (title, inside) in enumerate(sections)
    )
    runs = [run for material in materials for run in material.runs.values()]
    n_analyses = sum(len(material.analyses) for material in materials)
    told = f"Runs: {len(runs)}; episodes: {sum(len(run.results) for run in runs)}; analyses: {n_analyses}."
    intervals = INTERVAL.replace(" %", "\N{NO-BREAK SPACE}%")
    terms = TERMS if any(run.unit == "goal" for run in runs) else ""
    lead = f'<p class="lead">{escape(materials[0].lead)}</p>' if materials[0].lead else ""
    return (
        f'<a class="skip" href="#main">Skip to the results</a><header><h1>{escape(title)}</h1>{lead}'
        f'<p class="note">{told} {terms}Intervals {escape(intervals)}. Every number is read from the '
        'run files, which are listed under each figure.</p></header><nav aria-label="Contents"><ol>'
        f'{links}</ol></nav><main id="main">{parts}</main>'
    )


def _gallery(runs: Iterable[Run]) -> str:
    """Videos and still images, failures first, up to the size limit of the page."""
    left, n_left_out = MAX_MEDIA_BYTES, 0
    chosen: dict[Run, list[Film]] = {}
    for run in runs:
        chosen[run], n_more = films_of(run, MAX_SHOWN)
        n_left_out += n_more
    figures: dict[Run, list[str]] = {run: [] for run in chosen}
    # The first video of every run comes before the second of any, so that no run uses up the limit.
    for one in (film for rank in zip_longest(*chosen.values()) for film in rank if film is not None):
        size = sum(file.stat().st_size for file in one.files)
        if size > min(MAX_FILM_BYTES, left):
            n_left_out += 1
            continue
        left -= size
        figures[one.run].append(_film(one))
    html = [
        f'<h3>{escape(run.label)}</h3><div class="gallery">{"".join(shown)}</div>'
        for run, shown in figures.items()
        if shown
    ]
    if html:
        html.insert(0, f"<p>{escape(FILMS)}</p>")
    if n_left_out:
        html.append(
            f'<p class="note">Left out to keep the page small: {n_left_out} films, in the folders of the '
            "runs.</p>"
        )
    return "".join(html)


def _film(film: Film) -> str:
    """A video with its still image and source."""
    run, result = film.run, film.result
    suite = run.spec.suite
    words = f"{suite.title(result.task).capitalize()}, seed {result.seed}: {film.outcome}"
    if film.outcome == result.outcome:
        words += f" after {result.steps} steps"
        if suite.metric != "success":
            words += f", best {suite.metric} {result.metrics[suite.metric]:.2f}"
    inside = "".join(_media(file, words) for file in film.files)
    return figure(inside, words, provenance((), run.film_provenance(result.task, result.seed)))


def _media(file: Path, words: str) -> str:
    if file.suffix == ".mp4":
        from recap.video import video_size  # a report without videos needs no PyAV

        width, height = video_size(file)
        return (
            f'<video controls muted playsinline preload="none" style="--shape:{height / width:.4f}" '
            f'aria-label="Film. {escape(words)}" src="{data_uri(file)}"></video>'
        )
    return f'<img loading="lazy" src="{data_uri(file)}" alt="{escape(words)}: evenly spaced frames">'


STYLE = """
body { max-width: 74rem; }
h2 { font-size: 1.35rem; border-top: 1px solid var(--line); padding-top: 1.5rem; margin-top: 3rem; }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .5rem; }
h4 { font-size: .92rem; margin: 0 0 .2rem; font-weight: 600; overflow-wrap: anywhere; }
/* The contents stay in sight: a row that scrolls on a phone, a column beside the text on a wide screen. */
nav { position: sticky; top: 0; z-index: 2; background: var(--paper); border-bottom: 1px solid var(--line); }
nav ol { display: flex; gap: 0 1.2rem; overflow-x: auto; white-space: nowrap; list-style: none; margin: 0;
  padding: .5rem 0; }
nav li { margin: 0; }
section { scroll-margin-top: 3rem; }
h2 { scroll-margin-top: 3rem; }
@media (min-width: 72rem) {
  body { max-width: 92rem; display: grid; grid-template-columns: 15rem minmax(0, 1fr); column-gap: 2.5rem;
    align-items: start; }
  header { grid-column: 2; }
  main { grid-column: 2; grid-row: 2; }
  nav { grid-column: 1; grid-row: 1 / span 2; align-self: start; max-height: 100vh; overflow-y: auto;
    border: 0; padding-top: .4rem; }
  nav ol { display: block; white-space: normal; font-size: .9rem; line-height: 1.35; }
  nav li { margin: .45rem 0; }
}
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--paper); padding: .3rem .6rem; }
.wide { margin: .9rem 0; border-radius: 6px; }
.wide:focus-visible, a:focus-visible, summary:focus-visible { outline: 2px solid var(--c1);
  outline-offset: 2px; }
.caption { color: var(--soft); font-size: .9rem; margin: 1.2rem 0 .3rem; }
.caption + .wide { margin-top: 0; }
td { vertical-align: baseline; }
small { color: var(--soft); font-size: .85em; }
table { width: max-content; min-width: 100%; }
thead th { max-width: 9rem; }
th[scope=row] { text-align: left; color: var(--ink); font-weight: 500; min-width: 9rem; max-width: 17rem;
  position: sticky; left: 0; background: var(--paper); vertical-align: baseline; overflow-wrap: anywhere; }
thead th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
tr.paper td, tr.paper th[scope=row] { color: var(--soft); font-style: italic; }
figure { margin: 1rem 0; }
figure img { width: auto; max-width: 100%; }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .4rem; max-width: 48rem; }
.panels, .gallery { display: grid; gap: 1.2rem; }
.panels { align-items: end; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17.5rem), 1fr)); }
.gallery { grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); }
.gallery figure, .pair figure { margin: 0; }
.gallery figure { container-type: inline-size; }
.gallery img { width: 100%; }
/* Room below the film, so that a browser's controls do not cover it. */
.gallery video { height: calc(100cqw * var(--shape) + 3.4rem); object-fit: contain; object-position: top; }
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
