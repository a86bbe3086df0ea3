"""`recap serve`."""

from __future__ import annotations

import os
from contextlib import suppress

import click


@click.command()
@click.argument("agent", metavar="CHECKPOINT")
@click.option(
    "--pool", metavar="URI", help="What to retrieve from; grows live.  [default: the standard pool]"
)
@click.option("--port", type=int, default=8000, show_default=True, help="0 takes any that is free.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Another one needs a token.")
@click.option(
    "--token", metavar="KEY", help="What clients must send.  [default: the variable RECAP_TOKEN, or none]"
)
@click.option(
    "--mode", help="How to retrieve: oracle, single, aligned, contact.  [default: the policy's, or aligned]"
)
@click.option("--block", default="tee", show_default=True, help="The block, where a client does not say.")
@click.option("--pusher", help="The robot: disc or triangle.  [default: the policy's, or by its colour]")
@click.option(
    "--reaction",
    default="hold",
    show_default=True,
    help="To nothing retrieved or low confidence: hold, stop, ignore.",
)
@click.option("--min-confidence", type=float, default=0.0, show_default=True, help="Below it, react.")
@click.option(
    "--action-steps", type=int, metavar="N", help="Actions of a chunk to carry out.  [default: the agent's]"
)
@click.option("--max-step", type=float, default=60.0, show_default=True, help="Speed limit, px a period.")
@click.option(
    "--max-batch", type=click.IntRange(1), default=8, show_default=True, help="Requests served by one call."
)
@click.option("--device", default="cpu", show_default=True, help="Where a policy computes.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Of a policy.  [default: cores - 1]")
def serve(
    agent: str,
    pool: str | None,
    port: int,
    host: str,
    token: str | None,
    mode: str | None,
    block: str,
    pusher: str | None,
    reaction: str,
    min_confidence: float,
    action_steps: int | None,
    max_step: float,
    max_batch: int,
    device: str,
    threads: int | None,
) -> int:
    """Serve a policy to robots, on the openpi wire, with its pool over HTTP.

    CHECKPOINT is a policy (pusht-nano, pusht-small, or a path), or replay. A robot connects to ws://HOST:PORT
    and sends observations; /healthz, /metrics and /api/pool are on the same port. Demonstrations that are
    added while it runs are used at the next step. Ctrl-C ends it.

    \b
    Example:
      recap serve pusht-nano --pool pools/mine --port 8000
      recap serve replay --mode contact --pusher triangle --port 8000
      RECAP_TOKEN=a-long-secret recap serve pusht-nano --host 0.0.0.0
    """
    from typing import Any

    from recap.serving.app import build_app, run
    from recap.serving.limits import Limits
    from recap.serving.service import ServeSpec, Service

    chosen: Any = reaction
    spec = ServeSpec(
        agent=agent,
        pool=pool,
        mode=mode or "",
        block=block,
        pusher=pusher,
        reaction=chosen,
        min_confidence=min_confidence,
        n_action_steps=action_steps,
        device=device,
        n_threads=threads,
        host=host,
        port=port,
        token=token or os.environ.get("RECAP_TOKEN") or None,
        limits=Limits(max_step=max_step, max_batch=max_batch),
    )
    service = Service.open(spec)

    def ready(bound: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        view = service.pool.view()
        kind = "grows live" if service.is_writable else "a snapshot: give --pool to add demonstrations"
        click.echo(f"Serving: {agent}, fingerprint {service.fingerprint}")
        click.echo(f"Pool: version {view.version}, {len(view.episode_ids)} demonstrations ({kind})")
        click.echo(f"Robots: ws://{shown}:{bound}")
        click.echo(
            f"Next: curl http://{shown}:{bound}/api/pool?limit=3, or see docs/how-to/serve-a-policy.md"
        )

    with suppress(KeyboardInterrupt):
        run(build_app(service), spec, ready)
    click.echo("Stopped.")
    return 0
