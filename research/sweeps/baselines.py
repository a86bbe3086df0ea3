"""No retrieval, retrieval only, co-training on both datasets, and ours; in the block and the world frame.

python research/sweeps/baselines.py --out runs/evidence
"""

from functools import partial

from common import HEADLINE

from recap.training.presets import preset
from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht

BLOCK = ["autoencoder=pusht-nano"]  # trained on images in the block frame
AT_45 = "pool_where=goal_angle=-45,goal_angle=45"


def build(sweep: Sweep) -> None:
    sweep.title = "Baselines"
    sweep.lead = (
        "The triangle pushes a T to nine goals, of which training saw two; 50 starts each, seeds 42 to 91."
    )
    for name, recipe, changes, label, paper in (
        ("no-retrieval-block", "no-retrieval-block", BLOCK, "no retrieval, block frame", None),
        ("co-training-block", "co-training-block", BLOCK, "co-training, block frame", None),
        ("ours", "object", BLOCK, "ours, object", None),
        ("no-retrieval", "no-retrieval", [], "no retrieval, world frame", "no-retrieval"),
        ("ours-single", "world", [], "ours, world", None),
        ("co-training", "co-training", [], "co-training, world frame", "co-training"),
        ("ours-oracle", "world-oracle", [], "ours, world-oracle", "ours"),
        (
            "co-training-block-half",
            "co-training-block",
            [*BLOCK, "own_share=0.5"],
            "co-training, half own",
            None,
        ),
        ("co-training-block-45", "co-training-block", [*BLOCK, AT_45], "co-training, ±45° only", None),
    ):
        config = preset(f"pusht-nano-{recipe}", changes)
        sweep.train(name, config, {"all": partial(pusht, seeds=HEADLINE)}, (0, 1, 2), label, paper)
    replays: dict[str, list[str]] = {}
    for name, retrieval in (("", "object"), ("-single", "world"), ("-oracle", "world-oracle")):
        plain, same = replays[name] = [f"replay{name}", f"replay{name}-same"]
        sweep.roll_out(plain, pusht("replay", HEADLINE, retrieval=retrieval), f"replay, plain, {retrieval}")
        spec = pusht("replay", HEADLINE, retrieval=retrieval, subtrajectories=True, n_action_steps=4)
        paper = "retrieval-only" if name == "-oracle" else None
        sweep.roll_out(same, spec, f"replay, same settings, {retrieval}", paper)
    block = [
        "no-retrieval-block",
        "co-training-block",
        "co-training-block-half",
        "co-training-block-45",
        "ours",
    ]
    sweep.part(
        "Baselines in the block's frame",
        [*replays[""], *block],
        "no-retrieval-block",
        "One network, one schedule; what differs is what it may learn from and retrieve.",
    )
    sweep.part(
        "Baselines in the world's frame",
        [
            *replays["-single"],
            *replays["-oracle"],
            "no-retrieval",
            "co-training",
            "ours-single",
            "ours-oracle",
        ],
        "no-retrieval",
        "The paper's frame. Its rows are of a larger, pretrained network: compare the order.",
    )


if __name__ == "__main__":
    run(__doc__, build)
