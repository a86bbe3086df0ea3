"""`recap train`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from recap.policies.policy import TrainedPolicy
    from recap.training.config import TrainConfig

DEVICES = ("auto", "cpu")
ROLLOUT_SEEDS = tuple(range(500, 505))  # for development: no result is ever reported on them
ROLLOUT_ANGLES = (-45.0, 0.0, 45.0)  # two goals that training sees, and one that it does not


@click.command()
@click.argument("preset")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a setting; repeatable.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="[default: runs/train-PRESET]")
@click.option("--seed", type=int, metavar="N", help="Of weights, batches and noise.  [default: the preset's]")
@click.option("--iterations", type=click.IntRange(1), metavar="N", help="[default: the preset's]")
@click.option("--device", default="auto", show_default=True, help="auto (a GPU if there is one) or cpu.")
@click.option(
    "--rollouts",
    type=click.IntRange(1),
    metavar="N",
    help="Try the policy out every N iterations; PushT only.",
)
@click.option("--dry-run", is_flag=True, help="Show what the run would be, and stop.")
def train(
    preset: str,
    changes: tuple[str, ...],
    out: Path | None,
    seed: int | None,
    iterations: int | None,
    device: str,
    rollouts: int | None,
    dry_run: bool,
) -> int:
    """Train a policy on pairs of the robot's and the pool's demonstrations.

    PRESET is debug (a minute on any machine), pusht-small (ten minutes on a CPU core), pusht-small-single,
    pusht-small-oracle, pusht-small-image, pusht-nano, pusht-nano-aligned, pusht-nano-state, pusht-nano-image,
    pusht-nano-single, pusht-nano-oracle or cosmos-2b; a baseline: pusht-nano-no-retrieval,
    pusht-nano-no-retrieval-block, pusht-nano-co-training or pusht-nano-co-training-block; with a π0-type
    network: debug-pi0, pusht-pi0-tiny, pusht-pi0-tiny-no-retrieval or pi0-base; for two arms: debug-dualarm,
    dualarm-nano, dualarm-nano-single, dualarm-nano-no-retrieval, dualarm-nano-co-training,
    dualarm-nano-supervised, and the same in small, on poses alone: dualarm-small, dualarm-small-single,
    dualarm-small-no-retrieval, dualarm-small-co-training, dualarm-small-supervised. A stopped training is
    resumed by the same command. DIR/best is the checkpoint that did best on held-out demonstrations, DIR/last
    the newest. On several GPUs: torchrun --nproc-per-node 8 -m recap train PRESET, and with
    --set fsdp=true each process holds only its part of the weights.

    \b
    Example:
      recap train debug --device cpu --out runs/debug
      recap train pusht-nano --set policy.inputs=S --set batch_size=256 --seed 1 --rollouts 500
      recap train cosmos-2b --dry-run
    """
    from recap.errors import InputError, one_of
    from recap.training.presets import preset as find_preset

    is_main = int(os.environ.get("RANK", "0")) == 0  # torchrun starts this command once a process
    one_of("device", device, DEVICES)
    config = find_preset(preset, changes)
    if seed is not None:
        config = replace(config, seed=seed)
    if iterations is not None:
        config = replace(config, n_iterations=iterations)
    if rollouts is not None and (
        config.policy.domain != "pusht" or not preset.startswith(("debug", "pusht-"))
    ):
        raise InputError(f"preset '{preset}' cannot be rolled out here: leave out --rollouts")
    if dry_run:
        if is_main:
            _show_plan(config)
        return 0

    from recap.training.trainer import train as run

    if out is None:
        out = Path("runs") / f"train-{preset}"
    try:
        with _bars(is_main) as progress:
            outcome = run(
                config,
                out,
                progress=progress,
                rollout=None if rollouts is None or not is_main else _rollout(config),
                rollout_every=rollouts or 0,
                device=None if device == "auto" else device,
            )
    except KeyboardInterrupt as stop:
        if is_main:
            click.echo(f"recap: {stop or 'stopped; the same command begins again or resumes'}", err=True)
        return 130
    if is_main:
        early = "" if outcome.iterations == config.n_iterations else ", stopped early: it no longer improved"
        click.echo(f"Iterations: {outcome.iterations} of {config.n_iterations}{early}")
        click.echo(f"Best: {outcome.best} (iteration {outcome.best_iteration})")
        click.echo(f"Last: {outcome.last}")
        if outcome.left_out:
            click.echo(f"Left out as mis-aligned: {', '.join(outcome.left_out)}")
        click.echo(f"Best held-out action loss: {outcome.best_loss:.4f}")
        click.echo(f"Next: {_next_command(config, outcome.best)}")
    return 0


@contextmanager
def _bars(shown: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """One progress bar after the other, each with its own estimate."""
    from recap.cli.terminal import progress_bar

    with ExitStack() as stack:
        now: dict[str, Callable[[int, int], None]] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in now:
                stack.close()
                now.clear()
                now[what] = stack.enter_context(progress_bar(what))
            now[what](done, total)

        yield report if shown else None


def _rollout(config: TrainConfig) -> Callable[[int, TrainedPolicy], dict[str, float]]:
    """Rolls out the policy in memory on the target's board; training itself knows no environment."""
    from recap.agent import RetrievalAgent
    from recap.assembly import pusht_bodies
    from recap.envs.pusht.drawing import BOARD_SIZE
    from recap.evaluation.rollouts import run_trials
    from recap.evaluation.spec import EvalSpec
    from recap.retrieval.presets import preset as retrieval_preset
    from recap.retrieval.retriever import Retriever
    from recap.standard_pools import open_pool

    describer, retrieval = retrieval_preset(f"pusht-{config.policy.mode}", config.pairs.n_candidates)
    retrieval = replace(retrieval, chunk_size=config.policy.chunk_size)
    retriever = Retriever(open_pool(config.pool), describer, retrieval)
    target = open_pool(config.target).view()
    robot = target.episode(target.episode_ids[0])
    spec = EvalSpec(
        "policy",
        pusher=robot.embodiment,
        block=str(robot.attributes.get("block", "tee")),
        angles=ROLLOUT_ANGLES,
        seeds=ROLLOUT_SEEDS,
        mode=config.policy.mode,
        pool=config.pool,
    )

    def roll_out(iteration: int, policy: TrainedPolicy) -> dict[str, float]:
        agent = RetrievalAgent(
            retriever, policy, bodies=pusht_bodies(spec.block, spec.pusher), limits=(0.0, BOARD_SIZE)
        )
        results = list(run_trials(agent, spec, spec.trials(), len(spec.trials())))
        n = len(results)
        found = {
            f"success_{key}": sum(result.first_step[key] is not None for result in results) / n
            for key in results[0].first_step
        }
        found["mean_coverage"] = round(sum(result.max_coverage for result in results) / n, 4)
        found["errors"] = sum(result.outcome == "error" for result in results)
        return found

    return roll_out


