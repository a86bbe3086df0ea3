"""How much of the residual should count, by rules that need no task: compared with all of it and with replay.

    python research/benchmarks/residual_rules.py pools POOLS     # 50 of the T, 200 of the L
    python research/benchmarks/residual_rules.py pusht-small ell POOLS/ell-200.safetensors ratio \\
        --seeds 500:540 --json docs/results/residual_rules.json
    python research/benchmarks/residual_rules.py pusht-small held-out POOLS/seen-200.safetensors none

A rule is `whole`, `replay`, `half20` (half of it counts at 20 px), `cold` (temperature 0), or one of these:

- `ratio`: it counts for e_r / (e_r + e_n). These are the squared errors so far in this episode of the block's
  pose at the chunk's end, predicted by the retrieved demonstration and by the network; both are known
  when the next chunk is planned. Older errors count half as much with every chunk.
- `usualN`: it counts for N² / e_n, at most 1; N px is the network's usual error on held-out frames.
- `samples`: it counts as much as two samples of it agree, 2 r·q / (r·r + q·q), within 0 and 1. That is a
  second call of the network, so its cost is higher.

`held-out` evaluates the demonstrations that training held out, and writes nothing: the errors of the
retrieved chunk and of the network's chunk, and the share of the residual that fits best, by distance of
the match.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recap.agent import RetrievalAgent
from recap.agent_config import AgentConfig
from recap.cli.one_line import run_script
from recap.cli.ranges import parse_seeds
from recap.evaluation.agents import make_agent
from recap.evaluation.offline import evaluate_offline
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.evaluation.statistics import gain_interval, rate_interval, seed_table
from recap.geometry import out_of_frame
from recap.prediction import PolicyInput, Predictor
from recap.training.data import demonstrations, split
from recap.types import F64, ActionChunk, Conditioning
from recap_research.sweep.pools import Selection, collect_pools
from recap_worlds.pusht.collecting import CollectSpec
from recap_worlds.pusht.tasks import ANGLES

UNSEEN = ("-60", "-30", "-15", "0", "+15", "+30", "+60")
THRESHOLDS = ("0.85", "0.95")
ARM = 60.0  # px: an error is over two points of the block, its centre and one at this distance
KEPT = 0.5  # share of earlier errors kept with every chunk


class Ratio(Predictor):
    """Weighs the residual by the past errors of both predictions of the block's pose, or by a usual error."""

    def __init__(self, like: Predictor, usual: float | None = None) -> None:
        super().__init__(like.policy, like.residual, like.halflife)
        self.usual = usual
        self.said: dict[object, tuple[F64, F64]] = {}  # an episode's generator -> both predicted points
        self.errors: dict[object, F64] = {}  # summed squared errors of network and match, and their weight
        self.log: list[tuple[float, float]] = []

    def predict(self, ready: Sequence[PolicyInput]) -> list[ActionChunk]:
        """One chunk each."""
        return [self._judged(*one) for one in zip(super().predict(ready), ready, strict=True)]

    def _judged(self, chunk: ActionChunk, one: PolicyInput) -> ActionChunk:
        if not one.retrieval.matches:
            return chunk
        if one.generator in self.said:
            (pose,) = one.observation.objects.values()
            came = points_of(pose)
            now = np.array([np.square(said - came).sum() for said in self.said[one.generator]])
            self.errors[one.generator] = KEPT * self.errors.get(one.generator, np.zeros(3)) + [*now, 1.0]
            self.log.append((float(now[0]), float(now[1])))
        net, shown, n = self.errors.get(one.generator, np.array([1.0, 1.0, 0.0]))
        self.said[one.generator] = said_by(chunk, one.conditioning)
        share = shown / max(shown + net, 1e-12)
        if self.usual is not None:
            share = min(1.0, n * self.usual**2 / max(net, 1e-12)) if n else 1.0
        return weighed(self, chunk, share)


