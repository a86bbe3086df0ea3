"""How much is left to learn after retrieval? The residual of training pairs, by the way they are matched.

    python research/benchmarks/pairs.py --json docs/results/pairs.json

Paired disc and triangle demonstrations at ±45°, chunk of 8, everything in the block's frame: RMS of the
triangle's action chunk minus the retrieved disc chunk, px. Varied are: whether the demonstration of the same
scene may be matched, the weight of the action term, and the prefilter of stage 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import numpy as np
from report import arguments, finish

from recap.cli.one_line import run_script
from recap.features.terms import Actions
from recap.pool.memory import MemoryPool
from recap.retrieval.pairs import find_pairs, with_action_term
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.types import Episode
from recap.workers import run_in_workers
from recap_worlds.pusht.collecting import CollectSpec, Demo, demonstrate
from recap_worlds.pusht.robot import PUSHT
from recap_worlds.pusht.terms import Position

HORIZON = 8


def collected(spec: CollectSpec) -> MemoryPool:
    """The demonstrations of a spec, in order."""
    found = list(run_in_workers(partial(_demonstrate, spec), spec.demos(), os.cpu_count() or 1))
    return MemoryPool([episode for _, episode in sorted(found, key=lambda pair: pair[0])])


def _demonstrate(spec: CollectSpec, demos: Iterator[Demo]) -> Iterator[tuple[int, Episode]]:
    for demo in demos:
        yield demo.index, demonstrate(spec, demo)


def main() -> None:
    """Collect, match in several ways, and report the residuals."""
    options = arguments(__doc__.splitlines()[0]).parse_args()
    n = 5 if options.quick else 50
    targets, pool = (collected(CollectSpec(p, (-45.0, 45.0), n, image_size=0)) for p in ("triangle", "disc"))
    target, demonstrated = targets.view(), pool.view()
    term = Actions(2, HORIZON, frame="block")
    chunks = {e: term.describe(view.episode(e)) for view in (target, demonstrated) for e in view.episode_ids}
    place = Position("block")
    now = {e: np.tile(place.describe(target.episode(e)), HORIZON) for e in target.episode_ids}
    rows = []
    for twin in (True, False):
        for n_candidates in (5, None):
            for weight in (0.0, 0.1, 1.0):
                usual = find_retrieval("pusht-object", PUSHT, n_candidates)
                training = with_action_term(*usual, PUSHT, weight)
                pairs = find_pairs(target, Retriever(pool, *training), k=3, allow_twin=twin)
                wanted = np.array([chunks[pairs.target_ids[e]][t] for e, t in pairs.target])
                first = np.array([chunks[pairs.pool_ids[e]][t] for e, t in pairs.match[:, 0]])
                still = np.array([now[pairs.target_ids[e]][t] for e, t in pairs.target])
                row = {
                    "twin": twin,
                    "n_candidates": n_candidates,
                    "action_weight": weight,
                    "residual_rms_px": float(np.sqrt(((wanted - first) ** 2).mean())),
                    "hold_still_rms_px": float(np.sqrt(((wanted - still) ** 2).mean())),
                    "frames": len(wanted),
                }
                rows.append(row)
                kept = str(n_candidates or "all")
                figures = f"{row['residual_rms_px']:6.2f} px   hold still {row['hold_still_rms_px']:6.2f} px"
                who = f"twin {'yes' if twin else 'no':<3} candidates {kept:<4} action weight {weight:<4g}"
                print(f"{who} residual {figures}")
    finish({"per_angle": n, "rows": rows}, options.json)


if __name__ == "__main__":
    run_script(main)
