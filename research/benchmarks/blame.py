"""Are harmful demonstrations found by the episodes that they spoil, and is the success regained without them?

python research/benchmarks/blame.py --json docs/results/blame.json

A pool of 100 disc demonstrations of four goals; in each draw five of them are harmed while their states stay
as they are: actions mirrored about the pusher, actions shifted by 40 px, or cut before the first contact with
the block. Replay acts 400 times (100 starts of each goal); what it used and how each episode ended is blamed
as `recap pool blame` does; what is accused is put into quarantine, and the same starts are run again.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from report import arguments, finish

from recap.assembly import AgentConfig, assemble_agent
from recap.cli.one_line import run_script
from recap.evaluation.agents import Trial
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.evaluation.statistics import wilson
from recap.pool.memory import MemoryPool
from recap.pool.opening import open_pool
from recap.retrieval.subtrajectories import in_demonstration
from recap.types import Episode, Retrieval
from recap.usage import Run, blame

N_GOALS, N_EACH, N_HARMED = 4, 25, 5
KINDS = ("mirrored", "shifted", "cut")
SEEDS = (600, 700)  # chosen and tried out on 500 to 599, with other draws
ALPHA = 0.05


def demonstrations() -> list[Episode]:
    """The first of each goal."""
    view = open_pool("pusht-9x100").view()
    found: dict[str, list[Episode]] = {}
    for name in view.episode_ids:
        found.setdefault(name.split("/")[2], []).append(view.episode(name))
    chosen = sorted(found, key=lambda angle: float(angle))[:N_GOALS]
    return [episode for angle in chosen for episode in found[angle][:N_EACH]]


def harmed(episode: Episode, kind: str) -> Episode:
    """The same states with actions that do harm."""
    if kind == "mirrored":
        return replace(episode, actions=2 * episode.proprio - episode.actions)
    if kind == "shifted":
        return replace(episode, actions=episode.actions + np.array([40, 0], np.float32))
    moved = np.linalg.norm(episode.objects["block"][:, :2] - episode.objects["block"][0, :2], axis=1)
    end = max(int(np.argmax(moved > 1.0)), 4)
    return replace(
        episode,
        timestamps=episode.timestamps[:end],
        proprio=episode.proprio[:end],
        actions=episode.actions[:end],
        objects={name: poses[:end] for name, poses in episode.objects.items()},
        images={},
    )


def run_some(episodes: Sequence[Episode], config: AgentConfig, trials: Sequence[Trial]) -> list[Run]:
    """What each trial used and how it ended."""
    angles = tuple(dict.fromkeys(trial.task for trial in trials))
    spec = EvalSpec(config, "pusht", {"pusher": "disc"}, tasks=angles, seeds=(500,), thresholds=(0.85, 0.95))
    pool = MemoryPool(episodes)
    suite = spec.suite
    robot, context = suite.robot(spec.options), suite.context(spec.options)
    agent = assemble_agent(config, pool, None, robot=robot, context=context, suite=suite)
    runs = []
    for trial in trials:
        run = Run(f"{trial.task}/{trial.seed}")

        def note(slot: int, found: Retrieval, run: Run = run) -> None:
            match = found.matches[0]
            ref = in_demonstration(agent.retriever.view_of(found), match.ref)
            run.add(ref.episode_id, ref.t, match.distance, found.off_course)

        agent.on_use = note
        (result,) = run_trials(agent, spec, [trial], 1)
        run.success = result.first_step["0.95"] is not None
        runs.append(run)
    return runs


def rollouts(episodes: Sequence[Episode], config: AgentConfig, n_seeds: int, workers: int) -> list[Run]:
    """All trials, over processes."""
    angles = dict.fromkeys(f"{float(e.attributes['goal_angle']):g}" for e in episodes)
    trials = [Trial(angle, seed) for seed in range(SEEDS[0], SEEDS[0] + n_seeds) for angle in angles]
    parts = [trials[i::workers] for i in range(workers)]
    if workers == 1:
        return run_some(episodes, config, trials)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        return [run for part in pool.map(partial(run_some, episodes, config), parts) for run in part]


def rate(runs: Sequence[Run]) -> dict[str, Any]:
    """Successes with their interval."""
    k = sum(bool(run.success) for run in runs)
    return {"successes": k, "episodes": len(runs), "interval": list(wilson(k, len(runs)))}


def draw(
    number: int, demos: Sequence[Episode], config: AgentConfig, n_seeds: int, workers: int
) -> dict[str, Any]:
    """One pool with five harmed demonstrations, from blame to quarantine."""
    rng = np.random.default_rng(number)
    chosen = rng.choice(len(demos), N_HARMED, replace=False)
    kinds = {demos[i].id: KINDS[k % len(KINDS)] for k, i in enumerate(chosen)}
    pool = [harmed(demo, kinds[demo.id]) if demo.id in kinds else demo for demo in demos]
    runs = rollouts(pool, config, n_seeds, workers)
    accused = [suspect.episode_id for suspect in blame(runs, ALPHA) if suspect.accused]
    used = {name: sum(any(use.episode_id == name for use in run.uses) for run in runs) for name in kinds}
    after = rollouts([demo for demo in pool if demo.id not in accused], config, n_seeds, workers)
    return {
        "harmed": {
            name: {"kind": kind, "episodes": used[name], "found": name in accused}
            for name, kind in kinds.items()
        },
        "sound_accused": [name for name in accused if name not in kinds],
        "n_sound": len(demos) - N_HARMED,
        "before": rate(runs),
        "after": rate(after),
        "by_outcome_alone": by_outcome(runs, kinds),
    }


def by_outcome(runs: Sequence[Run], kinds: Mapping[str, str]) -> dict[str, int]:
    """Whom failed episodes alone would accuse, at the same level."""
    rows = sorted(blame(runs, ALPHA), key=lambda row: row.p_failed)
    ranks = [i for i, row in enumerate(rows, 1) if row.p_failed <= ALPHA * i / len(rows)]
    accused = {row.episode_id for row in rows[: max(ranks, default=0)]}
    return {"found": len(accused & set(kinds)), "sound_accused": len(accused - set(kinds))}


def summary(draws: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Found among those that were retrieved three times or more; accused among the sound ones."""
    often = [row for d in draws for row in d["harmed"].values() if row["episodes"] >= 3]
    n_found, n_accused = sum(row["found"] for row in often), sum(len(d["sound_accused"]) for d in draws)
    n_sound = sum(d["n_sound"] for d in draws)
    return {
        "harmed": sum(len(d["harmed"]) for d in draws),
        "retrieved_3_times": len(often),
        "found": n_found,
        "found_interval": list(wilson(n_found, len(often))),
        "sound": n_sound,
        "sound_accused": n_accused,
        "sound_interval": list(wilson(n_accused, n_sound)),
    }


def main() -> None:
    """Run it."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--retrieval", default="pusht-object")
    options = parser.parse_args()
    config, demos = AgentConfig(retrieval=options.retrieval), demonstrations()
    n_seeds, n_draws = (5, 1) if options.quick else (SEEDS[1] - SEEDS[0], options.draws)
    sound = rate(rollouts(demos, config, n_seeds, options.workers))
    print("sound pool", sound, flush=True)
    draws = []
    for number in range(n_draws):
        draws.append(draw(number, demos, config, n_seeds, options.workers))
        print(draws[-1], flush=True)
    result = {"sound_pool": sound, **summary(draws), "draws": draws}
    print(summary(draws))
    finish(result, options.json)


if __name__ == "__main__":
    run_script(main)
