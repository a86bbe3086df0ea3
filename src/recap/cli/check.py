"""`recap check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recap.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from recap.pool.view import PoolView
    from recap.robot import RobotSpec
    from recap.training.check import Check
    from recap.training.config import TrainConfig
    from recap.types import Episode


@click.command()
@click.argument("target")
@click.argument("pool")
@click.option(
    "--robot", "robot_file", metavar="FILE", help="The robot's description.  [default: the target's]"
)
@click.option("--retrieval", metavar="NAME|FILE", help="How to retrieve.  [default: as the data allow]")
@click.option(
    "--horizons", default="1,2,4,8,16,32", show_default=True, metavar="N,N…", help="Chunk lengths to try."
)
@click.option(
    "--moments", type=click.IntRange(4), default=3000, show_default=True, metavar="N", help="How many to ask."
)
@click.option(
    "--map", "maps", multiple=True, metavar="FIELD=KEY", help="As for recap pool add, for both; repeatable."
)
@click.option("--pair-by", default="scene", show_default=True, metavar="RULE", help="As for recap train.")
@click.option(
    "--worst", type=click.IntRange(0), default=5, show_default=True, metavar="N", help="Pairs to list."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(
    target: str,
    pool: str,
    robot_file: str | None,
    retrieval: str | None,
    horizons: str,
    moments: int,
    maps: tuple[str, ...],
    pair_by: str,
    worst: int,
    as_json: bool,
) -> int:
    """See before any training whether a pool is worth retrieving from.

    TARGET has demonstrations of the robot, POOL those of the other embodiment; each is a pool, a packed
    snapshot, a standard pool, or a dataset that recap pool add would import. What is retrieved for moments
    of the target is compared with what the robot did then, and with holding still. A minute or so on a CPU.
    The exit code is 1 when the check does not hold.

    \b
    Example:
      recap check pusht-triangle pusht-9x100
      recap check data/robot data/hand --robot robot.yaml --json > check.json
    """
    import json
    import shlex

    from recap.cli.importing import parse_mapping
    from recap.cli.terminal import show
    from recap.features.estimators import prepared
    from recap.pool.opening import open_demonstrations
    from recap.robot import load_robot
    from recap.training.check import FAILS, check_pool

    mapping = parse_mapping(maps)
    robot = None if robot_file is None else load_robot(robot_file)
    views = [open_demonstrations(place, mapping, prepared(robot), pair_by) for place in (target, pool)]
    found = check_pool(
        *views,
        names=(target, pool),
        robot=robot,
        retrieval=retrieval,
        horizons=_numbers(horizons),
        n_moments=moments,
    )
    failed = found.verdict.startswith(FAILS)
    if as_json:
        words = ["recap", "check", target, pool, "--horizons", horizons, "--moments", str(moments)]
        words += [] if robot_file is None else ["--robot", robot_file]
        words += [] if retrieval is None else ["--retrieval", retrieval]
        words += [] if pair_by == "scene" else ["--pair-by", pair_by]
        words += [word for one in maps for word in ("--map", one)]
        click.echo(json.dumps({**found.to_json(), "command": shlex.join(words)}, indent=1))
        return int(failed)
    click.echo(
        f"{found.n_target} target demonstrations, {found.n_pool} in the pool, {found.n_paired} paired by "
        f"{pair_by}; retrieval {found.retrieval}"
    )
    click.echo(f"Moments are compared by: {', '.join(found.compared)}.")
    if not any(name.startswith(("object", "image", "tools")) for name in found.compared):
        click.echo("Nothing says where things are: expect little, or add poses or a camera that both have.")
    if _in_joints_of_two_arms((target, pool), views, robot, mapping):
        click.echo(
            "Joints of different arms are compared: the same angles are other poses there. Describe both in "
            f"tool space, by `recap init {target} --pool {pool} --model FILE --tip NAME`."
        )
    show(_table(found))
    best = found.best
    click.echo(
        f"\nVerdict: {found.verdict}. Against holding still, over {best.horizon} actions: as "
        f"retrieved {best.ratio:.2f} [{best.ratio_low:.2f}, {best.ratio_high:.2f}], moved to the robot "
        f"{best.corrected_ratio:.2f} [{best.low:.2f}, {best.high:.2f}]."
    )
    click.echo(f"Recommended chunk_size: {found.chunk_size}.")
    if best.corrected > 0:
        click.echo(
            f"A perfect retriever would leave {best.perfect / best.corrected:.0%} of that residual at this "
            "length; the rest is what better retrieval could save."
        )
    poor = [str(row.horizon) for row in found.rows if row.corrected_ratio >= 1]
    if poor and not failed:
        click.echo(
            f"At lengths {', '.join(poor)} it is no nearer than holding still: more demonstrations help."
        )
    if not found.n_paired:
        click.echo("Nothing is paired: no scene is on both sides, so 'as paired' says what 'corrected' says.")
    _list_pairs(found, worst)
    click.echo(f"({found.wall_s:.1f} s)")
    click.echo(f"Next: {_next_step(views[0], found, robot_file, retrieval)}")
    return int(failed)


def _in_joints_of_two_arms(
    places: Sequence[str], views: Sequence[PoolView], robot: RobotSpec | None, mapping: Mapping[str, str]
) -> bool:
    """Whether both are in joints, of different arms; datasets are known by the names of their numbers."""
    from pathlib import Path

    from recap.errors import RecapError
    from recap.pool.importers import open_source
    from recap.robot_draft import draft, read_data
    from recap.robot_draft_text import is_other

    first, shown = (view.episode(view.episode_ids[0]) for view in views)
    other, robot = first.embodiment != shown.embodiment, robot or getattr(views[0], "robot", None)
    if robot is None:
        try:
            sides = [read_data(open_source(Path(place), mapping=mapping)) for place in places]
            other, robot = is_other(*sides), draft(sides[0]).robot
        except (RecapError, OSError):  # no datasets: standard pools and snapshots
            return False
    return other and any(feature.kind == "joint" for feature in robot.proprio)


def _next_step(target: PoolView, found: Check, robot_file: str | None, retrieval: str | None) -> str:
    """What to do with these data: look at a match, or train, by a suite's recipe where one fits the robot."""
    from recap.pool.view import robot_of
    from recap.robot import load_robot
    from recap.training.check import HOLDS
    from recap.training.presets import preset

    if not found.verdict.startswith(HOLDS):
        if found.best.perfect > 0.8 * found.best.corrected:
            return "more demonstrations, for no retrieval would do much better; then this command again"
        chosen = "" if retrieval is None else f" --retrieval {retrieval}"
        moment = f"recap retrieve {found.pool} --at {found.pairs[0].matched_id}:0{chosen} --explain"
        return f"see what is matched with {moment}, or choose another retrieval with --retrieval FILE"
    first = target.episode(target.episode_ids[0])
    robot = robot_of(target) if robot_file is None else load_robot(robot_file)
    assert robot is not None  # there is a demonstration
    config = _recipe(robot, first)
    if config is None and not first.images and not first.objects:
        return "a camera or poses of objects, for a policy has to see more than the robot itself"
    name = f"{robot_file or 'robot.yaml'} --size small" if config is None else config.preset
    length = f"--set policy.chunk_size={found.chunk_size}"
    if found.chunk_size < (config or preset("small", robot=robot)).policy.n_action_steps:
        length += f" --set policy.n_action_steps={found.chunk_size}"
    length += "" if retrieval is None else f" --retrieval {retrieval}"
    train = f"recap train {name} --target {found.target} --pool {found.pool} {length}"
    if config is None and robot_file is None:
        return f"recap init {found.target} --pool {found.pool} --out robot.yaml, then {train}"
    return train


