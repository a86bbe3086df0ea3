"""`recap train`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from recap.cli.terminal import Progress
    from recap.policies.policy import TrainedPolicy
    from recap.suites import Suite
    from recap.training.config import TrainConfig
    from recap.types import Scalar

DEVICES = ("auto", "cpu")


@click.command()
@click.argument("recipe", metavar="ROBOT.YAML|RECIPE", required=False)
@click.option("--size", help="Size of the network: debug, small, nano, 2b, pi0, pi05, ….  [default: small]")
@click.option("--target", metavar="DATA", help="Demonstrations of the robot: a pool or a dataset.")
@click.option("--pool", metavar="DATA", help="Demonstrations of the other embodiment: a pool or a dataset.")
@click.option("--retrieval", metavar="NAME|FILE", help="How moments are matched.  [default: the recipe's]")
@click.option("--pair-by", metavar="RULE", help="scene, order, column:NAME or FILE.csv.  [default: scene]")
@click.option(
    "--backbone", metavar="PATH|ORG/NAME@REV", help="Published weights to start from.  [default: the size's]"
)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a setting; repeatable.")
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), metavar="FILE", help="Saved configuration."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="[default: runs/train-RECIPE]")
@click.option("--seed", type=int, metavar="N", help="Random seed.  [default: the recipe's]")
@click.option("--iterations", type=click.IntRange(1), metavar="N", help="[default: the recipe's]")
@click.option("--device", default="auto", show_default=True, help="auto (a GPU if there is one) or cpu.")
@click.option(
    "--rollouts", type=click.IntRange(1), metavar="N", help="Evaluate the policy in --env every N iterations."
)
@click.option("--env", help="Environment for --rollouts.  [default: where the recipe comes from]")
@click.option("--init-from", metavar="POLICY", help="Initialise matching weights from a policy of any robot.")
@click.option("--log", default="tensorboard", show_default=True, help="Metrics to tensorboard or wandb.")
@click.option("--list", "listed", is_flag=True, help="List the recipes and exit.")
@click.option("--show-config", is_flag=True, help="Print the whole configuration as YAML and exit.")
@click.option("--dry-run", is_flag=True, help="Show the planned run and exit.")
def train(
    recipe: str | None,
    size: str | None,
    target: str | None,
    pool: str | None,
    retrieval: str | None,
    pair_by: str | None,
    backbone: str | None,
    changes: tuple[str, ...],
    config_file: Path | None,
    out: Path | None,
    seed: int | None,
    iterations: int | None,
    device: str,
    rollouts: int | None,
    env: str | None,
    init_from: str | None,
    log: str,
    listed: bool,
    show_config: bool,
    dry_run: bool,
) -> int:
    """Train a policy on pairs of demonstrations by the robot and from the pool.

    Give the description of a robot and the size of the network: debug (seconds, learns nothing), small
    (minutes on a CPU), nano (minutes on a GPU), 2b (Cosmos-Predict2.5), pi0 or pi0-debug. Or give a RECIPE of
    an installed env (recap train --list). To resume a stopped training, repeat the command. DIR/best is the
    best checkpoint on held-out demonstrations, DIR/last the newest. On several GPUs, use torchrun
    --nproc-per-node 8 -m recap train …; with --set fsdp=true each process holds only its part of the weights.

    \b
    Example:
      recap train robot.yaml --target data/arm --pool data/hand --size small --out runs/mine
      recap train robot.yaml --size 2b --dry-run
      recap train debug --device cpu --out runs/debug
      recap train pusht-nano --set policy.inputs=S --set batch_size=256 --seed 1 --rollouts 500
    """
    from recap.cli.one_line import STOPPED
    from recap.cli.terminal import say
    from recap.errors import InputError, one_of
    from recap.extras import load_torch, require_extra

    require_extra("train", "training")
    if listed:
        from recap.suites import suites
        from recap.training.presets import sizes

        click.echo(f"With robot.yaml, --size: {', '.join(sizes())}")
        for suite in suites().values():
            click.echo(f"{suite.name}: {', '.join(suite.training_presets())}")
        return 0
    is_main = int(os.environ.get("RANK", "0")) == 0  # torchrun runs this command in each process
    one_of("device", device, DEVICES)
    one_of("log", log, ("tensorboard", "wandb"))
    asked = {"target": target, "pool": pool, "pairs.by": pair_by, "seed": seed, "n_iterations": iterations}
    asked["init_from"] = init_from
    more = [f"{key}={value}" for key, value in asked.items() if value is not None]
    config = _config(recipe, size, config_file, retrieval, [*more, *changes])
    if backbone is not None:
        config = replace(config, weights=backbone)
        if not config.policy.network.sees_pixels:
            config = replace(config, autoencoder=backbone)
    if show_config:
        import yaml

        click.echo(yaml.safe_dump(config.to_json(), sort_keys=False, allow_unicode=True))
        return 0
    if dry_run:
        if is_main:
            _show_plan(config)
        return 0
    for name in ("target", "pool"):
        if not getattr(config, name):
            raise InputError(f"no training data: give --{name}, a pool or a dataset")
    roll_out = None if rollouts is None or not is_main else _rollout(config, env)
    if is_main:
        say(f"Training {config.preset}: {config.n_iterations} iterations; loading demonstrations …")

    load_torch()
    from recap.training.trainer import train as run

    if out is None:
        out = Path("runs") / f"train-{config.preset}"
    try:
        with _bars(is_main) as progress:
            outcome = run(
                config,
                out,
                progress=progress,
                notify=say,
                rollout=roll_out,
                rollout_every=rollouts or 0,
                device=None if device == "auto" else device,
                log=log,
            )
    except KeyboardInterrupt as stop:
        if is_main:
            click.echo(f"recap: {str(stop) or STOPPED}", err=True)
        return 128 + int(getattr(stop, "number", 2))  # 128 + signal number, as in a shell
    if is_main:
        early = "" if outcome.iterations == config.n_iterations else ", stopped early: it no longer improved"
        click.echo(f"Iterations: {outcome.iterations} of {config.n_iterations}{early}")
        click.echo(f"Best: {outcome.best} (iteration {outcome.best_iteration})")
        click.echo(f"Last: {outcome.last}")
        if outcome.left_out:
            click.echo(f"Left out as mis-aligned: {', '.join(outcome.left_out)}")
        click.echo(f"Best held-out action loss: {outcome.best_loss:.4f}")
        for line in _beside_replay(outcome.best, config):
            click.echo(line)
        click.echo(f"Next: {_next_command(config, outcome.best)}")
    return 0


@contextmanager
def _bars(shown: bool) -> Iterator[Callable[[str, int, int, str], None] | None]:
    """Progress bars one after the other, each with its own estimate; without a terminal, lines of text."""
    from recap.cli.terminal import progress_bar, say

    with ExitStack() as stack:
        now: dict[str, Progress] = {}

        def report(what: str, done: int, total: int, note: str = "") -> None:
            if what not in now:
                stack.close()
                now.clear()
                now[what] = stack.enter_context(progress_bar(what))
                if not total and not sys.stderr.isatty():
                    say(f"{what} …")
            now[what](done, total, note)

        yield report if shown else None


def _config(
    recipe: str | None, size: str | None, config_file: Path | None, retrieval: str | None, changes: list[str]
) -> TrainConfig:
    """The training configuration from the command's arguments and options."""
    from recap import config as configs
    from recap.errors import InputError
    from recap.robot import load_robot
    from recap.training.config import from_json
    from recap.training.presets import preset

    described = recipe is not None and Path(recipe).suffix in (".yaml", ".yml", ".json")
    if config_file is not None:
        if recipe is not None or size is not None:
            raise InputError("--config has its own recipe, robot and size: leave them out")
        values = configs.load_file(config_file)
        if not isinstance(values, dict):
            raise InputError(
                f"{config_file} is not a training configuration: recap train --show-config prints one"
            )
        base = from_json(values)
    elif recipe is None:
        raise InputError("give robot.yaml and --size, or a recipe: recap train --list shows them")
    elif described:
        base = preset(size or "small", robot=load_robot(recipe))
    else:
        base = preset(recipe)
        if size is not None:
            raise InputError(f"recipe '{recipe}' has its own size: give robot.yaml, or leave out --size")
    if retrieval is not None:
        from recap.retrieval.presets import find_retrieval, full_name

        _, found = find_retrieval(retrieval, base.policy.robot)
        canonical = str(not found.aligner.in_world).lower()
        changes = [f"policy.retrieval_name={full_name(retrieval)}", f"policy.canonical={canonical}", *changes]
    if described:
        return preset(size or "small", changes, base.policy.robot)
    return configs.with_changes(base, changes)


