"""`recap eval --offline`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recap.errors import InputError, RunDirectoryError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from recap.agent_config import AgentConfig
    from recap.evaluation.offline import Offline

INFO = "offline.json"
RANKS = {
    "task_rank": "rank of the task",
    "scene_rank": "rank of the scene",
    "path_error": "path error",
    "phase_error": "phase error",
}
NOTE = """
Error: RMS over a chunk, each number of an action in its deviations; about 1 for the mean action. By feature \
it is the mean in its unit. Intervals: 95 %, a bootstrap over demonstrations."""
RANKS_NOTE = """The right task first is 1. The same scene first is 0, by chance 0.5. Path: that of the \
nearest other scene, by chance 1. Phases: by chance 1/3. Ranks of scenes and phases need paired \
demonstrations."""


def evaluate_offline(
    configs: Sequence[AgentConfig],
    data: tuple[str | None, str | None],
    episodes: str | None,
    record: str,
    rrd: bool,
    as_json: bool,
    out: Path,
) -> int:
    """Each policy on the same demonstrations; data are target and pool, films are of the first policy."""
    import json
    from dataclasses import asdict

    from recap.assembly import refuse_unknown_policy
    from recap.cli.ranges import parse_seeds
    from recap.cli.terminal import progress_bar, say, show
    from recap.run_directory import write_whole

    target, pool = data
    if target is None or pool is None:
        missing = "--target" if target is None else "--pool"
        raise InputError(f"--offline compares with demonstrations: give {missing}, a pool or a dataset")
    found = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not found.is_dir():
        raise RunDirectoryError(f"output {found} is a file: give a directory with --out")
    if not record.isdecimal() and record != "all":
        raise InputError(f"cannot read --record '{record}': with --offline give a number of films, or all")
    for config in configs:
        refuse_unknown_policy(config.policy)
    chosen = () if episodes == "all" else None if episodes is None else parse_seeds(episodes)
    from recap.evaluation.offline import evaluate_offline as run
    from recap.evaluation.offline_files import load_rerun, write_film, write_rrd

    if rrd:
        load_rerun()
    results: list[Offline] = []
    for config in configs:
        say(f"Loading {config.policy} …")
        n = 0 if results else int(record) if record.isdecimal() else 1_000_000
        with progress_bar("demonstrations") as progress:
            result, watched = run(config, target, pool, episodes=chosen, n_watched=n, progress=progress)
        results.append(result)
        chosen = result.numbers
        out.mkdir(parents=True, exist_ok=True)
        for one in watched:
            if write_film(one, out) is None:
                say(f"No film of {one.episode.id}: it has no pictures")
            if rrd:
                write_rrd(one, Path(target).name.removesuffix(".safetensors"), out)
    text = json.dumps({"kind": "offline", "results": [asdict(result) for result in results]}, indent=1)
    write_whole(out / INFO, text + "\n")
    for result in results:
        if not as_json:
            show(_tables(result))
    click.echo(text if as_json else f"Results: {out / INFO}")
    return 0


def _tables(result: Offline) -> RenderableType:
    from rich.console import Group

    from recap.evaluation.summary import number_table

    heads = [f"{name}\n{unit}" for name, unit in result.units.items()]
    by_feature = {m: [f"{e[0]:.3g}" for e in found.values()] for m, found in result.features.items()}
    errors = [[method, _shown(error), *by_feature[method]] for method, error in result.errors.items()]
    parts: list[Any] = [
        f"{result.policy} on {len(result.episodes)} demonstrations of {result.target}: {result.n_moments} "
        f"chunks of {result.chunk_size} actions, one every {result.every}; retrieval {result.retrieval}\n",
        number_table(["", "error", *heads], errors),
        NOTE,
    ]
    if result.difference is not None:
        parts.append(f"Policy less replay: {_shown(result.difference)}.")
    if result.same_task is not None:
        off = _shown(result.phase_error)
        parts.append(f"Matches of the right task: {_shown(result.same_task)}; their phase is off by {off}.")
    if result.confidence:
        names = [name for name in result.errors if any(name in b["errors"] for b in result.confidence)]
        bins = []
        for b in result.confidence:
            counts = [f"{b['n']}", f"{b['share']:.0%}", f"{b['high'] - b['low']:.0%}"]
            means = [f"{b['errors'][name]:.3g}" if b["n"] else "–" for name in names]
            bins.append([f"{b['low']:g} to {b['high']:g}", *counts, *means])
        heads = ["confidence", "moments", "share", "as in\nthe pool", *(f"error of\n{n}" for n in names)]
        parts += ["", number_table(heads, bins)]
    elif result.same_task is not None:
        parts.append("No confidence: the pool is too small to calibrate it.")
    if result.descriptors is not None:
        terms = [[row["term"], *(_shown(row[key]) for key in RANKS)] for row in result.descriptors["rows"]]
        parts += ["", number_table(["descriptor", *RANKS.values()], terms)]
        parts += [f"Tasks in the pool: {result.descriptors['n_tasks']}. {RANKS_NOTE}"]
    return Group(*parts, "", *result.notes)


def _shown(estimate: Sequence[float] | None) -> str:
    return "–" if estimate is None else "{:.3g} \\[{:.3g}, {:.3g}]".format(*estimate)
