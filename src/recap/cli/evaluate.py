"""`recap eval` and `recap compare`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recap.errors import InputError

if TYPE_CHECKING:
    from recap.evaluation.spec import EvalSpec
    from recap.types import EpisodeResult

ANGLES = "-60:60:15"
SEEDS = "42:92"


@click.command("eval")
@click.argument("agent")
@click.option(
    "--settings-of", metavar="POLICY", help="Replay with this policy's settings: its equal control."
)
@click.option("--env", default="pusht", show_default=True, help="Where it acts: pusht or dualarm.")
@click.option("--pusher", default="disc", show_default=True, help="disc or triangle.")
@click.option("--block", default="tee", show_default=True, help="The block that is pushed.")
@click.option("--angles", default=ANGLES, show_default=True, help="Goals, degrees: -60,0 or first:last:step.")
@click.option(
    "--task", "tasks", multiple=True, metavar="KEY", help="Of two arms, repeatable.  [default: all ten]"
)
@click.option("--embodiment", default="viperx", show_default=True, help="The two arms: viperx or ur5e.")
@click.option("--split", default="clean", show_default=True, help="How their scenes look: clean, randomised.")
@click.option("--wording", default="seen", show_default=True, help="Of their instructions: seen or unseen.")
@click.option("--seeds", default=SEEDS, show_default=True, help="Starts: 42,43 or first:end (end left out).")
@click.option(
    "--mode", help="How to retrieve: oracle, single, aligned, contact.  [default: the policy's, or aligned]"
)
@click.option("--pool", metavar="URI", help="What to retrieve from.  [default: the standard pool]")
@click.option(
    "--candidates", type=int, metavar="N", help="Trajectories stage 1 keeps.  [default: the mode's]"
)
@click.option("--objects", default="truth", show_default=True, help="Poses from: truth, pixels.")
@click.option("--min-confidence", type=float, default=0.0, show_default=True, help="Below it, react.")
@click.option(
    "--reaction",
    default="hold",
    show_default=True,
    help="To nothing retrieved or low confidence: hold, stop, ignore.",
)
@click.option(
    "--action-steps", type=int, metavar="N", help="Actions of a chunk to execute.  [default: the agent's]"
)
@click.option("--hindsight/--no-hindsight", default=None, help="Retrieve parts too.  [default: the agent's]")
@click.option("--denoising-steps", type=int, metavar="N", help="Of a policy.  [default: its own]")
@click.option("--temperature", type=float, help="Of a policy's noise.  [default: its own]")
@click.option("--sampler", help="Of a policy: euler or unipc.  [default: its own]")
@click.option(
    "--matching",
    default="retrieved",
    show_default=True,
    help="What a policy is given: retrieved, random, none.",
)
@click.option("--residual/--no-residual", default=True, help="Without it what is retrieved is acted out.")
@click.option(
    "--half-at", type=float, default=0.0, metavar="D", help="Match distance that halves the residual."
)
@click.option("--device", default="cpu", show_default=True, help="Where a policy computes.")
@click.option("--noise-seed", type=int, default=0, show_default=True, help="Other noise, the same starts.")
@click.option("--mask", metavar="WHAT@LAYER", help="Block a policy's attention: retrieved@3, sham@all.")
@click.option("--pose-noise", metavar="A,DEG", help="Blur poses by A px, of two arms by A mm: 4,4.")
@click.option("--workers", type=int, metavar="N", help="Processes on this machine.  [default: one a core]")
@click.option("--batch-size", type=int, metavar="N", default=8, show_default=True, help="Episodes in each.")
@click.option("--ray", "ray_address", metavar="ADDRESS", help="Run on this Ray cluster instead: host:port.")
@click.option(
    "--record", metavar="WHAT", help="Films of: 3 (the first), failures, all, or +45:48; failures,3 for both."
)
@click.option("--retry-errors", is_flag=True, help="Run episodes again that ended in an error.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="[default: runs/eval-AGENT-PUSHER, or the arms]",
)
def evaluate(
    agent: str,
    settings_of: str | None,
    env: str,
    pusher: str,
    block: str,
    angles: str,
    tasks: tuple[str, ...],
    embodiment: str,
    split: str,
    wording: str,
    seeds: str,
    mode: str | None,
    pool: str | None,
    candidates: int | None,
    objects: str,
    min_confidence: float,
    reaction: str,
    action_steps: int | None,
    hindsight: bool | None,
    denoising_steps: int | None,
    temperature: float | None,
    sampler: str | None,
    matching: str,
    residual: bool,
    half_at: float,
    device: str,
    noise_seed: int,
    mask: str | None,
    pose_noise: str | None,
    workers: int | None,
    batch_size: int,
    ray_address: str | None,
    record: str | None,
    retry_errors: bool,
    out: Path | None,
) -> int:
    """Roll out an agent and count its successes.

    AGENT is expert, replay, still, a policy (pusht-nano, pusht-small, dualarm-small, or a path), or
    package.module:factory for your own. A stopped evaluation is resumed by the same command. Results are in
    DIR/eval_info.json. The exit code is 1 when any episode was an error.

    \b
    Example:
      recap eval expert --pusher triangle --angles=-30,45 --seeds 500:505 --out runs/first
      recap eval replay --pusher triangle --mode contact --objects pixels --seeds 500:505 --out runs/replay
      recap eval pusht-nano --pusher triangle --angles=-30,0 --seeds 500:505 --out runs/nano
      recap eval replay --settings-of pusht-nano --pusher triangle --angles=-30,0 --seeds 500:505
      recap eval replay --env dualarm --task lift_pot --seeds 500:510 --pool pools/ur5e --out runs/pots
    """
    from recap.assembly import usual_mode
    from recap.cli.ranges import parse_angles, parse_seeds
    from recap.cli.terminal import progress_bar, show
    from recap.evaluation.commands import command_of, control_of
    from recap.evaluation.record import parse_choice
    from recap.evaluation.run_directory import INFO, read_info
    from recap.evaluation.runner import evaluate as run_evaluation
    from recap.evaluation.spec import EvalSpec
    from recap.evaluation.summary import render_summary

    place, turn_deg = _pose_noise(pose_noise)
    spec = EvalSpec(
        agent=agent,
        settings_of=settings_of,
        env=env,
        pusher=pusher,
        block=block,
        angles=parse_angles(angles),
        seeds=parse_seeds(seeds),
        mode=mode or usual_mode(settings_of or agent),
        pool=pool,
        n_candidates=candidates,
        objects=objects,
        min_confidence=min_confidence,
        reaction=reaction,
        n_action_steps=action_steps,
        hindsight=hindsight,
        denoising_steps=denoising_steps,
        temperature=temperature,
        sampler=sampler,
        matching=matching,
        residual=residual,
        half_at=half_at,
        device=device,
        noise_seed=noise_seed,
        mask=mask,
        pose_noise_px=0.0 if env == "dualarm" else place,
        pose_noise_mm=place if env == "dualarm" else 0.0,
        pose_noise_deg=turn_deg,
        tasks=_tasks(tasks),
        embodiment=embodiment,
        split=split,
        wording=wording,
    )
    choice = parse_choice(record, spec) if record is not None else None
    if out is None:
        out = (
            Path("runs")
            / f"eval-{re.sub(r'[^A-Za-z0-9._-]+', '-', agent)}-{pusher if env == 'pusht' else embodiment}"
        )
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
        click.echo(f"recap: {stop or 'stopped'}", err=True)
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
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Also write JSON.")
def compare(a: Path, b: Path, json_file: Path | None) -> None:
    """Compare two evaluations, paired by start.

    A and B are run directories or their eval_info.json. Differences are B less A, with 95 % intervals
    over start seeds. Every setting in which the two differ is listed first.

    \b
    Example:
      recap compare runs/eval-still-disc runs/eval-expert-disc
    """
    import json

    from recap.cli.terminal import show
    from recap.evaluation.comparison import compare as pair
    from recap.evaluation.comparison import render_comparison
    from recap.evaluation.run_directory import read_info, read_provenance
    from recap.evaluation.settings import recorded_settings
    from recap.run_directory import write_whole

    runs = read_info(a), read_info(b)
    of_a, of_b = (recorded_settings(read_provenance(path)) for path in (a, b))
    comparison = pair(*runs, (of_a, of_b))
    click.echo(f"A: {a}\nB: {b}")
    show(render_comparison(comparison))
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(json_file, json.dumps(comparison.to_json(), indent=1) + "\n")
        click.echo(f"Results: {json_file}")
    click.echo("Next: recap eval … --record failures shows where each of them fails")


def _tasks(names: tuple[str, ...]) -> tuple[str, ...]:
    """Keys of tasks, of `--task a,b --task seen`."""
    if not names:
        return ()
    from recap.envs.dualarm.tasks import tasks_named

    return tuple(tasks_named(",".join(names)))


def _pose_noise(text: str | None) -> tuple[float, float]:
    """`4,4` as px or mm, and degrees."""
    if text is None:
        return 0.0, 0.0
    try:
        place, deg = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"cannot read --pose-noise '{text}': give px (or mm) and degrees, such as 4,4"
        ) from None
    return place, deg


def _record(spec: EvalSpec, results: Sequence[EpisodeResult], out: Path) -> None:
    from recap.cli.terminal import progress_bar
    from recap.evaluation.record import record

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
                    f"{was.task}:{was.seed} went otherwise on camera: {was.outcome} after {was.steps} steps, "
                    f"now {now.outcome} after {now.steps}; the agent is not deterministic, rounds otherwise "
                    "alone than in a batch, or has changed",
                    err=True,
                )
    click.echo(f"Videos: {out} (episodes: {len(results)}, gone otherwise: {n_differ})")
