"""`recap serve`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import click

from recap.agent_config import AgentConfig
from recap.cli.settings import DottedCommand, agent_options, dotted
from recap_client.options import named_numbers


@click.command(cls=DottedCommand, prefix="env")
@click.argument("policy")
@click.option(
    "--pool", metavar="URI", help="What to retrieve from; grows live.  [default: the policy's env's own]"
)
@click.option(
    "--robot", metavar="FILE", help="robot.yaml, to replay.  [default: as the env or the pool says]"
)
@click.option("--port", type=int, default=8000, show_default=True, help="0 takes any that is free.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Another one needs a token.")
@click.option(
    "--token", metavar="KEY", help="What clients must send.  [default: the variable RECAP_TOKEN, or none]"
)
@click.option(
    "--log", "usage_log", metavar="FILE", help="Write which demonstrations each robot used, for pool blame."
)
@agent_options("settings_of", "matching", "mask")
@click.option("--max-step", multiple=True, metavar="FEATURE=N", help="A lower speed limit a control period.")
@click.option(
    "--max-batch", type=click.IntRange(1), default=8, show_default=True, help="Requests served by one call."
)
@click.option(
    "--drain",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="That robots have to finish their episode after SIGTERM.",
)
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Of a policy.  [default: cores - 1]")
def serve(
    policy: str,
    pool: str | None,
    robot: str | None,
    port: int,
    host: str,
    token: str | None,
    usage_log: str | None,
    agent: Callable[[str], AgentConfig],
    max_step: tuple[str, ...],
    max_batch: int,
    drain: float,
    threads: int | None,
) -> int:
    """Serve a policy to robots, on the openpi wire, with its pool over HTTP.

    POLICY is a trained policy (by shipped name, or a path), or replay. A robot connects to ws://HOST:PORT and
    sends observations; /healthz, /readyz, /metrics and /api/pool are on the same port. Demonstrations that
    are added while it runs are used at the next step. Options of the policy's env are given as --env.NAME
    VALUE. Ctrl-C ends it. SIGTERM ends it gently: no new connections, robots finish their episode, exit code
    0. Any number of servers may share a pool.

    \b
    Example:
      recap serve pusht-nano --pool pools/mine --port 8000
      recap serve dualarm-small --pool pools/ur5e --port 8000
      recap serve replay --robot robot.yaml --pool pools/mine
      RECAP_TOKEN=a-long-secret recap serve pusht-nano --host 0.0.0.0
    """
    from recap.cli.terminal import say

    say(f"Loading {policy} …")  # before what takes seconds to import
    from recap.serving.app import build_app, run
    from recap.serving.service import ServeSpec, Service
    from recap.serving.spec import Limits

    spec = ServeSpec(
        agent(policy),
        pool=pool,
        robot=robot,
        options=dotted(),
        max_step=named_numbers(max_step, "--max-step"),
        n_threads=threads,
        host=host,
        port=port,
        token=token or os.environ.get("RECAP_TOKEN") or None,
        usage_log=usage_log,
        limits=Limits(max_batch=max_batch, drain_s=drain),
    )
    service = Service.open(spec, say)

    def ready(bound: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        view = service.pool.view()
        kind = "grows live" if service.is_writable else "does not grow: recap pool create makes one that does"
        click.echo(f"Serving: {policy}, fingerprint {service.fingerprint}")
        click.echo(f"Pool: version {view.version}, {len(view.episode_ids)} demonstrations ({kind})")
        who = service.sent
        click.echo(f"Robot: {who.name}, {who.act.size}-D actions, {who.control_hz:g} Hz")
        unusable = service.agent.retriever.index().unusable
        if unusable:
            click.echo(
                f"Not used: {len(unusable)} demonstrations, see recap pool verify POOL --policy {policy}"
            )
        click.echo(f"Robots: ws://{shown}:{bound}")
        click.echo(f"Next: recap run --robot package.module:factory --url ws://{shown}:{bound} --dry-run")

    with suppress(KeyboardInterrupt):
        run(build_app(service), spec, ready)
    click.echo("Stopped.")
    return 0
