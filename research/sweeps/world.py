"""Retrievals in the world frame, `world` and `world-oracle`, with small policies, by pool size.

python research/sweeps/world.py --out runs/world --device cpu --eval-workers 1
"""

from functools import partial

from common import HEADLINE, LETTERS, SHORT, pools_by_size

from recap.training.presets import preset
from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht

RETRIEVALS = {"single": "world", "oracle": "world-oracle"}
SAME = {"subtrajectories": True, "n_action_steps": 4}


def build(sweep: Sweep) -> None:
    sweep.title = "The world's frame"
    sweep.lead = (
        "The published modes with small policies on poses alone: nothing is moved into the block's frame."
    )
    rows = {}
    for name, retrieval in RETRIEVALS.items():
        evaluate = {"all": partial(pusht, seeds=HEADLINE)}
        config = preset(f"pusht-small-{retrieval}")
        sweep.train(f"small-{name}", config, evaluate, (0, 1, 2), f"small, {retrieval}")
        plain = pusht("replay", HEADLINE, retrieval=retrieval)
        sweep.roll_out(name, plain, f"replay, plain, {retrieval}")
        same = pusht("replay", HEADLINE, retrieval=retrieval, **SAME)
        sweep.roll_out(f"{name}-same", same, f"replay, same settings, {retrieval}")
        rows[name] = [name, f"{name}-same", f"small-{name}"]
    text = "900 demonstrations, 50 starts a goal."
    sweep.part("The world's frame", [*rows["single"], *rows["oracle"]], "single-same", text)
    text = "The same against replay in its own mode."
    sweep.part("The world's frame, world-oracle", rows["oracle"], "oracle-same", text)
    for block, letter in LETTERS.items():
        pools = pools_by_size(sweep, block)
        if block == "tee":
            del pools[900]  # evaluated above
        for name, retrieval in RETRIEVALS.items():
            policy, names = sweep.policy(f"small-{name}-0"), [f"small-{name}-{block}-0"]
            nothing = pusht(policy, SHORT, block=block, matching="none")
            sweep.roll_out(names[0], nothing, f"small, {retrieval}, nothing retrieved (the {letter})")
            for n, pool in pools.items():
                names += [f"{name}-{block}-{n}-same", f"small-{name}-{block}-{n}"]
                same = pusht("replay", SHORT, block=block, pool=pool, retrieval=retrieval, **SAME)
                sweep.roll_out(names[-2], same, f"replay, same settings, {retrieval}, {n} of the {letter}")
                small = pusht(policy, SHORT, block=block, pool=pool)
                sweep.roll_out(names[-1], small, f"small, {retrieval}, {n} of the {letter}")
            end, more = ("", "") if block == "tee" else (", the L", "; no policy was trained on this block")
            sweep.part(f"Pool size, {retrieval}{end}", names, names[-2], f"20 starts a goal{more}.")


if __name__ == "__main__":
    run(__doc__, build)
