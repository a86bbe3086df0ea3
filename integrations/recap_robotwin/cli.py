"""`recap robotwin`."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def robotwin() -> None:
    """Evaluate in your own RoboTwin 2.0 checkout.

    \b
    Example:
      recap robotwin init ~/RoboTwin/policy/ReCAP --pool pools/ur5
      recap robotwin tasks --level 2
    """


@robotwin.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--pool", metavar="POOL", help="Pool to retrieve from; can be set later.")
@click.option("--same-python", is_flag=True, help="recap is installed in RoboTwin's Python: import it there.")
def init(folder: Path, pool: str | None, same_python: bool) -> None:
    """Write the policy folder that RoboTwin's evaluation loads.

    DIR is policy/NAME in the checkout. RoboTwin usually has its own Python; recap then runs as a separate
    process in the Python that wrote the folder.

    \b
    Example:
      recap robotwin init ~/RoboTwin/policy/ReCAP --pool pools/ur5
    """
    import sys

    from recap_robotwin.folder import init_folder

    local = pool is not None and "://" not in pool
    place = str(Path(pool).absolute()) if pool is not None and local else pool
    init_folder(folder, place, None if same_python else sys.executable)
    click.echo(f"Policy folder: {folder}")
    click.echo(f"Next: set it up in {folder / 'deploy_policy.yml'}, then")
    click.echo(f"bash {folder / 'eval.sh'} lift_pot demo_clean recap 0 0")


@robotwin.command()
@click.option("--level", type=int, metavar="N", help="Only tasks in a pool of level 1 to 6.")
@click.option("--names", is_flag=True, help="Print names only, one per line.")
def tasks(level: int | None, names: bool) -> None:
    """List the paper's tasks: role, pool level, step limit.

    \b
    Example:
      recap robotwin tasks --level 2
      for task in $(recap robotwin tasks --level 2 --names); do echo "$task"; done
    """
    from recap.cli.pool_look import print_rows
    from recap_worlds.dualarm.robotwin_tasks import LEVELS, SEEN, STEP_LIMITS, UNSEEN, pool_tasks

    wanted = pool_tasks(len(LEVELS) if level is None else level)
    if names:
        click.echo("\n".join(wanted))
        return
    rows = []
    for number, added in enumerate(LEVELS, 1):
        for task in added:
            kind = "trained" if task in SEEN else "unseen" if task in UNSEEN else "pool only"
            if task in wanted:
                rows.append((task, number, kind, STEP_LIMITS.get(task, "")))
    print_rows(("task", "level", "role", "step limit"), rows, 0)
