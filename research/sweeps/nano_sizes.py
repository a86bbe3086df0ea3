"""The included policy and replay by pool size, on the T and the L; nothing is trained.

python research/sweeps/nano_sizes.py --out runs/nano-sizes
"""

from common import LETTERS, SHORT, pools_by_size

from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht


def build(sweep: Sweep) -> None:
    sweep.title = "Pool size"
    sweep.lead = (
        "The shipped pusht-nano on pools of 0 to 900 demonstrations, of the T that it was trained on and of "
        "the L that it never saw."
    )
    for block, letter in LETTERS.items():
        names = [f"nano-{block}-0"]
        nothing = pusht("pusht-nano", SHORT, block=block, matching="none")
        sweep.roll_out(names[0], nothing, f"pusht-nano, nothing retrieved (the {letter})")
        for n, pool in pools_by_size(sweep, block).items():
            nano = pusht("pusht-nano", SHORT, block=block, pool=pool)
            same = pusht("replay", SHORT, block=block, pool=pool, settings_of="pusht-nano")
            names += [f"nano-{block}-{n}", f"replay-{block}-{n}-same"]
            sweep.roll_out(names[-2], nano, f"pusht-nano, {n} of the {letter}")
            sweep.roll_out(names[-1], same, f"replay, same settings, contact, {n} of the {letter}")
        unseen = "" if block == "tee" else "; no policy was trained on this block"
        sweep.part(f"Pool size, the {letter}", names, names[-1], f"20 starts a goal{unseen}.")


if __name__ == "__main__":
    run(__doc__, build)
