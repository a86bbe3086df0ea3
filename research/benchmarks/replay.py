"""How far does retrieval get without training? Replay with every retrieval, in the real environment.

    python research/benchmarks/replay.py --json docs/results/replay.json

Headline rows: 9 angles × seeds 42…91, both pushers, the included pool of 900 disc demonstrations and fifty
of them, evenly spread. Choices (candidates, options) are measured on development seeds 500…519 only.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from report import arguments, finish

from recap.agent import RetrievalAgent
from recap.assembly import AgentConfig
from recap.cli.one_line import run_script
from recap.evaluation.agents import Agent, PixelPoses, Trial
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.evaluation.summary import summarise
from recap.features.describer import TermDescriber
from recap.features.terms import ImageFeature
from recap.features.vision import PatchEncoder
from recap.pool.memory import MemoryView
from recap.pool.opening import open_pool
from recap.pool.packed import write_packed
from recap.retrieval.aligners import GoalFrame, ObjectFrame, World
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.types import EpisodeResult
from recap.workers import run_in_workers
from recap_worlds.pusht.robot import IMAGE_SIZE, PUSHT
from recap_worlds.pusht.tasks import EVALUATION_SEEDS

DEVELOPMENT_SEEDS = tuple(range(500, 520))
PLAIN = {"stall_penalty": 0.0, "trim": 0}
CAREFUL = {"stall_penalty": 6.0, "trim": 3}
ALIGNERS = {"world": World("block"), "goal": GoalFrame("block"), "object": ObjectFrame("block")}


@dataclass(frozen=True)
class Row:
    """One evaluation."""

    retrieval: str
    pusher: str = "triangle"
    pool: str = "pusht-9x100"
    seeds: tuple[int, ...] = EVALUATION_SEEDS
    n_candidates: int | None = None
    objects: Literal["truth", "pixels"] = "truth"
    options: dict[str, Any] = field(default_factory=dict)  # to the retrieval
    image_weight: float | None = None  # px² for a cosine distance of 1

    @property
    def name(self) -> str:
        """The name of the row in words."""
        pool = Path(self.pool).stem
        parts = [
            self.retrieval,
            self.pusher,
            pool,
            f"candidates {self.n_candidates or 'all'}",
            f"poses {self.objects}",
        ]
        if self.image_weight is not None:
            parts.append(f"image {self.image_weight:g}")
        return ", ".join([*parts, *(f"{k} {v}" for k, v in self.options.items())])

    def spec(self) -> EvalSpec:
        """The evaluation spec of the row."""
        agent, options = AgentConfig(retrieval=self.retrieval), {"pusher": self.pusher}
        return EvalSpec(agent, "pusht", options, seeds=self.seeds, objects=self.objects)


def play(row: Row, trials: Iterator[Trial]) -> Iterator[EpisodeResult]:
    """Run some trials of a row in this process."""
    describer, config = find_retrieval(f"pusht-{row.retrieval}", PUSHT, row.n_candidates)
    changes: dict[str, Any] = {
        key: ALIGNERS[value] if key == "aligner" else value for key, value in row.options.items()
    }
    config = replace(config, **changes)
    if row.image_weight is not None:
        describer = TermDescriber({**describer.terms, "image": ImageFeature(PatchEncoder(), "top")})
        scales = {**config.scales, "image": math.sqrt(2)}
        config = replace(config, weights={**config.weights, "image": row.image_weight}, scales=scales)
    spec = row.spec()
    context = spec.suite.context(spec.options)
    retriever = Retriever(open_pool(row.pool), describer, config)
    agent: Agent = RetrievalAgent(retriever, robot=PUSHT, context=context)
    if row.image_weight:
        agent.image_size = IMAGE_SIZE
    if row.objects == "pixels":
        agent = PixelPoses(agent, lambda: spec.suite.estimator(spec.options))
    yield from run_trials(agent, spec, trials, 8)


def fifty(folder: Path) -> str:
    """Every eighteenth demonstration of the included pool: fifty, spread over the nine goals."""
    view = open_pool("pusht-9x100").view()
    path = folder / "fifty.safetensors"
    write_packed(MemoryView([view.episode(i) for i in view.episode_ids[::18]]), path, images=False)
    return str(path)


def rows(pool_of_50: str, quick: bool) -> dict[str, list[Row]]:
    """All rows to run."""
    names = ("published", "world-oracle", "world", "object")
    headline = [
        Row(name, pusher, pool)
        for pusher in ("triangle", "disc")
        for pool in ("pusht-9x100", pool_of_50)
        for name in names
    ]
    headline.append(Row("object", objects="pixels"))
    development = [
        Row(name, seeds=DEVELOPMENT_SEEDS, n_candidates=n) for name in names[1:] for n in (5, 20, 100, None)
    ]
    options = [
        Row(name, seeds=DEVELOPMENT_SEEDS, options=dict(chosen))
        for name in names[1:]
        for chosen in (PLAIN, {**PLAIN, "trim": 3}, {**PLAIN, "stall_penalty": 6.0}, CAREFUL)
    ]
    ours = {"object": 1.0, "turn": 1.0, "proprio": 0.1}  # stage-1 weights; the paper publishes none
    changes = [{}, *({name: ours[name] * factor} for name in ours for factor in (0.25, 4.0))]
    sensitivity = [
        Row(
            "object",
            seeds=DEVELOPMENT_SEEDS,
            n_candidates=100,
            options={"scene_weights": {**ours, **change}},
        )
        for change in changes
    ]
    plain = {"proprio": 1.0, "object": 1.0, "turn": 1.0}  # stage 2; the paper gives no object weight
    sensitivity += [
        Row("object", seeds=DEVELOPMENT_SEEDS, options={"weights": {**plain, "object": w, "turn": w}})
        for w in (0.25, 4.0)
    ]
    frames = [Row("object", seeds=DEVELOPMENT_SEEDS, options={"aligner": frame}) for frame in ALIGNERS]
    equal = [
        Row("world-oracle", options=CAREFUL),
        Row("world", options=CAREFUL),
        Row("object", options=PLAIN),
    ]
    images = [Row("object", seeds=DEVELOPMENT_SEEDS, image_weight=w) for w in (0.0, 100.0, 1000.0)]
    groups = {
        "equal options": equal,
        "images": images,
        "headline": headline,
        "candidates": development,
        "options": options,
        "frames": frames,
        "sensitivity": sensitivity,
    }
    if quick:
        return {k: [replace(r, seeds=r.seeds[:3]) for r in v[-2:]] for k, v in groups.items()}
    return groups


def main() -> None:
    """Run the rows one after another, each on all cores."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="these groups; the JSON file keeps its others")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    if options.only and options.json and options.json.exists():
        result = json.loads(options.json.read_text())
    with tempfile.TemporaryDirectory() as folder:
        for group, members in rows(fifty(Path(folder)), options.quick).items():
            if options.only and group not in options.only:
                continue
            print(f"\n{group}: success > 0.85 and > 0.95, seen and unseen angles")
            result[group] = []
            for row in members:
                started = time.perf_counter()
                found = run_in_workers(partial(play, row), row.spec().trials(), os.cpu_count() or 1)
                summary = summarise(row.spec(), list(found))
                assert not summary.n_errors, "an episode ended in an error"
                groups = {g.name: {k: str(r) for k, r in g.rates.items()} for g in summary.groups}
                numbers = summary.to_json()
                figures = {name: numbers[name]["success"] for name in ("seen", "unseen")}
                wall_s = time.perf_counter() - started
                told = {**asdict(row), "pool": Path(row.pool).stem, "seeds": [row.seeds[0], row.seeds[-1]]}
                result[group].append({**told, "name": row.name, "success": figures, "wall_s": wall_s})
                print(f"{row.name}\n   seen {groups['seen']}\n unseen {groups['unseen']}  ({wall_s:.0f} s)")
                sys.stdout.flush()
                finish(result, options.json)  # written after each row, so a stopped run keeps its rows


if __name__ == "__main__":
    run_script(main)
