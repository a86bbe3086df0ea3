"""`recap retrieve`."""

from __future__ import annotations

import math
from pathlib import Path

import click


@click.command()
@click.argument("pool")
@click.option("--at", required=True, metavar="EPISODE:T", help="Moment to query.")
@click.option("--retrieval", metavar="NAME|FILE", help="How to retrieve.  [default: as the data allow]")
@click.option(
    "--matches",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    metavar="N",
    help="How many to show.",
)
@click.option("--explain", is_flag=True, help="Explain why the second match lost, and write a picture.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("retrieval.png"), show_default=True)
def retrieve(pool: str, at: str, retrieval: str | None, matches: int, explain: bool, out: Path) -> int:
    """Show what is retrieved at a moment of one of the pool's own episodes.

    The episode's own scene is left out. POOL is a pool, a packed snapshot, or a standard pool such as
    pusht-9x100. Costs are shares of the squared distance; confidence is calibrated on the pool itself.

    \b
    Example:
      recap retrieve pusht-9x100 --at pusht/tee/-60/100000/disc:40 --explain --out why.png
    """
    from recap.cli.terminal import show
    from recap.compatible import foreign_joints_warning
    from recap.errors import InputError
    from recap.evaluation.summary import number_table
    from recap.pictures import write_png
    from recap.pool.opening import open_pool
    from recap.pool.view import robot_of
    from recap.retrieval import explain as explaining
    from recap.retrieval.presets import find_retrieval, usual_name
    from recap.retrieval.retriever import Retriever
    from recap.types import FrameRef

    episode_id, _, t_text = at.rpartition(":")
    if not episode_id or not t_text.isdecimal():
        raise InputError(f"cannot read --at '{at}': give EPISODE:T, such as demo/17:40")
    source = open_pool(pool)
    view = source.view()
    ref = FrameRef(episode_id, int(t_text))
    if episode_id not in view.episode_ids:
        known = next(iter(view.episode_ids), "none")
        raise InputError(f"pool {pool} has no episode '{episode_id}': it has, for example, {known}")
    if ref.t >= len(view.episode(episode_id)):
        raise InputError(
            f"episode {episode_id} has {len(view.episode(episode_id))} frames: frame {ref.t} does not exist"
        )
    first = view.episode(episode_id)
    name = retrieval or usual_name(first)
    robot = robot_of(view)
    assert robot is not None  # there is a demonstration
    describer, config = find_retrieval(name, robot)
    explanation = explaining.explain(Retriever(source, describer, config, robot), view, ref, matches)
    found, terms = explanation.retrieval, explanation.terms
    nearest = min((m.distance for m in found.matches if m.distance > 0), default=1.0)
    places = 2 + max(0, -math.floor(math.log10(nearest)))  # three significant digits of the nearest
    rows = []
    for m in found.matches:
        numbers = (m.distance, *(m.costs[term] for term in terms))
        rows.append([f"{m.ref.episode_id}:{m.ref.t}", *(f"{x:.{places}f}" for x in numbers)])
    show(number_table(("match", "distance", *(term.replace("/", "/\n") for term in terms)), rows))
    timings = ", ".join(f"{name} {ms:.2f} ms" for name, ms in found.timings_ms.items())
    unknown = found.confidence != found.confidence
    sure = "unknown, the pool is too small" if unknown else f"{found.confidence:.3f}"
    click.echo(f"Confidence {sure}, pool version {found.pool_version}; {timings}")
    arms = {view.episode(m.ref.episode_id).embodiment for m in found.matches} | {first.embodiment}
    others = foreign_joints_warning(robot, arms)
    if others:
        click.echo(others)
    if explain:
        click.echo(explanation.compare_with_next())
        picture = explaining.picture(view, explanation)
        if picture is None:
            click.echo("No picture: these episodes have no images.")
        else:
            write_png(out, picture)
            click.echo(f"Picture: {out} (the query first, then its matches)")
    return 0
