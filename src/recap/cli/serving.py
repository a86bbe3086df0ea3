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
    "--pool", metavar="URI", help="Pool; may grow while serving.  [default: the policy's env's own]"
)
@click.option(
    "--robot", metavar="FILE", help="robot.yaml, for replay.  [default: as the env or the pool says]"
)
@click.option("--port", type=int, default=8000, show_default=True, help="Port; 0 for any free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Others than loopback need a token.")
@click.option(
    "--token", metavar="KEY", help="Token for clients.  [default: the variable RECAP_TOKEN, or none]"
)
@click.option(
    "--log", "usage_log", metavar="FILE", help="Log which demonstrations each robot used, for pool blame."
)
@agent_options("settings_of", "matching", "mask")
@click.option("--max-step", multiple=True, metavar="FEATURE=N", help="Tighter limit per control step.")
@click.option(
    "--max-batch", type=click.IntRange(1), default=8, show_default=True, help="Most requests per batch."
)
@click.option(
    "--drain",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds for robots to finish their episode after SIGTERM.",
)
@click.option("--threads", type=click.IntRange(1), metavar="N", help="CPU threads.  [default: cores - 1]")
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
    """Serve a policy to robots over openpi's protocol, and its pool over HTTP.

    POLICY is a trained policy (name of an included one, or a path), or replay. A robot connects to
    ws://HOST:PORT and sends observations; /healthz, /readyz, /metrics and /api/pool are on the same port.
    Demonstrations added while it runs are used at the next step. Pass options of the policy's env as
    --env.NAME VALUE. Ctrl-C ends it. SIGTERM shuts it down gracefully: no new connections, robots finish
    their episode, exit code 0. Any number of servers may share a pool.

    \b
    Example:
      recap serve pusht-nano --pool pools/mine --port 8000
      recap serve dualarm-small --pool pools/ur5e --port 8000
      recap serve replay --robot robot.yaml --pool pools/mine
      RECAP_TOKEN=a-long-secret recap serve pusht-nano --host 0.0.0.0
    """
    from recap.cli.terminal import say

    say(f"Loading {policy} …")  # the imports take seconds
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
        who = service.wire_robot
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