def _owner(config: TrainConfig) -> Suite | None:
    """The suite that a recipe comes from."""
    from recap.suites import suites

    for suite in suites().values():
        own = suite.training_presets().get(config.preset)
        if own is not None and own.policy.robot == config.policy.robot:
            return suite
    return None


def _options(config: TrainConfig, suite: Suite) -> dict[str, Scalar]:
    """The suite's options of the world in which the target's demonstrations were recorded."""
    from recap.pool.opening import open_demonstrations

    target = open_demonstrations(config.target.split(",")[0])
    first = target.episode(target.episode_ids[0])
    own = {key: value for key, value in first.attributes.items() if key in suite.options}
    return {**own, **suite.embodied(first.embodiment)}


def _rollout(config: TrainConfig, env: str | None) -> Callable[[int, TrainedPolicy], dict[str, float]]:
    """A function that rolls out the policy in memory, since training itself does not use environments."""
    from recap.assembly import AgentConfig, assemble_agent
    from recap.errors import InputError
    from recap.evaluation.rollouts import run_trials
    from recap.evaluation.spec import EvalSpec
    from recap.evaluation.worlds import find_suite
    from recap.pool.opening import open_pool

    owner = _owner(config)
    name = env or (None if owner is None else owner.name)
    if name is None:
        raise InputError(f"recipe '{config.preset}' has no env: give --env, or leave out --rollouts")
    suite = find_suite(name)
    settings = AgentConfig(retrieval=config.policy.retrieval_name, n_candidates=config.pairs.n_candidates)
    options = _options(config, suite)
    tasks = suite.ordered([*sorted(suite.seen())[:2], *sorted(set(suite.tasks({})) - suite.seen())[:1]])
    spec = EvalSpec(settings, name, options, tasks=tasks, seeds=tuple(suite.development_seeds))
    source = open_pool(config.pool.split(",")[0], config.policy.robot)

    def roll_out(iteration: int, policy: TrainedPolicy) -> dict[str, float]:
        agent = assemble_agent(settings, source, policy, context=suite.context(spec.options), suite=suite)
        results = list(run_trials(agent, spec, spec.trials(), len(spec.trials())))
        n = len(results)
        found = {
            f"success_{key}": sum(result.first_step[key] is not None for result in results) / n
            for key in results[0].first_step
        }
        best = sum(result.metrics.get(suite.metric, 0.0) for result in results) / n
        return {
            **found,
            f"mean_{suite.metric}": round(best, 4),
            "errors": sum(result.outcome == "error" for result in results),
        }

    return roll_out


