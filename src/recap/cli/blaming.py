"""`recap pool blame` and `recap pool quarantine`: find harmful demonstrations and exclude them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recap.cli.pool_look import opened, print_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recap.retrieval.outliers import Outlier


@click.command()
@click.argument("logs", nargs=-1, type=click.Path(path_type=Path), metavar="[LOG]...")
@click.option(
    "--pool", "uri", metavar="POOL", help="Compare its demonstrations, without those in quarantine."
)
@click.option(
    "--retrieval", metavar="NAME|FILE", help="How to compare last frames.  [default: as the data allow]"
)
@click.option(
    "--task-by", metavar="ATTRIBUTE", help="Attribute with the task's name.  [default: the instruction]"
)
@click.option(
    "--alpha",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=0.05,
    show_default=True,
    help="Allowed share of false accusations by logs.",
)
@click.option("--limit", type=click.IntRange(0), default=10, show_default=True, metavar="N", help="0: all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def blame(
    logs: Sequence[Path],
    uri: str | None,
    retrieval: str | None,
    task_by: str | None,
    alpha: float,
    limit: int,
    as_json: bool,
) -> None:
    """Find harmful demonstrations, from logs of recap serve --log and from the demonstrations themselves.

    By logs: after each chunk of actions the robot should be where the demonstration was. A demonstration is
    accused if it leaves robots far from there more often than others do (Fisher's exact test with the
    Benjamini-Hochberg correction). Outcomes of episodes are shown with intervals but not used: demonstrations
    of hard scenes appear in failed episodes through no fault of their own.

    With --pool, and without any rollout: a demonstration is accused if its states do not follow its actions,
    or if it stops early, compared with the other demonstrations of its task (at least five).

    \b
    Example:
      recap pool blame --pool pools/mine
      recap serve replay --pool pools/mine --log logs/use.jsonl
      recap pool blame logs/use.jsonl --pool pools/mine
    """
    import json
    from dataclasses import asdict

    from recap.errors import InputError
    from recap.evaluation.statistics import wilson
    from recap.retrieval.outliers import N_LEAST
    from recap.usage import blame as find
    from recap.usage import read_runs

    if not logs and uri is None:
        raise InputError("nothing to look at: give a LOG of recap serve --log, or --pool")
    runs = read_runs(logs)
    found = find(runs, alpha)
    odd: list[Outlier] = []
    if uri is not None:
        there, odd, n_compared = _of_pool(uri, retrieval, task_by)
        found = [suspect for suspect in found if suspect.episode_id in there]
    if as_json:
        click.echo(json.dumps({"by_logs": [*map(asdict, found)], "by_pool": [*map(asdict, odd)]}, indent=1))
        return
    if logs:
        rows = []
        for one in found[: limit or None]:
            failed = f"{one.n_failed} of {one.n_ended} {wilson(one.n_failed, one.n_ended).in_per_cent()}"
            astray = f"{one.n_astray} of {one.n_runs}"
            rows.append([one.episode_id, astray, f"{one.p_astray:.2g}", failed, "accused" * one.accused])
        print_rows(("demonstration", "astray", "p", "failed, % [95 %]", ""), rows, 0)
        known = [run for run in runs if run.success is not None]
        click.echo(
            f"{len(runs)} episodes, {sum(not run.success for run in known)} of {len(known)} with a known end "
            f"failed; {sum(suspect.accused for suspect in found)} of {len(found)} demonstrations accused"
        )
    if odd:
        rows = [[one.episode_id, one.reason, f"{one.deviations:.1f}"] for one in odd[: limit or None]]
        print_rows(("demonstration", "accused because", "deviations"), rows, 0)
    if uri is not None:
        click.echo(
            f"{len(odd)} of {n_compared} demonstrations accused by comparison with their task's others"
        )
        if n_compared < len(there):
            click.echo(
                f"Not compared: {len(there) - n_compared} demonstrations of tasks with fewer than {N_LEAST}; "
                "--task-by ATTRIBUTE groups them differently"
            )
    accused = [suspect.episode_id for suspect in found if suspect.accused] + [one.episode_id for one in odd]
    if accused:
        click.echo(f"Next: recap pool quarantine {uri or 'POOL'} {accused[0]}")


def _of_pool(uri: str, retrieval: str | None, task_by: str | None) -> tuple[set[str], list[Outlier], int]:
    """The pool's demonstrations outside quarantine, the outliers among them, and how many were compared."""
    from collections import Counter

    from recap.pool.view import robot_of
    from recap.retrieval.outliers import N_LEAST, outliers
    from recap.retrieval.presets import find_retrieval, usual_name
    from recap.types import QUARANTINE, Episode

    def task_of(episode: Episode) -> str:
        return episode.task if task_by is None else str(episode.attributes.get(task_by, ""))

    view = opened(uri).view()
    ids = [name for name in view.episode_ids if not view.episode(name).attributes.get(QUARANTINE)]
    robot = robot_of(view)
    if robot is None or not ids:
        return set(), [], 0
    spec = find_retrieval(retrieval or usual_name(view.episode(ids[0])), robot)
    sizes = Counter(task_of(view.episode(name)) for name in ids)
    n_compared = sum(size for size in sizes.values() if size >= N_LEAST)
    return set(ids), outliers(view, robot, spec, task_of, ids), n_compared


@click.command()
@click.argument("uri", metavar="POOL")
@click.argument("ids", nargs=-1, required=True, metavar="EPISODE...")
@click.option("--undo", is_flag=True, help="Allow retrieval again.")
def quarantine(uri: str, ids: Sequence[str], undo: bool) -> None:
    """Exclude episodes from retrieval at once; they stay in the pool.

    Running servers follow at their next reply. The change makes a new version of the pool.

    \b
    Example:
      recap pool quarantine pools/mine pusht/disc/-45/100000
      recap pool quarantine pools/mine pusht/disc/-45/100000 --undo
    """
    from recap.types import QUARANTINE

    store = opened(uri)
    version = store.quarantine(list(ids), undo=undo)
    n = sum(bool(episode.attributes.get(QUARANTINE)) for episode in store.view())
    click.echo(f"Version {version}: {n} in quarantine of {len(store)} episodes")
    click.echo(f"Next: recap pool quarantine {uri} EPISODE --undo, or recap pool rm {uri} EPISODE")