class Samples(Predictor):
    """Weighs the residual by how well two samples agree."""

    def __init__(self, like: Predictor) -> None:
        super().__init__(like.policy, like.residual, like.halflife)

    def predict(self, ready: Sequence[PolicyInput]) -> list[ActionChunk]:
        """One chunk each."""
        found = []
        for chunk, other in zip(super().predict(ready), super().predict(ready), strict=True):
            r, q = chunk.residual.ravel(), other.residual.ravel()
            found.append(weighed(self, chunk, float(np.clip(2 * (r @ q) / (r @ r + q @ q + 1e-12), 0, 1))))
        return found


def said_by(chunk: ActionChunk, given: Conditioning) -> tuple[F64, F64]:
    """The block's position at the chunk's end, predicted by the network and by the demonstration."""
    state, rows = chunk.predicted_state, given.objects[0]
    assert state is not None
    then = points_of(np.array([*state[-4:-2], np.arctan2(state[-1], state[-2])]))
    ahead = 2 * points_of(rows[-1]) - points_of(rows[-2])  # the last row is one step before the end
    net, shown = (out_of_frame(given.frame, points.reshape(2, 2)).ravel() for points in (then, ahead))
    return net, shown


def points_of(pose: F64) -> F64:
    """The block's centre, and a point that rotates with it."""
    x, y, turn = pose
    return np.array([x, y, x + ARM * np.cos(turn), y + ARM * np.sin(turn)])


def weighed(predictor: Predictor, chunk: ActionChunk, weight: float) -> ActionChunk:
    """The chunk with a share of the residual."""
    assert predictor.policy is not None
    base = chunk.actions - chunk.residual
    actions = predictor.policy.config.robot.act.project(base + weight * chunk.residual, base)
    return replace(chunk, actions=actions.astype(np.float32), residual=(actions - base).astype(np.float32))


def roll_out(policy: str, block: str, pool: str, rule: str, seeds: Sequence[int]) -> dict[str, Any]:
    """One digit per episode, by goal: the number of passed thresholds."""
    config = AgentConfig(policy)
    if rule == "replay":
        config = AgentConfig(settings_of=policy)
    elif rule == "cold":
        config = replace(config, temperature=0.0)
    elif rule.startswith("half"):
        config = replace(config, residual_halflife=float(rule.removeprefix("half")))
    options = {"pusher": "triangle", "block": block}
    spec = EvalSpec(config, "pusht", options, tasks=UNSEEN, seeds=tuple(seeds), pool=pool)
    agent = make_agent(spec)
    assert isinstance(agent, RetrievalAgent)
    if rule == "samples":
        agent.predictor = Samples(agent.predictor)
    elif rule == "ratio" or rule.startswith("usual"):
        agent.predictor = Ratio(agent.predictor, float(rule[5:]) if rule != "ratio" else None)
    digits: dict[str, dict[int, int]] = {task: {} for task in spec.task_keys}
    for result in run_trials(agent, spec, iter(spec.trials()), 35):
        digits[result.task][result.seed] = sum(step is not None for step in result.first_step.values())
    row = {"policy": policy, "block": block, "pool": Path(pool).stem, "rule": rule}
    row["outcomes"] = {task: "".join(str(mine[s]) for s in seeds) for task, mine in digits.items()}
    if isinstance(agent.predictor, Ratio):
        net, shown = np.array(agent.predictor.log).T
        row["said"] = {
            "network_px": float(np.sqrt(net.mean())),
            "retrieved_px": float(np.sqrt(shown.mean())),
            "network_nearer": float((net < shown).mean()),
        }
    return {**row, "seeds": f"{seeds[0]}:{seeds[-1] + 1}"}


def judge(rows: Sequence[dict[str, Any]]) -> None:
    """Add counts and intervals to rows, compared with replay on the same starts."""

    def table(row: dict[str, Any], passed: int) -> F64:
        first = int(row["seeds"].split(":")[0])
        each = {(g, first + i): d for g, text in row["outcomes"].items() for i, d in enumerate(text)}
        return seed_table({key: float(int(d) >= passed) for key, d in each.items()})[None]

    replayed = {setting(row): row for row in rows if row["rule"] == "replay"}
    for row in rows:
        for passed, threshold in enumerate(THRESHOLDS, 1):
            values, other = table(row, passed), replayed.get(setting(row))
            told = {"successes": int(values.sum()), "n": values.size, "interval": list(rate_interval(values))}
            if other is not None and other is not row:
                theirs = table(other, passed)
                told["over_replay"] = float(values.mean() - theirs.mean())
                told["over_replay_interval"] = list(gain_interval(values, theirs))
            row[threshold] = told


