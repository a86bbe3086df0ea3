"""`recap pool index`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recap.cli.pool_look import opened

if TYPE_CHECKING:
    from recap.pool.live import LiveView
    from recap.robot import RobotSpec


@click.command()
@click.argument("uri", metavar="POOL")
@click.option("--policy", required=True, metavar="POLICY", help="Policy or retrieval to prepare for.")
@click.option("--ray", "ray_address", metavar="ADDRESS", help="Spread the work over a Ray cluster.")
def index(uri: str, policy: str, ray_address: str | None) -> None:
    """Compute the descriptors that retrieval needs, before a policy is started.

    A policy computes missing descriptors when it starts, which takes long with image encoders and a large
    pool. This command stores them in the pool. To resume an interrupted run, repeat the command.

    With --ray, every node of the cluster must reach the pool by the same path or s3:// address, and have the
    same version of recap. Object-store keys are not sent: start each node (`ray start`) with the AWS_
    variables that it needs.

    \b
    Example:
      recap pool index pools/mine --policy world
      recap pool index s3://bucket/pool --policy runs/mine/best --ray 10.0.0.1:6379
    """
    from recap.cli.terminal import progress_bar
    from recap.retrieval.building import build_descriptors
    from recap.retrieval.presets import find_retrieval

    store = opened(uri)
    if not len(store):
        click.echo("The pool is empty: there is nothing to describe")
        return
    name, robot, _ = reading(store.view(), policy)
    describer, _ = find_retrieval(name, robot)
    with progress_bar("episodes") as progress:
        n = build_descriptors(store, name, robot, ray_address, progress)
    there = len(store) - n
    click.echo(f"Described {n} episodes ({there} were): {', '.join(describer.terms)}")
    click.echo(f"Next: recap serve {f'replay --retrieval {name}' if name == policy else policy} --pool {uri}")


def reading(view: LiveView, policy: str) -> tuple[str, RobotSpec, tuple[str, ...]]:
    """The retrieval name, robot and cameras of a policy, or of a retrieval by name or file, for a pool."""
    from recap.assembly import AgentConfig, names_checkpoint, policy_config
    from recap.robot import infer_robot

    is_file = policy.endswith((".yaml", ".yml", ".json"))
    own = policy_config(AgentConfig(policy)) if not is_file and names_checkpoint(policy) else None
    if own is not None:
        return own.retrieval_name, own.robot, tuple(own.image.retrieved) if own.sees else ()
    return policy, view.robot or infer_robot(next(iter(view))), ()
