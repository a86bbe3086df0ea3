"""Why co-training gains nothing: small state policies in the world frame, mirrored and not mirrored.

python research/sweeps/co_training.py --out runs/co-training --device cpu --eval-workers 0
"""

from functools import partial

from common import ALONE, SHORT, WORLD

from recap.training.presets import preset
from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht


def build(sweep: Sweep) -> None:
    sweep.title = "Co-training"
    sweep.lead = "Small policies on poses in the world's frame, with and without mirrored demonstrations."
    names = []
    for mirror, mirrored in (("plain", "not mirrored"), ("mirrored", "mirrored")):
        for data, words in (("alone", "no retrieval"), ("union", "co-training")):
            changes = [*WORLD, *ALONE]
            changes += ["augment.mirror=false"] if mirror == "plain" else []
            changes += ["co_training=true", "pool_where="] if data == "union" else []
            names.append(f"{data}-{mirror}")
            evaluate = {"all": partial(pusht, seeds=SHORT)}
            sweep.train(names[-1], preset("pusht-small", changes), evaluate, label=f"{words}, {mirrored}")
    sweep.part(
        "Co-training, with and without mirrored demonstrations",
        names,
        "alone-plain",
        "The paper mirrors nothing.",
    )


if __name__ == "__main__":
    run(__doc__, build)
