"""Small image policies: absolute or residual × next-state objective; without retrieval; `object` and `world`.

python research/sweeps/ablation.py --out runs/evidence
"""

from functools import partial

from common import ALONE, SHORT, UNSEEN, WORLD

from recap.training.presets import preset
from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht

ACTIONS = {"residual": (), "absolute": ("policy.residual=false",), "no-retrieval": ALONE}
OBJECTIVES = {"on": (), "off": ("policy.future_image=false", "policy.future_state=false")}
FRAMES = {"object": ("aligned", "", ("autoencoder=pusht-nano",)), "world": ("single", "-single", WORLD)}


def build(sweep: Sweep) -> None:
    sweep.title = "Ablation"
    sweep.lead = (
        "Small image policies: residual or absolute actions, with and without the next-state objective; 20 "
        "starts at each of seven unseen goals."
    )
    rolled = partial(pusht, seeds=SHORT, tasks=UNSEEN)
    texts = {
        "object": "On: the next-state objective, in which the image and the proprioception at the "
        "chunk's end are predicted too; off: actions alone. Three training seeds a cell, eight for the "
        "residual pair.",
        "world": "The same in the world's frame, beside the paper.",
    }
    for retrieval, (first, end, frame) in FRAMES.items():
        names = [f"{first}-same"]
        spec = rolled("replay", retrieval=retrieval, subtrajectories=True, n_action_steps=8)
        sweep.roll_out(names[0], spec, f"replay, same settings, {retrieval}")
        for action, changed in ACTIONS.items():
            for objective, predicted in OBJECTIVES.items():
                names.append(f"{action}-{objective}{end}")
                config = preset("pusht-small-image", [*frame, *changed, *predicted])
                label = f"{action} {objective}".replace("-", " ") + (", world" if end else "")
                paper = f"{action}-{objective}" if end else None
                seeds = range(8 if action == "residual" else 3)
                sweep.train(names[-1], config, {"all": rolled}, seeds, label, paper)
        sweep.part(f"2×2 ablation, {retrieval}", names, f"residual-off{end}", texts[retrieval])


if __name__ == "__main__":
    run(__doc__, build)