def _beside_replay(best: Path, config: TrainConfig) -> list[str]:
    """Lines that compare the policy's error on held-out demonstrations with replay's."""
    from recap.policies.checkpoint import held_out_errors, read_training

    errors = held_out_errors(best)
    if errors is None:
        return []
    ours, replay = errors
    lines = [f"Error on held-out {config.held_out_by}s (RMS): policy {ours:.3g}, replay {replay:.3g}"]
    if ours >= replay:
        lines.append("The network is no closer than replay: train longer, or serve it with --no-residual.")
    elif config.held_out_by == "scene" and read_training(best)[0]["tasks"] > 1:
        lines.append("To validate on tasks that it does not learn: --set held_out_by=task --set held_out=0.3")
    return lines


def _next_command(config: TrainConfig, best: Path) -> str:
    """The suggested next command, which evaluates the policy."""
    suite = _owner(config)
    pool = f" --pool {config.pool}"
    if suite is None:
        offline = f"recap eval {best} --offline --target {config.target}{pool}"
        return f"{offline}, or with --env package.module:factory, then recap serve {best}{pool}"
    pool = "" if config.pool == suite.default_pool else pool
    given = {k: v for k, v in _options(config, suite).items() if v != suite.options[k]}
    options = "".join(f" --env.{k} {v}" for k, v in given.items())
    seeds = suite.development_seeds
    return f"recap eval {best} --env {suite.name}{options}{pool} --seeds {seeds[0]}:{seeds[-1] + 1}"


def _show_plan(config: TrainConfig) -> None:
    """Print the planned run as a table."""
    from rich.table import Table

    from recap.cli.terminal import show
    from recap.training.networks import describe_plan

    plan = describe_plan(config, int(os.environ.get("WORLD_SIZE", "1")))
    each = plan["flops_per_sample"]
    held = f"{plan['held_gib']:,} GiB, with gradients, moments and smoothed weights"
    if plan["shards"] > 1:
        held += f": sharded over {plan['shards']} processes ({plan['weights_gib']:,} GiB in all)"
    elif plan["fsdp"]:
        held += "; sharded where there are several processes"
    rows = {
        "slots (* is predicted)": ", ".join(plan["slots"]),
        "tokens a sample": f"{plan['tokens']:,}",
        "parameters": _short(plan["parameters"]).replace("G", "B"),
        "batch": f"{plan['batch']} (at once × accumulated × processes)",
        "iterations": f"{plan['iterations']:,}",
        "samples": _short(plan["samples"]),
        "FLOPs": f"{_short(each)} a sample, {each * plan['samples']:.2g} in all",
        "weights a process": held,
        "memory a process": f"about {plan['memory_gib']:,} GiB, without pictures",
    }
    table = Table(title=f"{config.preset}: what would be trained", title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    show(table)


def _short(number: float) -> str:
    """Format a number, such as 12.300 M."""
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3f} {letter}"
    return f"{number:,}"