def _next_command(config: TrainConfig, best: Path) -> str:
    """How to see what the policy is worth."""
    pool = "" if config.pool == "pusht-9x100" else f" --pool {config.pool}"
    return f"recap eval {best} {config.policy.world.use} --mode {config.policy.mode}{pool} --seeds 500:505"


def _show_plan(config: TrainConfig) -> None:
    from rich.table import Table

    from recap.cli.terminal import show
    from recap.training.plan import describe_plan

    plan = describe_plan(config, int(os.environ.get("WORLD_SIZE", "1")))
    table = Table(title=f"{config.preset}: what would be trained", title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _plan_rows(plan).items():
        table.add_row(name, value)
    show(table)


def _plan_rows(plan: Mapping[str, Any]) -> dict[str, str]:
    """The plan in words and units."""
    each = plan["flops_per_sample"]
    return {
        "slots (* is predicted)": ", ".join(plan["slots"]),
        "tokens a sample": f"{plan['tokens']:,}",
        "parameters": _short(plan["parameters"]).replace("G", "B"),
        "batch": f"{plan['batch']} (at once × accumulated × processes)",
        "iterations": f"{plan['iterations']:,}",
        "samples": _short(plan["samples"]),
        "FLOPs": f"{_short(each)} a sample, {each * plan['samples']:.2g} in all",
        "weights a process": _held(plan),
        "memory a process": f"about {plan['memory_gib']:,} GiB, without pictures",
    }


def _held(plan: Mapping[str, Any]) -> str:
    """What a process keeps of all that grows with the parameters."""
    held = f"{plan['held_gib']:,} GiB, with gradients, moments and smoothed weights"
    if plan["shards"] > 1:
        return f"{held}: sharded over {plan['shards']} processes ({plan['weights_gib']:,} GiB in all)"
    return f"{held}; sharded where there are several processes" if plan["fsdp"] else held


def _short(number: float) -> str:
    """Such as 12.300 M."""
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3f} {letter}"
    return f"{number:,}"
