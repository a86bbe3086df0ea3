"""Inputs of a report: runs, analyses, and an optional report.json with their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from recap.assembly import REPLAY
from recap.errors import InputError, RunDirectoryError, did_you_mean
from recap.evaluation.run_directory import INFO, read_info, read_provenance
from recap.evaluation.runner import WITHOUT_POOL
from recap.evaluation.settings import command_of, recorded_settings, seeds_text
from recap.evaluation.spec import EvalSpec
from recap.evaluation.summary import Group, Rate, Summary, summarise
from recap.run_directory import read_json
from recap.types import EpisodeResult
from recap_research.published import ROWS, PublishedRow
from recap_research.training_seeds import Rolled, share_of

MANIFEST = "report.json"
KINDS = ("attention", "masking", "failures", "check", "sweep")
MEDIA = "videos"
N_GOOD = 2  # successes shown for a run, in addition to its failures


@dataclass(frozen=True, eq=False)
class Run:
    """One finished evaluation."""

    name: str  # path relative to the report's folder
    path: Path
    spec: EvalSpec
    results: tuple[EpisodeResult, ...]
    origin: Mapping[str, Any]  # checkpoint, pool version, demonstrations
    label: str
    paper: PublishedRow | None = None

    @cached_property
    def summary(self) -> Summary:
        """The counted results."""
        return summarise(self.spec, self.results)

    def group(self, name: str) -> Group | None:
        """The group of a task, or of `seen`, `unseen`, `all`."""
        return next((g for g in [*self.summary.tasks, *self.summary.groups] if g.name == name), None)

    @property
    def unit(self) -> str:
        """The word for one of its tasks."""
        return "goal" if self.spec.env == "pusht" else "task"

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """The settings of the agent; None if they were not recorded."""
        return recorded_settings(self.origin)

    @property
    def provenance(self) -> list[tuple[str, str]]:
        """The command and settings that reproduce the numbers."""
        return self._told(self.spec)

    def film_provenance(self, task: str, seed: int) -> list[tuple[str, str]]:
        """The command that reproduces the video of one episode."""
        return self._told(replace(self.spec, tasks=(task,), seeds=(seed,)), " --record all")

    def _told(self, spec: EvalSpec, more: str = "") -> list[tuple[str, str]]:
        pool = self.spec.pool or f"{self.spec.suite.default_pool} (the standard pool)"
        version = self.origin.get("pool_version", self.spec.pool_version)
        demos = self.origin.get("n_demonstrations")
        told = [("command", command_of(spec) + more), ("seeds", seeds_text(spec.seeds))]
        if self.spec.agent.policy not in WITHOUT_POOL:
            size = f", {demos} demonstrations" if demos is not None else ""
            told.append(
                ("pool", f"{pool}, version {version if version is not None else 'not recorded'}{size}")
            )
        if self.spec.agent.policy not in (*WITHOUT_POOL, REPLAY):
            told.append(("checkpoint", str(self.origin.get("checkpoint", "not recorded"))))
        return told


@dataclass(frozen=True)
class Film:
    """The recording of one episode."""

    run: Run
    result: EpisodeResult
    outcome: str  # of the recording
    files: tuple[Path, ...]  # the video, then its still image


@dataclass(frozen=True, eq=False)
class Row:
    """One method: the runs of a recipe, one per training."""

    label: str
    runs: tuple[Run, ...]
    _rates: dict[tuple[str, str], Rate | None] = field(default_factory=dict, repr=False)

    @property
    def paper(self) -> PublishedRow | None:
        """The paper's row for this method."""
        return self.runs[0].paper

    @property
    def rolled(self) -> list[Rolled]:
        """The episodes of every training."""
        return [(run.spec, run.results) for run in self.runs]

    def rate(self, name: str, threshold: str) -> Rate | None:
        """The rate of a task, or of `seen`, `unseen`, `all`, over all trainings, with its interval."""
        if (name, threshold) not in self._rates:  # tables, panels and pairs use the same rates
            self._rates[name, threshold] = self._rate(name, threshold)
        return self._rates[name, threshold]

    def _rate(self, name: str, threshold: str) -> Rate | None:
        groups = [run.group(name) for run in self.runs]
        rates = [group.rates[threshold] for group in groups if group and threshold in group.rates]
        if len(rates) < 2:
            return rates[0] if rates else None
        share = share_of(self.rolled, name, threshold)
        if share is None:  # only errors
            return None
        return Rate(sum(rate.k for rate in rates), sum(rate.n for rate in rates), share.interval)


