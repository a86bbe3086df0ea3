"""New blocks (L, Z, plus) by the number of demonstrations, with and without one more block in training.

python research/sweeps/progression.py --out runs/progression --device cpu --eval-workers 2
"""

from functools import partial

from common import ANGLES, SHORT, collected

from recap.training.presets import preset
from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht

BLOCKS = {"ell": ("the L", 143_000), "zed": ("the Z", 144_000), "plus": ("the plus", 145_000)}


def build(sweep: Sweep) -> None:
    sweep.title = "Progression"
    sweep.lead = "New blocks for a policy that knows the T only, and for one that was trained on one more."
    pools = {
        block: {
            9 * n: sweep.pool(f"disc-{block}-{9 * n}", collected("disc", ANGLES, n, block, seed))
            for n in (1, 4, 16)
        }
        for block, (_, seed) in BLOCKS.items()
    }
    shown = [
        sweep.pool(f"{pusher}-shape-ell", collected(pusher, (-45.0, 45.0), 50, "ell", 146_000))
        for pusher in ("triangle", "disc")
    ]
    changes = [f"target=pusht-triangle,{shown[0]}", f"pool=pusht-9x100,{shown[1]}"]
    evaluate = {
        block: partial(pusht, seeds=SHORT, block=block, pool=pools[block][144])
        for block in ("zed", "plus", "ell")
    }
    sweep.train("two-shapes", preset("pusht-small", changes), evaluate, (0, 1, 2), "T and L")
    for block, (the, _) in BLOCKS.items():
        names = []
        for n, pool in pools[block].items():
            names += [f"replay-{block}-{n}-same", f"shipped-{block}-{n}"]
            same = pusht("replay", SHORT, block=block, pool=pool, settings_of="pusht-small")
            sweep.roll_out(names[-2], same, f"replay, same settings, contact, {n} of {the}")
            shipped = pusht("pusht-small", SHORT, block=block, pool=pool)
            sweep.roll_out(names[-1], shipped, f"pusht-small, {n} of {the}")
        sweep.part(
            f"A new block: {the}",
            [*names, f"two-shapes/{block}"],
            f"replay-{block}-144-same",
            "Demonstrations at all nine goals, as many each. T and L: a policy that was trained on the L "
            "too, on 144 of this block.",
        )


if __name__ == "__main__":
    run(__doc__, build)
