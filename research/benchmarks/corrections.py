"""What do corrections gain? Success of a frozen policy after 0, 1, 3 and 10, with the expert as the person.

    python research/benchmarks/corrections.py --out runs/corrections --json docs/results/corrections.json

The policy fails at the task: the L, a block it was not trained on, with ten demonstrations of the disc. The
policy runs from separate starts (seeds from 151000); the person watches and corrects by the rule below,
which was fixed before any measurement. Each correction is in the pool at the next step. For comparison,
from the same starts and by the same person: as many complete demonstrations of the robot in the pool, as many
as have the same number of steps, and fine-tuning of the policy on the corrections. 50 development starts,
seeds 500...549, for each of three lists of starts to correct. Finished rows are not run again.

The rule is implemented in `recap_worlds.pusht.person.Corrector`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from report import arguments, finish

from recap.assembly import AgentConfig, assemble_agent, load_policy
from recap.cli.one_line import run_script
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.evaluation.statistics import gain_interval, rate_interval
from recap.policies.checkpoint import from_pretrained
from recap.policies.policy import TrainedPolicy
from recap.pool.importers.interventions import from_takeover
from recap.pool.memory import MemoryPool, MemoryView
from recap.pool.packed import PackedPool, write_packed
from recap.serving.upload_reading import episode_of
from recap.training.data import build_data
from recap.training.trainer import train
from recap.types import Episode
from recap_client.corrections import CorrectionRecorder
from recap_client.messages import as_message
from recap_worlds.pusht.collecting import CollectSpec, demonstrate
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.expert import Expert
from recap_worlds.pusht.person import Corrector
from recap_worlds.pusht.recipes import RECIPES
from recap_worlds.pusht.robot import PUSHT
from recap_worlds.pusht.suite import context_of
from recap_worlds.pusht.tasks import FPS, MAX_STEPS, THRESHOLDS, scene_id

POLICY, BLOCK, ANGLE, PUSHER = "pusht-small", "ell", 45.0, "triangle"
SEEDS, N_QUICK = tuple(range(500, 550)), 10
COUNTS = (1, 3, 10)
N_POOL, POOL_SEED = 10, 150_000
START_SEEDS = (151_000, 152_000, 153_000)  # first seed of each list of starts
N_STARTS = 40  # starts per list, at most
TUNING = {"warm_up": 50, "learning_rate": 3e-4}  # as in the sweep of fine-tuning
N_ITERATIONS = {"fine-tuned": 400, "fine-tuned briefly": 100}


def correct(policy: TrainedPolicy, shown: Sequence[Episode], first_seed: int, n: int) -> list[Episode]:
    """The first n corrections on a list of starts; the policy uses each from its next step on."""
    pool, found = MemoryPool(shown), list[Episode]()
    agent = assemble_agent(AgentConfig(POLICY), pool, policy, robot=PUSHT, context=context_of(BLOCK, PUSHER))
    for seed in range(first_seed, first_seed + N_STARTS):
        env = PushTEnv(PUSHER, ANGLE, block=BLOCK)
        env.reset(seed=seed)
        person = Corrector(Expert(PUSHER, BLOCK))
        scene = scene_id(BLOCK, ANGLE, seed)
        recorder = CorrectionRecorder(scene, FPS, PUSHER, attributes={"block": BLOCK, "symmetry": 1})
        agent.reset(0, _Seeded(seed))
        for _ in range(MAX_STEPS):
            seen, coverage = env.observe(), env.coverage()
            action = person.takeover(seen, coverage)
            if action is None and recorder.n_frames:
                given = recorder.finish(coverage > THRESHOLDS[0])
                if given is not None:
                    found.append(episode_of(given))
                    pool.add(found[-1])
                    if len(found) == n:
                        return found
            if coverage > THRESHOLDS[-1]:
                break
            by_person = action is not None
            if action is None:
                action = agent.act([0], [seen])[0]
            recorder.add(as_message(seen), action, by_person)
            env.step(action)
    raise RuntimeError(f"{len(found)} corrections from {N_STARTS} starts: the policy fails too seldom")


@dataclass(frozen=True)
class _Seeded:
    seed: int


def n_steps(episodes: Sequence[Episode]) -> int:
    """The number of steps recorded by the person."""
    return sum(len(episode) - episode.first_match for episode in episodes)


def fine_tune(
    corrections: Sequence[Episode], pool: Sequence[Episode], judge: Episode, n_iterations: int, out: Path
) -> TrainedPolicy:
    """The policy after a fixed number of iterations; the held-out loss is logged but decides nothing."""
    learned = [replace(from_takeover(episode), scene_id=episode.id) for episode in corrections]
    middle = (len(learned) + 1) // 2
    config = replace(
        RECIPES[POLICY],
        init=POLICY,
        held_out=1 / (len(learned) + 1),
        n_iterations=n_iterations,
        validate_every=n_iterations,
        save_every=n_iterations,
        **TUNING,
    )
    data = build_data([*learned[:middle], judge, *learned[middle:]], pool, config)
    assert data.n_episodes[:2] == (len(learned), 1)
    return from_pretrained(str(train(config, out, data=data, device="cpu").last), "cpu")


def evaluate(
    config: AgentConfig, policy: TrainedPolicy | None, pool: Sequence[Episode], seeds: Sequence[int]
) -> Any:
    """For each start, whether the coverage exceeds 0.85 and 0.95."""
    options = {"pusher": PUSHER, "block": BLOCK}
    spec = EvalSpec(config, "pusht", options, tasks=(str(ANGLE),), seeds=tuple(seeds))
    context = context_of(BLOCK, PUSHER)
    agent = assemble_agent(config, MemoryPool(pool), policy, robot=PUSHT, context=context, suite=spec.suite)
    results = {result.seed: result for result in run_trials(agent, spec, spec.trials(), 8)}
    assert all(result.outcome != "error" for result in results.values())
    keys = [f"{threshold:g}" for threshold in THRESHOLDS]
    return {key: [int(results[seed].first_step[key] is not None) for seed in seeds] for key in keys}


def kept(file: Path, make: Callable[[], Sequence[Episode]]) -> list[Episode]:
    """The episodes of a file, which is made if it does not exist."""
    if not file.exists():
        write_packed(MemoryView(make()), file, images=False)
    view = PackedPool.open(file).view()
    return [view.episode(name) for name in view.episode_ids]


def demonstrations(pusher: str, first_seed: int, n: int) -> list[Episode]:
    """Complete demonstrations of the expert."""
    spec = CollectSpec(pusher, (ANGLE,), n, block=BLOCK, image_size=0, first_seed=first_seed)
    return [demonstrate(spec, demo) for demo in spec.demos()]


def equal_steps(whole: Sequence[Episode], steps: int) -> list[Episode]:
    """Complete demonstrations with about that number of steps in total, at least one."""
    sums = np.cumsum([len(episode) for episode in whole])
    return list(whole[: int(np.argmin(np.abs(sums - steps))) + 1])


def arms(out: Path, seeds: Sequence[int], rows: dict[str, Any], save: Callable[[], None]) -> None:
    """Run every missing row."""
    policy = load_policy(AgentConfig(POLICY))
    assert policy is not None
    replay = AgentConfig(settings_of=POLICY)
    pool = kept(out / "pool.safetensors", lambda: demonstrations("disc", POOL_SEED, N_POOL))

    def run(name: str, config: AgentConfig, actor: Any, more: Sequence[Episode], **facts: Any) -> None:
        if name in rows:
            return
        began = time.perf_counter()
        actor = actor() if isinstance(actor, partial) else actor
        solved = evaluate(config, actor, [*pool, *more], seeds)
        rows[name] = {**facts, "solved": solved, "wall_s": round(time.perf_counter() - began, 1)}
        print(name, facts, {key: sum(hits) for key, hits in solved.items()}, flush=True)
        save()

    run("frozen, 0", AgentConfig(POLICY), policy, [], steps=0)
    run("replay, 0", replay, None, [], steps=0)
    for list_number, first in enumerate(START_SEEDS):
        shown = kept(
            out / f"corrections-{first}.safetensors", lambda f=first: correct(policy, pool, f, COUNTS[-1])
        )
        whole = kept(
            out / f"whole-{first}.safetensors", lambda f=first: demonstrations(PUSHER, f, COUNTS[-1])
        )
        judge = kept(out / "judge.safetensors", lambda: demonstrations(PUSHER, 154_000, 1))[0]
        for n in COUNTS:
            given, steps = shown[:n], n_steps(shown[:n])
            facts = {"n": n, "list": list_number}
            run(
                f"corrections, {n}, list {list_number}",
                AgentConfig(POLICY),
                policy,
                given,
                **facts,
                steps=steps,
            )
            run(f"replay, corrections, {n}, list {list_number}", replay, None, given, **facts, steps=steps)
            run(
                f"whole, {n}, list {list_number}", AgentConfig(POLICY), policy, whole[:n], **facts,
                steps=n_steps(whole[:n]),
            )  # fmt: skip
            same = equal_steps(whole, steps)
            run(
                f"whole, steps of {n}, list {list_number}", AgentConfig(POLICY), policy, same,
                **{**facts, "demonstrations": len(same)}, steps=n_steps(same),
            )  # fmt: skip
            for kind, n_iterations in N_ITERATIONS.items():
                tuned = partial(
                    fine_tune, given, pool, judge, n_iterations, out / f"{kind}-{list_number}-{n}"
                )
                run(f"{kind}, {n}, list {list_number}", AgentConfig(POLICY), tuned, [], **facts, steps=steps)


def summary(rows: Mapping[str, Any]) -> dict[str, Any]:
    """For each kind and count over the lists: rate, interval, and the paired gain over no correction."""
    table: dict[str, Any] = {}
    for key in (f"{threshold:g}" for threshold in THRESHOLDS):
        base = np.array(rows["frozen, 0"]["solved"][key], np.float64)[None, :, None]  # (1, starts, 1)
        kinds: dict[str, list[Any]] = {}
        for name, row in rows.items():
            kinds.setdefault(name.split(", list")[0], []).append(row)
        for kind, found in kinds.items():
            hits = np.array([row["solved"][key] for row in found], np.float64)[:, :, None]
            entry = table.setdefault(kind, {"steps": float(np.mean([row["steps"] for row in found]))})
            low, high = rate_interval(hits)
            entry[key] = {"rate": float(hits.mean()), "interval": [low, high], "n": int(hits.size)}
            if kind != "frozen, 0":
                entry[key]["gain"] = float(hits.mean() - base.mean())
                entry[key]["gain_interval"] = list(gain_interval(hits, base))
    for key in (f"{threshold:g}" for threshold in THRESHOLDS):
        for n in COUNTS:
            ours = np.array([r["solved"][key] for r in _lists(rows, f"corrections, {n}")], np.float64)[
                :, :, None
            ]
            for other in (f"whole, {n}", f"whole, steps of {n}", *(f"{kind}, {n}" for kind in N_ITERATIONS)):
                found = _lists(rows, other)
                if len(found) != len(ours):
                    continue
                theirs = np.array([row["solved"][key] for row in found], np.float64)[:, :, None]
                against = table[f"corrections, {n}"].setdefault("against", {}).setdefault(other, {})
                against[key] = [float(ours.mean() - theirs.mean()), *gain_interval(ours, theirs)]
    return table


def _lists(rows: Mapping[str, Any], kind: str) -> list[Any]:
    return [row for name, row in rows.items() if name.split(", list")[0] == kind]


def main() -> None:
    """Run what is missing, and summarise."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/corrections"), help="keeps what was recorded")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / ("quick.json" if options.quick else "rows.json")
    rows: dict[str, Any] = json.loads(file.read_text())["rows"] if file.exists() else {}
    seeds = SEEDS[:N_QUICK] if options.quick else SEEDS
    arms(options.out, seeds, rows, lambda: finish({"rows": rows}, file))
    finish({"seeds": [seeds[0], seeds[-1]], "summary": summary(rows), "rows": rows}, options.json)
    for kind, entry in summary(rows).items():
        rates = "  ".join(
            f"> {k}: {100 * entry[k]['rate']:.1f} {entry[k]['interval']}" for k in ("0.85", "0.95")
        )
        print(f"{kind}: {entry['steps']:.0f} steps, {rates}")


if __name__ == "__main__":
    run_script(main)