def setting(row: dict[str, Any]) -> tuple[str, ...]:
    """The settings that two compared rows must share."""
    return tuple(row[key] for key in ("policy", "block", "pool", "seeds"))


def held_out(policy: str, pool: str) -> None:
    """By fifths of distance: RMS of a chunk as retrieved and as predicted, and the share that fits best."""
    demos = demonstrations("pusht-triangle")
    ids = {episode.id for episode in split(demos, 0.1)[1]}
    numbers = [i for i, episode in enumerate(demos) if episode.id in ids]
    found = evaluate_offline(
        AgentConfig(policy), "pusht-triangle", pool, episodes=numbers, n_watched=len(numbers)
    )
    rows, errors = [], []
    for watched in found[1]:
        (poses,) = watched.episode.objects.values()
        for look in watched.looks:
            if look.plan is None or not look.retrieval.matches:
                continue
            given, chunk = look.plan.conditioning, look.plan.chunk
            true = watched.episode.actions[look.t : look.t + len(chunk.actions)].astype(np.float64)
            true = watched.agent.robot().act.into(given.frame, true)
            r = chunk.residual[: len(true)].astype(np.float64)
            off = true - given.actions[0][: len(true)]
            sums = [(off * off).sum(), ((off - r) ** 2).sum(), (r * off).sum(), (r * r).sum()]
            rows.append((look.retrieval.matches[0].distance, len(true), *sums))
            if look.t + len(chunk.actions) < len(poses):
                came = points_of(poses[look.t + len(chunk.actions)].astype(np.float64))
                errors.append([np.linalg.norm(said - came) for said in said_by(chunk, given)])
    table = np.array(rows)
    print(f"{len(table)} moments, median distance {np.median(table[:, 0]):.1f} px")
    net, shown = np.median(errors, axis=0)
    print(f"next pose, median error at {len(errors)}: network {net:.2f} px, retrieved {shown:.2f} px")
    for part in np.array_split(table[np.argsort(table[:, 0])], 5):
        n, base, made, along, size = part[:, 1:].sum(axis=0)
        told = f"retrieved {np.sqrt(base / n):.1f}, predicted {np.sqrt(made / n):.1f} px"
        print(f"distance {np.median(part[:, 0]):5.1f}: {told}; best share {along / size:.2f}")


def main() -> int:
    """Evaluate one row, and add it to the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("policy")
    parser.add_argument("rest", nargs="+", metavar="BLOCK POOL RULE")
    parser.add_argument("--seeds", default="500:540")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.policy == "pools":
        folder = Path(options.rest[0])
        folder.mkdir(parents=True, exist_ok=True)
        collect_pools({"ell-207": CollectSpec("disc", ANGLES, 23, block="ell", image_size=0)}, folder, 1)
        ell, seen = str(folder / "ell-207.safetensors"), ("goal_angle=45", "goal_angle=-45")
        some = {"ell-200": Selection(ell, 200), "tee-50": Selection("pusht-9x100", 50)}
        collect_pools({**some, "seen-200": Selection("pusht-9x100", 0, seen)}, folder, 1)
        return 0
    block, pool, rule = options.rest
    if block == "held-out":
        held_out(options.policy, pool)
        return 0
    row = roll_out(options.policy, block, pool, rule, parse_seeds(options.seeds))
    rows = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    rows = [r for r in rows if (*setting(r), r["rule"]) != (*setting(row), rule)] + [row]
    judge(rows)
    if options.json:
        told = "python research/benchmarks/residual_rules.py POLICY BLOCK POOL RULE --seeds SEEDS"
        options.json.write_text(json.dumps({"command": told, "rows": rows}, indent=1) + "\n")
    print({key: row[key] for key in ("rule", *THRESHOLDS)})
    return 0


if __name__ == "__main__":
    run_script(main)
