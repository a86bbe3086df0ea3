"""`recap eval --offline`."""

from __future__ import annotations

import math
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
ACTS = {  # method -> description
    "policy": "the chunk that would be sent",
    "replay": "what was retrieved, without the network",
    "no retrieval": "the network, with nothing retrieved",
    "hold": "stays where it is",
    "mean action": "of the target's other demonstrations",
}
RANKS = {
    "task_rank": "rank of\nthe task",
    "scene_rank": "rank of\nthe scene",
    "path_error": "path\nerror",
    "phase_error": "phase\nerror",
}
BEST = {"task_rank": "best 1", "scene_rank": "0, chance 0.5", "path_error": "0, chance 1"}
BEST["phase_error"] = "0, chance 1/3"
NOTE = """Lower is better. Error: RMS over a chunk against what was recorded, each number of an action in \
its standard deviations. Brackets: 95 % intervals over demonstrations."""
FEATURES_NOTE = "\nThe mean error of each feature of an action, in its unit:\n"
CONFIDENCE_NOTE = """
By confidence of the match: errors should fall as it rises, and the share be about that in the pool:
"""
OFF = 0.2  # largest difference of a share from that in the pool
RANKS_NOTE = "\nWhat each term of the retrieval finds alone, lower is better:\n"


def evaluate_offline(
    configs: Sequence[AgentConfig],
    data: tuple[str | None, str | None],
    episodes: str | None,
    record: str,
    rrd: bool,
    as_json: bool,
    out: Path,
) -> int:
    """Evaluate each policy on the same demonstrations; `data` is (target, pool); videos of the first one."""
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
    if as_json:
        click.echo(text)
        return 0
    for result in results:
        show(_tables(result))
    click.echo(f"Results: {out / INFO}")
    first = results[0].policy
    click.echo(f"Next: recap serve {first} --pool {pool}, or recap eval {first} --env package.module:factory")
    return 0


def _tables(result: Offline) -> RenderableType:
    from rich.console import Group

    from recap.evaluation.summary import number_table

    errors = [[f"{method}: {ACTS[method]}", _shown(error)] for method, error in result.errors.items()]
    units = [f"{name}, {unit}" if unit else name for name, unit in result.units.items()]
    rows = [
        [label, *(f"{found[name][0]:.3g}" for found in result.features.values())]
        for label, name in zip(units, result.units, strict=True)
    ]
    parts: list[Any] = [
        f"{result.policy} on {len(result.episodes)} demonstrations of {result.target}: {result.n_moments} "
        f"chunks of {result.chunk_size} actions, one every {result.every}; retrieval {result.retrieval}\n",
        number_table(["what acts", "error"], errors),
        "",
        NOTE,
    ]
    if result.difference is not None:
        parts.append(f"Policy less replay: {_shown(result.difference)}, {_meaning(result.difference)}.")
    if "hold" in result.errors and result.errors["hold"][0] <= result.errors.get("policy", (-math.inf,))[0]:
        parts.append("Holding still is as near as the policy: it has not learned where to go.")
    parts += [FEATURES_NOTE, number_table(["feature", *result.features], rows), ""]
    if result.same_task is not None:
        off = "–" if result.phase_error is None else f"{_share(result.phase_error)} of a demonstration"
        parts.append(f"Matches of the right task: {_share(result.same_task)}; their phase is off by {off}.")
    if result.confidence:
        names = [name for name in result.errors if any(name in b["errors"] for b in result.confidence)]
        bins = []
        for b in result.confidence:
            counts = [f"{b['n']}", f"{b['share']:.0%}", f"{b['high'] - b['low']:.0%}"]
            means = [f"{b['errors'][name]:.3g}" if b["n"] else "–" for name in names]
            bins.append([f"{b['low']:g} to {b['high']:g}", *counts, *means])
        heads = ["confidence", "moments", "share", "as in\nthe pool", *(f"error of\n{n}" for n in names)]
        parts += [CONFIDENCE_NOTE, number_table(heads, bins)]
        if max(abs(b["share"] - (b["high"] - b["low"])) for b in result.confidence) > OFF:
            first = result.confidence[0]
            held = f"--min-confidence {first['high']:g} would hold it at {first['share']:.0%} of these looks"
            parts.append(
                f"\nConfidence is not calibrated for this robot, whose shares are not the pool's: {held}."
            )
    elif result.same_task is not None:
        parts.append("No confidence: the pool is too small to calibrate it.")
    if result.descriptors is not None:
        terms = [[row["term"], *(_shown(row[key]) for key in RANKS)] for row in result.descriptors["rows"]]
        parts += [RANKS_NOTE, number_table(["term", *RANKS.values()], [["", *BEST.values()], *terms])]
        parts += [f"\nTasks in the pool: {result.descriptors['n_tasks']}."]
        if any(row["scene_rank"] is None for row in result.descriptors["rows"]):
            parts.append("Ranks of the scene and phases need paired demonstrations.")
    return Group(*parts, *(["", *result.notes] if result.notes else []))


def _meaning(difference: Sequence[float]) -> str:
    """A difference, policy minus replay, in words."""
    _, low, high = difference
    if low <= 0 <= high:
        return "which may be chance: the network adds nothing that this shows"
    return "the network helps" if high < 0 else "the network hurts: replay is nearer, and needs no training"


def _share(estimate: Sequence[float]) -> str:
    return "{:.0%} \\[{:.0%}, {:.0%}]".format(*estimate)


def _shown(estimate: Sequence[float] | None) -> str:
    return "–" if estimate is None else "{:.3g} \\[{:.3g}, {:.3g}]".format(*estimate)
