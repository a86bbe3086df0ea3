"""Are harmful demonstrations found by the episodes that they spoil, and is the success regained without them?

python research/benchmarks/blame.py --json docs/results/blame.json
python research/benchmarks/blame.py --env dualarm --draws 2 --json docs/results/blame_dualarm.json

A pool of 100 demonstrations; in each draw five of them are harmed while their states stay as they are:
actions mirrored about the tool, actions shifted by 40 px or 4 cm, or cut before the first object moves.
Replay acts 400 times. `recap pool blame LOG --pool POOL` accuses by what it used, and by comparing the
demonstrations with each other, which needs no rollout. What is accused is put into quarantine, and the same
starts are run again. On PushT a disc replays the disc's demonstrations of four goals, 100 starts of each.
With two arms the ViperX replays ten demonstrations of the UR5e of each of ten tasks, 40 starts of each.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from recap.evaluation.worlds import find_suite
from recap.pool.memory import MemoryPool, MemoryView
from recap.pool.opening import open_pool
from recap.retrieval.outliers import outliers
from recap.retrieval.presets import find_retrieval
from recap.retrieval.subtrajectories import source_frame
from recap.types import Episode, Retrieval
from recap.usage import Run, blame

N_GOALS, N_EACH, N_HARMED = 4, 25, 5
KINDS = ("mirrored", "shifted", "cut")
FIRST_SEED, N_ROLLOUTS = 600, 400  # chosen and tried out on 500 to 599, with other draws
FIRST_DEMONSTRATION, N_OF_TASK = 100_000, 10
ALPHA = 0.05


@dataclass(frozen=True)
class Setting:
    """Where replay acts, and what a harm is there."""

    config: AgentConfig
    env: str
    options: Mapping[str, str]
    thresholds: tuple[float, ...]
    positions: tuple[int, ...]  # of an action's numbers
    shift: tuple[float, ...]
    moved: float  # of an object, that is seen
    task_by: str | None = None  # attribute that names the task; None: the instruction


PUSHT = Setting(
    AgentConfig(retrieval="pusht-object"),
    "pusht",
    {"pusher": "disc"},
    (0.85, 0.95),
    (0, 1),
    (40.0, 0.0),
    1.0,
)
TWO_ARMS = Setting(
    AgentConfig(retrieval="dualarm-parts"),
    "dualarm",
    {},
    (0.5,),
    (0, 1, 2, 10, 11, 12),
    (0.04, 0.0, 0.0, 0.04, 0.0, 0.0),
    0.002,
    "task_key",
)
SETTINGS = {setting.env: setting for setting in (PUSHT, TWO_ARMS)}


def demonstrations(setting: Setting) -> dict[str, list[Episode]]:
    """The first of each task."""
    if setting is TWO_ARMS:
        from recap_worlds.dualarm.collection import demonstrate

        seeds = range(FIRST_DEMONSTRATION, FIRST_DEMONSTRATION + N_OF_TASK)
        tasks = EvalSpec(setting.config, setting.env).suite.tasks(setting.options)
        return {task: [demonstrate(task, "ur5e", seed, 0) for seed in seeds] for task in tasks}
    view = open_pool("pusht-9x100").view()
    found: dict[str, list[Episode]] = {}
    for name in view.episode_ids:
        found.setdefault(name.split("/")[2], []).append(view.episode(name))
    chosen = sorted(found, key=lambda angle: float(angle))[:N_GOALS]
    return {f"{float(angle):g}": found[angle][:N_EACH] for angle in chosen}


def harmed(setting: Setting, episode: Episode, kind: str) -> Episode:
    """The same states with actions that do harm."""
    if kind != "cut":
        actions, at = episode.actions.copy(), list(setting.positions)
        if kind == "mirrored":
            actions[:, at] = 2 * episode.proprio[:, at] - actions[:, at]
        else:
            actions[:, at] += np.array(setting.shift, np.float32)
        return replace(episode, actions=actions)
    n = 2 if setting is PUSHT else 3
    far = [np.linalg.norm(poses[:, :n] - poses[0, :n], axis=1) for poses in episode.objects.values()]
    end = max(int(np.argmax(np.max(far, axis=0) > setting.moved)), 4)
    return replace(
        episode,
        timestamps=episode.timestamps[:end],
        proprio=episode.proprio[:end],
        actions=episode.actions[:end],
        objects={name: poses[:end] for name, poses in episode.objects.items()},
        images={},
    )


def run_some(episodes: Sequence[Episode], setting: Setting, trials: Sequence[Trial]) -> list[Run]:
    """What each trial used and how it ended."""
    tasks = tuple(dict.fromkeys(trial.task for trial in trials))
    config, options = setting.config, setting.options
    spec = EvalSpec(config, setting.env, options, tasks=tasks, seeds=(500,), thresholds=setting.thresholds)
    suite = spec.suite
    robot, context = suite.robot(spec.options), suite.context(spec.options)
    agent = assemble_agent(config, MemoryPool(episodes), None, robot=robot, context=context, suite=suite)
    runs = [Run(f"{trial.task}/{trial.seed}") for trial in trials]

    def note(run: Run, slot: int, found: Retrieval) -> None:
        match = found.matches[0]
        ref = source_frame(agent.retriever.view_of(found), match.ref)
        run.add(ref.episode_id, ref.t, match.distance, found.off_course)

    results = run_trials(agent, spec, trials, 1)
    for run in runs:
        agent.on_use = partial(note, run)
        result = next(results)
        assert result.outcome != "error", result.error
        run.success = result.outcome == "success"
    return runs


def rollouts(
    episodes: Sequence[Episode], setting: Setting, trials: Sequence[Trial], workers: int
) -> list[Run]:
    """All trials, over processes."""
    if workers == 1:
        return run_some(episodes, setting, trials)
    parts = [trials[i::workers] for i in range(workers)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        return [run for part in pool.map(partial(run_some, episodes, setting), parts) for run in part]


def rate(runs: Sequence[Run]) -> dict[str, Any]:
    """Successes with their interval."""
    k = sum(bool(run.success) for run in runs)
    return {"successes": k, "episodes": len(runs), "interval": list(wilson(k, len(runs)))}


def draw(
    number: int, demos: Sequence[Episode], setting: Setting, trials: Sequence[Trial], workers: int
) -> dict[str, Any]:
    """One pool with five harmed demonstrations, from blame to quarantine."""
    rng = np.random.default_rng(number)
    chosen = rng.choice(len(demos), N_HARMED, replace=False)
    kinds = {demos[i].id: KINDS[k % len(KINDS)] for k, i in enumerate(chosen)}
    pool = [harmed(setting, demo, kinds[demo.id]) if demo.id in kinds else demo for demo in demos]
    runs = rollouts(pool, setting, trials, workers)
    by_log = [suspect.episode_id for suspect in blame(runs, ALPHA) if suspect.accused]
    by_pool = compared(pool, setting)
    accused = list(dict.fromkeys([*by_log, *by_pool]))
    used = {name: sum(any(use.episode_id == name for use in run.uses) for run in runs) for name in kinds}
    after = rollouts([demo for demo in pool if demo.id not in accused], setting, trials, workers)
    return {
        "harmed": {
            name: {
                "kind": kind,
                "episodes": used[name],
                "found": name in accused,
                "by_log": name in by_log,
                "by_pool": name in by_pool,
            }
            for name, kind in kinds.items()
        },
        "sound_accused": [name for name in accused if name not in kinds],
        "sound_accused_by_log": [name for name in by_log if name not in kinds],
        "n_sound": len(demos) - N_HARMED,
        "before": rate(runs),
        "after": rate(after),
        "by_outcome_alone": by_outcome(runs, kinds),
    }


def compared(pool: Sequence[Episode], setting: Setting) -> list[str]:
    """Whom the comparison within a task accuses, as `recap pool blame --pool` does; no rollout is needed."""
    robot = find_suite(setting.env).robot(setting.options)
    spec = find_retrieval(setting.config.retrieval or "world", robot)
    by = setting.task_by
    found = outliers(MemoryView(pool), robot, spec, lambda e: e.task if by is None else str(e.attributes[by]))
    return [one.episode_id for one in found]


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
    parser.add_argument("--first-draw", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--env", choices=SETTINGS, default="pusht")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    options = parser.parse_args()
    setting = SETTINGS[options.env]
    found = demonstrations(setting)
    demos = [demo for part in found.values() for demo in part]
    n_starts, n_draws = (5, 1) if options.quick else (N_ROLLOUTS // len(found), options.draws)
    trials = [Trial(task, options.first_seed + i) for task in found for i in range(n_starts)]
    sound = rate(rollouts(demos, setting, trials, options.workers))
    print("sound pool", sound, flush=True)
    draws: list[dict[str, Any]] = []
    for number in range(options.first_draw, options.first_draw + n_draws):
        draws.append(draw(number, demos, setting, trials, options.workers))
        print(draws[-1], flush=True)
        finish({"sound_pool": sound, **summary(draws), "draws": draws}, options.json)
    print(summary(draws))


if __name__ == "__main__":
    run_script(main)