@dataclass(frozen=True)
class Part:
    """Methods that are shown together."""

    title: str
    rows: tuple[Row, ...]
    text: str = ""
    reference: Row | None = None  # the others are compared with it

    @property
    def runs(self) -> list[Run]:
        """All runs of the part."""
        return [run for row in self.rows for run in row.runs]


@dataclass(frozen=True)
class Progression:
    """A growing pool under a frozen policy."""

    title: str
    first: Run  # without retrieval
    snapshots: tuple[Run, ...]
    text: str = ""


@dataclass(frozen=True)
class Analysis:
    """A JSON file of an analysis."""

    kind: str
    path: Path
    body: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The name of the policy or target; of a path, its end."""
        return Path(str(self.body.get("label") or self.path.parent)).name

    def file(self, name: str) -> Path:
        """An image named in the analysis, in the same folder."""
        return self.path.parent / Path(name).name


@dataclass(frozen=True)
class Material:
    """All runs and analyses of a folder."""

    folder: Path
    title: str
    lead: str
    parts: tuple[Part, ...]
    progression: Progression | None
    analyses: tuple[Analysis, ...]
    runs: Mapping[str, Run] = field(default_factory=dict)

    def of(self, kind: str) -> list[Analysis]:
        """The analyses of one kind."""
        return [analysis for analysis in self.analyses if analysis.kind == kind]


def read_material(folder: Path) -> Material:
    """Read a folder of runs and analyses. Unfinished ones are errors that name them."""
    if not folder.is_dir():
        raise RunDirectoryError(f"{folder} is no directory: give one that holds runs of recap eval")
    manifest = _manifest(folder)
    analyses = tuple(_analyses(folder))
    told = manifest.get("runs", {})
    runs = {}
    for file in sorted(folder.rglob(INFO)):
        name = file.parent.relative_to(folder).as_posix()
        runs[name] = _run(name, file.parent, told.get(name, {}))
    if not runs and not analyses:
        raise RunDirectoryError(f"{folder} holds no {INFO}: run recap eval … --out {folder}/NAME first")
    for name in told:
        _named(runs, name)
    parts = _parts(folder, manifest, runs)
    if "parts" not in manifest:
        own = _told_elsewhere(folder, analyses, manifest, runs)
        rest = [run for name, run in runs.items() if name not in own]
        rows = tuple(Row(run.label, (run,)) for run in rest)
        title = f"Success by {rest[0].unit}" if rest else ""
        parts = [Part(title, rows, reference=rows[0] if len(rows) > 1 else None)] if rows else []
    grown = manifest.get("progression")
    progression = None
    if grown is not None:
        snapshots = tuple(_named(runs, name) for name in grown["snapshots"])
        title = str(grown.get("title", "A growing pool"))
        progression = Progression(title, _named(runs, grown["first"]), snapshots, str(grown.get("text", "")))
    title = str(manifest.get("title", f"Evaluations in {folder.resolve().name}"))
    return Material(folder, title, str(manifest.get("lead", "")), tuple(parts), progression, analyses, runs)


def _manifest(folder: Path) -> Mapping[str, Any]:
    file = folder / MANIFEST
    body = read_json(file) if file.exists() else {}
    known = {"title", "lead", "runs", "parts", "progression"}
    if not isinstance(body, dict):
        raise InputError(f"{file} is no table of contents: write an object with {sorted(known)}")
    for key in sorted(set(body) - known):
        raise InputError(f"{file} has an unknown key '{key}': {did_you_mean(key, sorted(known))}")
    return body


def _parts(folder: Path, manifest: Mapping[str, Any], runs: Mapping[str, Run]) -> list[Part]:
    """The parts listed in report.json."""
    try:
        return [_part(part, runs) for part in manifest.get("parts", [])]
    except KeyError as error:
        raise InputError(f"a part of {folder / MANIFEST} lacks {error}: give it one") from error
    except (AttributeError, TypeError) as error:
        raise InputError(
            f"a part of {folder / MANIFEST} is no object with a title and a list of runs: write it so"
        ) from error


def _part(part: Mapping[str, Any], runs: Mapping[str, Run]) -> Part:
    """One row for each run, or for the family of the run."""
    families = [
        Row(str(one["label"]), tuple(_named(runs, name) for name in dict.fromkeys(one["runs"])))
        for one in part.get("families", [])
        if one["runs"]
    ]
    family_of = {run: row for row in families for run in row.runs}
    named = [_named(runs, name) for name in part["runs"]]
    rows = dict.fromkeys(family_of.get(run) or Row(run.label, (run,)) for run in named)
    reference = _named(runs, part["reference"]) if "reference" in part else None
    base = next((row for row in rows if reference in row.runs), None)
    if reference is not None and base is None:  # the reference need not be a row itself
        base = family_of.get(reference) or Row(reference.label, (reference,))
    return Part(str(part["title"]), tuple(rows), str(part.get("text", "")), base)


def _run(name: str, path: Path, told: Mapping[str, Any]) -> Run:
    spec, results = read_info(path)
    origin = read_provenance(path)
    key = told.get("paper")
    if key is not None and key not in ROWS:
        raise InputError(f"run '{name}' names the paper's row '{key}': {did_you_mean(str(key), ROWS)}")
    paper = None if key is None else ROWS[key]
    usual = path.resolve().name if name == "." else name  # the folder itself may be the run
    return Run(name, path, spec, tuple(results), origin, str(told.get("label", usual)), paper)


def _named(runs: Mapping[str, Run], name: str) -> Run:
    if name not in runs:
        raise InputError(f"{MANIFEST} names the run '{name}', which is not there: {did_you_mean(name, runs)}")
    return runs[name]


def _analyses(folder: Path) -> Sequence[Analysis]:
    found = []
    named = [f"{kind}{end}.json" for kind in KINDS for end in ("", "[-_]*")]
    for file in sorted(file for name in named for file in folder.rglob(name)):
        body = read_json(file)
        if not isinstance(body, dict) or body.get("kind") not in KINDS:
            raise RunDirectoryError(f"{file} is no analysis of ours: give it another name, or run it again")
        found.append(Analysis(str(body["kind"]), file, body))
    return found


def _told_elsewhere(
    folder: Path, analyses: Sequence[Analysis], manifest: Mapping[str, Any], runs: Mapping[str, Run]
) -> set[str]:
    """Runs that belong to an analysis or to the progression and are not listed separately."""
    found: set[str] = set()
    for analysis in analyses:
        place = analysis.path.parent.relative_to(folder).as_posix()
        if analysis.kind in ("attention", "masking"):
            found |= {name for name in runs if place != "." and name.startswith(f"{place}/")}
        if analysis.kind == "sweep":
            found |= {sweep_run(analysis, folder, point) for point in analysis.body["points"]}
    grown = manifest.get("progression", {})
    return found | {*grown.get("snapshots", []), *([grown["first"]] if grown else [])}


def sweep_run(sweep: Analysis, folder: Path, point: Mapping[str, Any]) -> str:
    """The name of the run at a point of a sweep."""
    return (sweep.path.parent / str(point["run"])).relative_to(folder).as_posix()


def films_of(run: Run, most: int) -> tuple[list[Film], int]:
    """Up to `most` recorded episodes, failures first and then some successes, and the number of others."""
    found = []
    for result in run.results:
        # By the outcome of the recording, which may differ.
        for outcome in ("failure", "error", "success"):
            stem = run.path / MEDIA / f"{result.task}_{result.seed}_{outcome}"
            files = [f for f in (Path(f"{stem}.mp4"), Path(f"{stem}.png")) if f.exists()]
            if files:
                found.append(Film(run, result, outcome, tuple(files)))
    good = [film for film in found if film.outcome == "success"]
    bad = [film for film in found if film.outcome != "success"]
    bad = bad[: most - min(len(good), N_GOOD)]
    shown = bad + good[: most - len(bad)]
    return shown, len(found) - len(shown)
