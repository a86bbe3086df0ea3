"""A π0-type backbone at tiny size, with and without retrieval.

python research/sweeps/pi0.py --out runs/evidence
"""

from functools import partial

from common import SHORT, UNSEEN

from recap.training.presets import preset
from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht

FEW = ("n_iterations=1200",)


def build(sweep: Sweep) -> None:
    sweep.title = "A π0-type backbone"
    sweep.lead = (
        "PI0ForConditionalGeneration at tiny size, trained from nothing: the retrieved chunk as prefix "
        "tokens, residual actions, no image objective. Not the paper's π0.5."
    )
    rolled = partial(pusht, seeds=SHORT, tasks=UNSEEN)
    for name, recipe, changes, label in (
        ("pi0", "pusht-pi0-tiny", FEW, "retrieval"),
        (
            "pi0-alone-block",
            "pusht-pi0-tiny-no-retrieval",
            (*FEW, "policy.retrieval_name=pusht-object"),
            "no retrieval, block's frame",
        ),
        ("pi0-alone", "pusht-pi0-tiny-no-retrieval", FEW, "no retrieval"),
    ):
        sweep.train(name, preset(recipe, changes), {"all": rolled}, (0, 1, 2), f"π0-type, {label}")
    sweep.roll_out("pi0-aligned", rolled("replay", retrieval="object"), "replay, plain, object")
    same = rolled("replay", retrieval="object", subtrajectories=True, n_action_steps=4)
    sweep.roll_out("pi0-aligned-same", same, "replay, same settings, object")
    sweep.part(
        "A π0-type backbone",
        ["pi0-aligned", "pi0-aligned-same", "pi0", "pi0-alone-block", "pi0-alone"],
        "pi0-aligned-same",
        "Images, pusher position and poses in; 20 starts at each of seven unseen goals; three trainings.",
    )


if __name__ == "__main__":
    run(__doc__, build)
