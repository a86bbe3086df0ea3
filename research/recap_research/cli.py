"""`recap report`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("folders", metavar="DIR…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Output file.  [default: DIR/report.html]",
)
@click.option("--title", help="Title of the page.  [default: of the first DIR]")
def report(folders: tuple[Path, ...], out: Path | None, title: str | None) -> None:
    """Write one report page from the evaluations and analyses in one or more DIRs.

    DIR contains folders written by recap eval, at any depth, and JSON files of analyses (recap check --json,
    research/benchmarks/evidence.py). An optional DIR/report.json names and orders the runs and pairs them
    with rows of the paper. The page is one file and needs no network.

    \b
    Example:
      recap eval pusht-nano --env.pusher triangle --tasks=-30,0 --seeds 500:505 --out runs/all/nano
      recap eval replay --env pusht --tasks=-30,0 --seeds 500:505 --out runs/all/replay
      recap report runs/all --out report.html
      recap report runs/baselines runs/attention --title "All of it" --out report.html
    """
    from recap.run_directory import write_whole
    from recap_research.report.page import build_report

    page = build_report(*folders, title=title)
    file = folders[0] / "report.html" if out is None else out
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, page)
    click.echo(f"Page: {file} ({len(page.encode()) / 1024:.0f} kB)")
    click.echo("Next: open it in any browser; it can be sent as it is")
