"""`recap check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recap.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from recap.pool.view import PoolView
    from recap.robot import RobotSpec
    from recap.training.check import Check
    from recap.training.config import TrainConfig
    from recap.types import Episode


@click.command()
@click.argument("target")
@click.argument("pool")
@click.option("--robot", "robot_file", metavar="FILE", help="Robot description.  [default: the target's]")
@click.option("--retrieval", metavar="NAME|FILE", help="How to retrieve.  [default: as the data allow]")
@click.option(
    "--horizons", default="1,2,4,8,16,32", show_default=True, metavar="N,N…", help="Chunk lengths to try."
)
@click.option(
    "--moments", type=click.IntRange(4), default=3000, show_default=True, metavar="N", help="Queries."
)
@click.option(
    "--map", "maps", multiple=True, metavar="FIELD=KEY", help="As in recap pool add, for both; repeatable."
)
@click.option("--pair-by", default="scene", show_default=True, metavar="RULE", help="As in recap train.")
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
    """Check before training whether a pool is worth retrieving from.

    TARGET contains demonstrations of the robot, POOL those of the other embodiment. Each is a pool, a packed
    snapshot, a standard pool, or a dataset that recap pool add can import. For moments of the target, the
    retrieved actions and holding still are compared with what the robot did. This takes about a minute on a
    CPU. The exit code is 1 if the check fails.

    \b
    Example:
      recap check pusht-triangle pusht-9x100
      recap check data/robot data/hand --robot robot.yaml --json > check.json
    """
    import json
    import shlex

    from recap.cli.importing import parse_mapping
    from recap.cli.terminal import progress_bar, say, show
    from recap.features.estimators import prepared
    from recap.pool.opening import open_demonstrations
    from recap.robot import load_robot
    from recap.training.check import FAILS, check_pool

    mapping = parse_mapping(maps)
    robot = None if robot_file is None else load_robot(robot_file)
    say(f"Reading {target} and {pool} …")
    views = [open_demonstrations(place, mapping, prepared(robot), pair_by) for place in (target, pool)]
    with progress_bar("retrieval for demonstrations") as progress:
        found = check_pool(
            *views,
            names=(target, pool),
            robot=robot,
            retrieval=retrieval,
            horizons=_numbers(horizons),
            n_moments=moments,
            progress=progress,
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
        click.echo("No object pose or shared camera locates the objects. Add one: otherwise expect little.")
    lacking = [] if robot is None else sorted(set(robot.cameras) - set(_cameras(views)))
    if lacking:
        click.echo(f"Not compared: camera '{lacking[0]}', for {' and '.join(_lacking(views, lacking[0]))}.")
    others = _joints_of_two_arms((target, pool), views, robot, mapping, failed)
    if others:
        click.echo(others)
    show(_table(found))
    best = found.best
    click.echo(
        f"\nVerdict: {found.verdict}. Against holding still, over {best.horizon} actions: as "
        f"retrieved {best.ratio:.2f} [{best.ratio_low:.2f}, {best.ratio_high:.2f}], moved to the robot "
        f"{best.corrected_ratio:.2f} [{best.low:.2f}, {best.high:.2f}]."
    )
    if not failed:
        click.echo(f"Recommended chunk_size: {found.chunk_size}.")
    if best.corrected > 0:
        click.echo(
            f"A perfect retriever would leave {best.perfect / best.corrected:.0%} of that residual at this "
            "length; the rest is what better retrieval could save."
        )
    if not found.n_paired:
        click.echo(
            "Nothing is paired: no scene is on both sides, so 'as paired' says what 'corrected' says. Where "
            "demonstrations belong together, --pair-by order, column:NAME or FILE.csv says which."
        )
    _list_pairs(found, worst)
    click.echo(f"({found.wall_s:.1f} s)")
    if others:
        are_data = not any(getattr(view, "robot", None) for view in views)
        init = f"recap init {target} --pool {pool}" if are_data else "recap init DATASET"
        each = ", which says how to go on" if are_data else ", for the dataset of each, and import them anew"
        click.echo(f"Next: {init} --model FILE --tip NAME --out robot.yaml{each}")
    else:
        click.echo(f"Next: {_next_step(views[0], found, robot_file, retrieval, pair_by)}")
    return int(failed)


def _cameras(views: Sequence[PoolView]) -> set[str]:
    """The cameras that all views have."""
    return set.intersection(*(set(view.episode(view.episode_ids[0]).images) for view in views))


def _lacking(views: Sequence[PoolView], camera: str) -> Iterator[str]:
    """The datasets without that camera, with the cameras that they have."""
    for what, view in zip(("target", "pool"), views, strict=True):
        cameras = view.episode(view.episode_ids[0]).images
        if camera not in cameras:
            yield f"the {what} has {', '.join(cameras) or 'none'}"


def _joints_of_two_arms(
    places: Sequence[str],
    views: Sequence[PoolView],
    robot: RobotSpec | None,
    mapping: Mapping[str, str],
    failed: bool,
) -> str:
    """A warning if joints of different arms are compared; datasets are told apart by their column names."""
    from pathlib import Path

    from recap.compatible import foreign_joints_warning
    from recap.errors import RecapError
    from recap.pool.importers import open_source
    from recap.robot_draft import draft, read_data
    from recap.robot_draft_text import is_other

    names = [view.episode(view.episode_ids[0]).embodiment for view in views]
    robot = robot or next(filter(None, (getattr(view, "robot", None) for view in views)), None)
    if robot is None:
        try:
            sides = [read_data(open_source(Path(place), mapping=mapping)) for place in places]
            robot = draft(sides[0]).robot
        except (RecapError, OSError):  # standard pools and snapshots are no datasets
            return ""
        if len(set(names)) < 2 and is_other(*sides):
            names = list(places)
    unsaid = failed and set(names) <= {"", "unknown"}
    text = foreign_joints_warning(robot, places if unsaid else names)
    return f"Neither names its robot. Perhaps {text[0].lower()}{text[1:]}" if unsaid and text else text


def _next_step(
    target: PoolView, found: Check, robot_file: str | None, retrieval: str | None, pair_by: str
) -> str:
    """The suggested next command: look at a match, or train, with a suite's recipe if one fits the robot."""
    from pathlib import Path

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
    if robot_file is None and "://" not in found.target and getattr(target, "robot", None) is not None:
        own = Path(found.target) / "robot.json"  # a pool's description is enough to train with
        robot_file = str(own) if own.exists() else None
    name = f"{robot_file or 'robot.yaml'} --size small" if config is None else config.preset
    length = f"--set policy.chunk_size={found.chunk_size}"
    if found.chunk_size < (config or preset("small", robot=robot)).policy.n_action_steps:
        length += f" --set policy.n_action_steps={found.chunk_size}"
    length += "" if retrieval is None else f" --retrieval {retrieval}"
    length += "" if pair_by == "scene" else f" --pair-by {pair_by}"
    train = f"recap train {name} --target {found.target} --pool {found.pool} {length}"
    if config is None and robot_file is None:
        return f"recap init {found.target} --pool {found.pool} --out robot.yaml, then {train}"
    return train


def _recipe(robot: RobotSpec, first: Episode) -> TrainConfig | None:
    """A suite's recipe that fits the robot, its cameras and the data, preferably a small one; else None."""
    from recap.retrieval.presets import find_retrieval
    from recap.robot import difference
    from recap.suites import suites

    fitting = []
    for config in (config for suite in suites().values() for config in suite.training_presets().values()):
        describer, _ = find_retrieval(config.policy.retrieval_name, config.policy.robot)
        known = describer.requires.missing(first.objects, first.goal) is None
        alike = set(config.policy.robot.cameras) == set(first.images)
        if known and alike and difference(config.policy.robot, robot) is None:
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
        f"RMS in {found.unit} over {found.n_moments} moments; holding still: {found.still}. "
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