def _recipe(robot: RobotSpec, first: Episode) -> TrainConfig | None:
    """The recipe of a suite that fits robot and data, a small one where there is one."""
    from recap.retrieval.presets import find_retrieval
    from recap.robot import difference
    from recap.suites import suites

    fitting = []
    for config in (config for suite in suites().values() for config in suite.training_presets().values()):
        describer, _ = find_retrieval(config.policy.retrieval_name, config.policy.robot)
        known = describer.requires.missing(first.objects, first.goal) is None
        if known and difference(config.policy.robot, robot) is None:
            fitting.append(config)
    small = (config for config in fitting if config.preset.endswith("-small"))
    return next(small, next(iter(fitting), None))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"cannot read --horizons '{text}': give lengths, such as 1,4,8") from None


def _table(found: Check) -> RenderableType:
    from rich.console import Group

    from recap.evaluation.summary import number_table

    ratios = ("retrieved\n/ still", "corrected\n/ still \\[95 %]")
    names = ("chunk", "still", "retrieved", "corrected", "as\npaired", "perfect", *ratios)
    rows = []
    for row in found.rows:
        numbers = (row.still, row.residual, row.corrected, row.paired, row.perfect)
        ratio = f"{row.corrected_ratio:.2f} \\[{row.low:.2f}, {row.high:.2f}]"
        rows.append([str(row.horizon), *(f"{x:.3g}" for x in numbers), f"{row.ratio:.2f}", ratio])
    note = (
        f"RMS in units of the actions over {found.n_moments} moments; holding still: {found.still}. "
        "Corrected: moved to begin where the robot is. As paired: with the scene's twin, as training has it."
    )
    return Group(number_table(names, rows, 1), "", note)


def _list_pairs(found: Check, worst: int) -> None:
    flagged = found.misaligned
    click.echo(f"Pairs that are probably mis-aligned: {len(flagged)} of {len(found.pairs)}.")
    for pair in found.pairs[: max(worst, len(flagged))]:
        mark = "mis-aligned  " if pair.misaligned else ""
        stuck = f", stuck on one moment for {pair.plateau} looks" if pair.plateau > 3 else ""
        click.echo(f"  {mark}{pair.episode_id}: ratio {pair.ratio:.2f}, mostly {pair.matched_id}{stuck}")
