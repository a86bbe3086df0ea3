"""`pusht-small` with a residual that counts less near its match, next to the full residual and replay.

python research/sweeps/weighed.py --out runs/weighed --device cpu --eval-workers 0
"""

from common import LETTERS, SHORT, UNSEEN, pools_by_size

from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht

AGENTS = {
    "replay": ("replay", {"settings_of": "pusht-small"}, "replay, same settings, contact"),
    "whole": ("pusht-small", {}, "pusht-small"),
    "weighed": ("pusht-small", {"residual_halflife": 20.0}, "pusht-small, half at 20 px"),
}


def build(sweep: Sweep) -> None:
    sweep.title = "A residual weighed by distance"
    sweep.lead = "The residual counts for d²/(d² + 20²) of a match at distance d: near ones are left alone."
    for block, letter in LETTERS.items():
        names = []
        for n, pool in pools_by_size(sweep, block).items():
            for agent, (policy, given, label) in AGENTS.items():
                spec = pusht(policy, SHORT, UNSEEN, block=block, pool=pool, **given)
                names.append(f"{agent}-{block}-{n}" + ("-same" if agent == "replay" else ""))
                sweep.roll_out(names[-1], spec, f"{label}, {n} of the {letter}")
        sweep.part(
            f"Weighed by distance: the {letter}",
            names,
            f"replay-{block}-200-same",
            "20 starts at each of seven unseen goals; pusht-small, which was trained on the T.",
        )


if __name__ == "__main__":
    run(__doc__, build)
