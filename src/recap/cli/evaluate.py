"""`recap eval` and `recap compare`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recap.agent_config import EXPERT, HOLD, AgentConfig
from recap.cli.settings import HELP, DottedCommand, agent_options, dotted
from recap.errors import InputError, one_of

if TYPE_CHECKING:
    from recap.evaluation.spec import EvalSpec
    from recap.types import EpisodeResult

WITH_CONFIG = ("config_file", "workers", "batch_size", "ray_address", "record", "retry_errors", "out")
OFFLINE = ("offline", "policy", "target", "pool", "episodes", "record", "rrd", "as_json", "out", *HELP)
WITHOUT = ("reaction", "min_confidence", "gate", "gate_patience", "gate_tolerance")  # offline: it always acts
OFFLINE = tuple(name for name in OFFLINE if name not in WITHOUT)


@click.command("eval", cls=DottedCommand, prefix="env")
@click.argument("policy", required=False)
@click.option("--env", help="Environment: see above.  [default: where a shipped policy comes from]")
@click.option("--map", "env_map", metavar="FILE", help="Mapping file of a Gymnasium environment.")
@click.option("--tasks", metavar="A,B", help="Tasks, with commas; or first:last:step.  [default: all]")
@click.option(
    "--seeds", metavar="A:B", help="Starts: 42,43 or first:end (end left out).  [default: the env's]"
)
@click.option("--max-steps", type=int, metavar="N", help="Step limit of an episode.  [default: the task's]")
@click.option("--pool", metavar="URI", help="Pool to retrieve from.  [default: the env's own]")
@click.option("--objects", default="truth", show_default=True, help="Object poses: truth or pixels.")
@click.option("--pose-noise", metavar="A,DEG", help="Noise on poses: A in the unit of positions, degrees.")
@click.option("--thresholds", metavar="A,B", help="Success thresholds, ascending.  [default: the env's]")
@agent_options()
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Processes on this machine.  [default: one a core]"
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    metavar="N",
    default=8,
    show_default=True,
    help="Episodes in each.",
)
@click.option("--ray", "ray_address", metavar="ADDRESS", help="Run on this Ray cluster instead: host:port.")
@click.option(
    "--record",
    metavar="WHAT",
    help="Episodes to record: 3 (the first three), failures, all, or TASK:SEED; failures,3 for both.",
)
@click.option("--retry-errors", is_flag=True, help="Rerun episodes that ended in an error.")
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), metavar="FILE", help="Saved configuration."
)
@click.option("--offline", is_flag=True, help="Evaluate on demonstrations, without an env: see above.")
@click.option("--target", metavar="URI", help="Offline: demonstrations of the robot.")
@click.option("--episodes", metavar="WHICH", help="Offline: all, or numbers: 0:10.  [default: held-out ones]")
@click.option("--rrd", is_flag=True, help="Offline: also write recordings for rerun.")
@click.option("--json", "as_json", is_flag=True, help="Offline: print JSON.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="[default: runs/eval-POLICY-ENV]")
def evaluate(
    policy: str | None,
    env: str | None,
    env_map: str | None,
    tasks: str | None,
    seeds: str | None,
    max_steps: int | None,
    pool: str | None,
    objects: str,
    pose_noise: str | None,
    thresholds: str | None,
    agent: Callable[[str], AgentConfig],
    workers: int | None,
    batch_size: int,
    ray_address: str | None,
    record: str | None,
    retry_errors: bool,
    config_file: Path | None,
    offline: bool,
    target: str | None,
    episodes: str | None,
    rrd: bool,
    as_json: bool,
    out: Path | None,
) -> int:
    """Roll out a policy and count its successes.

    POLICY is expert, replay, hold, a trained policy (name of an included one, or a path), or
    package.module:factory for your own agent. ENV is an installed suite (pusht, dualarm),
    package.module:factory, or a Gymnasium id with --map; pass its own options as --env.NAME VALUE. To resume
    a stopped evaluation, repeat the command. Results are written to DIR/eval_info.json. The exit code is 1 if
    any episode ended in an error.

    With --offline no env is needed: chunks predicted by the policy (or several, separated by commas), replay,
    holding still and the mean action are compared with the demonstrations of --target that training held out.
    Results are written to DIR/offline.json, with a film of the first demonstration.

    \b
    Example:
      recap eval expert --env pusht --env.pusher triangle --tasks=-30,45 --seeds 500:505 --out runs/first
      recap eval replay --env pusht --env.pusher triangle --retrieval contact --objects pixels --seeds 500:505
      recap eval pusht-nano --env.pusher triangle --tasks=-30,0 --seeds 500:505 --out runs/nano
      recap eval replay --settings-of pusht-nano --env.pusher triangle --tasks=-30,0 --seeds 500:505
      recap eval replay --env dualarm --tasks lift_pot --seeds 500:510 --pool pools/ur5e --out runs/pots
      recap eval runs/mine/best --offline --target data/robot --pool pools/mine --out runs/offline
    """
    from recap.cli.ranges import parse_numbers, parse_seeds
    from recap.cli.terminal import progress_bar, say, show
    from recap.evaluation.agents import find_factory
    from recap.evaluation.film import parse_choice
    from recap.evaluation.run_directory import INFO, read_info
    from recap.evaluation.runner import evaluate as run_evaluation
    from recap.evaluation.settings import command_of, control_of
    from recap.evaluation.spec import EvalSpec
    from recap.evaluation.summary import render_summary

    if offline:
        from recap.cli.offline import evaluate_offline

        _refuse_beside("--offline", OFFLINE)
        names = (policy or "replay").split(",")
        out = out or Path("runs") / re.sub(r"[^A-Za-z0-9._-]+", "-", f"offline-{names[0]}")
        configs = [agent(name) for name in names]
        return evaluate_offline(configs, (target, pool), episodes, record or "1", rrd, as_json, out)
    if target or episodes or rrd or as_json:
        raise InputError("--target, --episodes, --rrd and --json need --offline: add it")
    if config_file is not None:
        _refuse_beside("--config", WITH_CONFIG)
        spec = read_spec(config_file)
        find_factory(spec.agent.policy)
    else:
        if policy is None:
            raise InputError("no policy given: name one, such as expert, replay or pusht-nano")
        config = agent(policy)
        find_factory(policy)  # refuse an unknown name before anything is loaded
        env = env or _env_of(config)
        spec = EvalSpec(
            config,
            env,
            dotted(),
            env_map,
            tasks=() if tasks is None else _tasks(tasks, env, env_map),
            seeds=() if seeds is None else parse_seeds(seeds),
            max_steps=max_steps,
            thresholds=() if thresholds is None else parse_numbers(thresholds),
            pool=pool,
            objects=one_of("objects", objects, ("truth", "pixels")),  # type: ignore[arg-type]
            pose_noise=_pose_noise(pose_noise),
        )
    choice = parse_choice(record, spec) if record is not None else None
    say(f"Loading {spec.agent.policy} for {spec.env} …")
    if out is None:
        out = Path("runs") / re.sub(r"[^A-Za-z0-9._-]+", "-", f"eval-{spec.agent.policy}-{spec.env}")
    try:
        with progress_bar("episodes") as progress:
            summary = run_evaluation(
                spec,
                out,
                workers=(os.cpu_count() or 1) if workers is None else workers,
                batch_size=batch_size,
                ray_address=ray_address,
                retry_errors=retry_errors,
                progress=progress,
            )
    except KeyboardInterrupt as stop:
        click.echo(f"recap: {str(stop) or 'stopped'}", err=True)
        return 130
    show(render_summary(summary))
    results = read_info(out)[1]
    if choice is not None:
        _record(spec, [result for result in results if choice(result)], out / "videos")
    click.echo(f"Results: {out / INFO}")
    if summary.n_errors:
        guilty = next(r for r in results if r.outcome == "error")
        last_line = (guilty.error or "").strip().splitlines()[-1:]
        click.echo(f"First error, {guilty.task}:{guilty.seed}: {''.join(last_line)}")
        click.echo("Next: mend the agent, then give the same command with --retry-errors")
        return 1
    control = control_of(spec)
    if control is not None:
        click.echo(f"Its control: {command_of(control)}")
    click.echo(f"Next: recap compare {out} OTHER_RUN, or the same command with --record failures for videos")
    return 0


@click.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(a: Path, b: Path, as_json: bool) -> None:
    """Compare two evaluations, paired by start.

    A and B are run directories or their eval_info.json. Differences are B minus A, with 95 % intervals over
    start seeds. All settings in which the two differ are listed first.

    \b
    Example:
      recap compare runs/eval-hold-pusht runs/eval-expert-pusht
    """
    import json

    from recap.cli.terminal import show
    from recap.evaluation.run_directory import read_info, read_provenance
    from recap.evaluation.settings import recorded_settings
    from recap.evaluation.summary import compare as pair
    from recap.evaluation.summary import render_comparison

    runs = read_info(a), read_info(b)
    of_a, of_b = (recorded_settings(read_provenance(path)) for path in (a, b))
    comparison = pair(*runs, (of_a, of_b))
    if as_json:
        click.echo(json.dumps(comparison.to_json(), indent=1))
        return
    click.echo(f"A: {a}\nB: {b}")
    show(render_comparison(comparison))
    click.echo("Next: recap eval … --record failures shows where each of them fails")


def read_spec(file: Path) -> EvalSpec:
    """Read a saved evaluation config: config.json, eval_info.json or your own file."""
    from recap import config as configs
    from recap.evaluation.spec import EvalSpec

    values = configs.load_file(file)
    if isinstance(values, dict) and "episodes" in values:
        values = values.get("config")
    return EvalSpec.from_json(values, str(file))


def _refuse_beside(option: str, known: Sequence[str]) -> None:
    """Refuse options that cannot be combined with that option."""
    context = click.get_current_context()
    for param in (param for param in context.command.params if param.name not in known):
        if context.get_parameter_source(str(param.name)) is click.core.ParameterSource.COMMANDLINE:
            word = param.opts[0] if isinstance(param, click.Option) else str(param.name).upper()
            raise InputError(f"{option} cannot be combined with {word}: leave {word} out")
    for name in dotted():
        raise InputError(f"{option} cannot be combined with --env.{name}: leave --env.{name} out")


def _env_of(config: AgentConfig) -> str:
    """The name of the suite that a policy comes from."""
    from recap.assembly import suite_of
    from recap.suites import suites

    suite = suite_of(config) if config.policy not in (EXPERT, HOLD) and ":" not in config.policy else None
    if suite is None:
        known = ", ".join(suites()) or "none is installed"
        raise InputError(
            f"no env is given: --env package.module:factory is your own, --env NAME one of {known}; without "
            "any, --offline --target DATA compares with demonstrations"
        )
    return suite.name


def _tasks(text: str, env: str, env_map: str | None) -> tuple[str, ...]:
    """Parse `a,b`, a group of the suite, or `first:last:step` if tasks are numbers."""
    from recap.cli.ranges import parse_numbers
    from recap.evaluation.worlds import find_suite

    suite = find_suite(env, env_map)
    names = [name.strip() for name in text.split(",")]
    spread = [f"{n:g}" for name in names for n in parse_numbers(name)] if ":" in text else names
    return tuple(dict.fromkeys(key for name in spread for key in suite.expand(name)))


def _pose_noise(text: str | None) -> tuple[float, float]:
    """Parse `4,4` as the standard deviations of positions and of angles in degrees."""
    if text is None:
        return 0.0, 0.0
    try:
        place, deg = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"cannot read --pose-noise '{text}': give a length and degrees, such as 4,4"
        ) from None
    return place, deg


def _record(spec: EvalSpec, results: Sequence[EpisodeResult], out: Path) -> None:
    from recap.cli.terminal import progress_bar
    from recap.evaluation.film import record

    if not results:
        click.echo("Videos: none, no episode is of that kind")
        return
    n_differ = 0
    with progress_bar("videos") as progress:
        for done, recording in enumerate(record(spec, results, out), 1):
            progress(done, len(results))
            if recording.differs:
                n_differ += 1
                was, now = recording.recorded, recording.replayed
                click.echo(
                    f"{was.task}:{was.seed} ended differently when recorded: {was.outcome} after {was.steps} "
                    f"steps, now {now.outcome} after {now.steps}; the agent is not deterministic, rounds "
                    "differently in a batch, or has changed",
                    err=True,
                )
    click.echo(f"Videos: {out} (episodes: {len(results)}, ended differently: {n_differ})")
