"""The commands of `recap pool` about what demonstrations do to robots: blame, quarantine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recap.cli.pool_look import opened, print_rows

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="LOG...")
@click.option("--pool", "uri", metavar="POOL", help="Skip demonstrations removed from it or in quarantine.")
@click.option(
    "--alpha",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=0.05,
    show_default=True,
    help="Allowed share of false accusations.",
)
@click.option("--limit", type=click.IntRange(0), default=10, show_default=True, metavar="N", help="0: all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def blame(logs: Sequence[Path], uri: str | None, alpha: float, limit: int, as_json: bool) -> None:
    """Find demonstrations that lead robots astray, from logs of recap serve --log.

    After each chunk of actions the robot should be where the demonstration was. A demonstration is accused if
    it leaves robots far from there more often than others do (Fisher's exact test with the Benjamini-Hochberg
    correction). Outcomes of episodes are shown with intervals but not used: demonstrations of hard scenes
    appear in failed episodes through no fault of their own.

    \b
    Example:
      recap serve replay --pool pools/mine --log logs/use.jsonl
      recap pool blame logs/use.jsonl --pool pools/mine
    """
    import json
    from dataclasses import asdict

    from recap.evaluation.statistics import wilson
    from recap.types import QUARANTINE
    from recap.usage import blame as find
    from recap.usage import read_runs

    runs = read_runs(logs)
    found = find(runs, alpha)
    if uri is not None:
        view = opened(uri).view()
        there = {name for name in view.episode_ids if not view.episode(name).attributes.get(QUARANTINE)}
        found = [suspect for suspect in found if suspect.episode_id in there]
    if as_json:
        click.echo(json.dumps([asdict(suspect) for suspect in found], indent=1))
        return
    rows = []
    for one in found[: limit or None]:
        failed = f"{one.n_failed} of {one.n_ended} {wilson(one.n_failed, one.n_ended).in_per_cent()}"
        astray = f"{one.n_astray} of {one.n_runs}"
        rows.append([one.episode_id, astray, f"{one.p_astray:.2g}", failed, "accused" if one.accused else ""])
    print_rows(("demonstration", "astray", "p", "failed, % [95 %]", ""), rows, 0)
    accused = [suspect.episode_id for suspect in found if suspect.accused]
    known = [run for run in runs if run.success is not None]
    click.echo(
        f"{len(runs)} episodes, {sum(not run.success for run in known)} of {len(known)} with a known end "
        f"failed; {len(accused)} of {len(found)} demonstrations accused"
    )
    if accused:
        click.echo(f"Next: recap pool quarantine {uri or 'POOL'} {accused[0]}")


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
