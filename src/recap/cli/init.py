"""`recap init`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option(
    "--pool", type=click.Path(path_type=Path), metavar="DATASET", help="Other embodiment, to compare."
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("robot.yaml"), show_default=True)
@click.option(
    "--model", type=click.Path(path_type=Path), metavar="FILE", help="URDF or MJCF, for tool poses."
)
@click.option("--tip", "tips", multiple=True, metavar="NAME", help="Tool frame; for two arms left=NAME.")
@click.option("--retrieval", metavar="NAME|FILE", help="Retrieval to check against this robot.")
@click.option("--map", "maps", multiple=True, metavar="FIELD=KEY", help="Where a field comes from.")
@click.option("--format", "format_", metavar="NAME", help="Format of DATASET.  [default: recognised]")
@click.option("--fps", type=float, help="Frame rate, if the dataset does not store it.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def init(
    dataset: Path,
    pool: Path | None,
    out: Path,
    model: Path | None,
    tips: tuple[str, ...],
    retrieval: str | None,
    maps: tuple[str, ...],
    format_: str | None,
    fps: float | None,
    force: bool,
) -> None:
    """Write robot.yaml, a description of DATASET's robot, for you to check.

    Features and their kinds are inferred from names, shapes and ranges; cameras, rate and limits come from
    the data. With a kinematic model the description is in tool space, which pools of other embodiments
    require. A retrieval is checked against the robot and included in the suggested next commands.

    \b
    Example:
      recap init data/arm --out robot.yaml
      recap init data/arm --pool data/hand --model arm.urdf --tip tool --out robot.yaml
    """
    from dataclasses import replace

    from recap.cli.importing import parse_mapping, read_as
    from recap.errors import InputError
    from recap.pool.importers import open_source
    from recap.retrieval.presets import find_retrieval
    from recap.robot import infer_robot, load_robot
    from recap.robot_draft import draft, read_data
    from recap.robot_draft_text import compare, is_other, render
    from recap.run_directory import write_whole

    if out.exists() and not force:
        raise InputError(f"{out} is there already: give another --out, or --force to overwrite it")
    mapping = parse_mapping(maps)
    data = read_data(open_source(dataset, format=format_, mapping=mapping, fps=fps))
    made = draft(data, model, tips, out)
    chosen, compared = "" if retrieval is None else f" --retrieval {retrieval}", ""
    if retrieval is not None:  # check it before anything is written
        seen = infer_robot(data.episodes[0])
        describer, _ = find_retrieval(
            retrieval, replace(made.robot, cameras=seen.cameras, objects=seen.objects)
        )
        compared = f"Retrieval {retrieval} compares: {', '.join(describer.terms)}"
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, render(made, data))
    robot = load_robot(out)
    click.echo(f"Robot: {robot.name}, {robot.body.size} numbers in the state, {robot.act.size} in an action")
    cameras = ", ".join(robot.cameras) or "none"
    click.echo(f"Cameras: {cameras}; {robot.control_hz:g} Hz; written to {out}")
    if compared:
        click.echo(compared)
    for line in made.unsure:
        click.echo(f"Unsure: {line}")
    mapped = read_as(maps, format_, fps)
    steps = [f"recap pool create pools/{robot.name} --robot {out}"]
    steps.append(f"recap pool add pools/{robot.name} {dataset}{mapped}")
    other = None if pool is None else read_data(open_source(pool, format=format_, mapping=mapping, fps=fps))
    for line in () if other is None else compare(data, other, made):
        click.echo(line)
    in_joints = any(feature.kind == "joint" for feature in robot.proprio)
    if other is not None and in_joints and is_other(data, other):
        steps = [f"recap init {dataset} --pool {pool}{mapped} --model MODEL --tip NAME --out {out} --force"]
    else:
        name = robot.name
        if other is not None:
            name = other.embodiment if other.embodiment != robot.name else f"{robot.name}_pool"
            given = ""
            if robot.kinematics is not None and is_other(data, other):
                own = out.with_name(f"{name}.yaml")
                given = f" --robot {own}"
                if not own.exists():
                    steps.append(f"recap init {pool} --model MODEL --tip NAME{mapped} --out {own}")
            steps.append(f"recap pool create pools/{name} --robot {out}")
            steps.append(f"recap pool add pools/{name} {pool}{mapped}{given}")
        both = f"--target pools/{robot.name} --pool pools/{name}"
        steps.append(f"recap check pools/{robot.name} pools/{name}{chosen}")
        steps.append(f"recap train {out} {both} --size small{chosen}")
    click.echo("Next: look through the file, then")
    for step in steps:
        click.echo(f"  {step}")
