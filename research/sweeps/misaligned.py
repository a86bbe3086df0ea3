"""Misaligned pairs inserted, and left out again by their residual; retrieval dropout 0, 0.1, 0.3.

python research/sweeps/misaligned.py --out runs/misaligned --device cpu --eval-workers 0
"""

from functools import partial

from common import SHORT

from recap.training.presets import preset
from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht


def build(sweep: Sweep) -> None:
    sweep.title = "Mis-aligned pairs"
    sweep.lead = (
        "What training may leave out or get wrong: small policies on poses, mode contact, minutes on a CPU."
    )
    evaluate = {"all": partial(pusht, seeds=SHORT)}
    both = {**evaluate, "none": partial(pusht, seeds=SHORT, matching="none")}
    for name, label, evaluations, changes in (
        ("misaligned", "a fifth mis-aligned", evaluate, ["pairs.misaligned=0.2"]),
        ("left-out", "a fifth, left out", evaluate, ["pairs.misaligned=0.2", "pairs.leave_out=true"]),
        ("ours", "retrieval dropout 0.1", both, []),
        ("dropout-0", "retrieval dropout 0", both, ["augment.retrieval_dropout=0"]),
        ("dropout-0.3", "retrieval dropout 0.3", both, ["augment.retrieval_dropout=0.3"]),
        ("left-out-none", "left out, none put in", evaluate, ["pairs.leave_out=true"]),
    ):
        sweep.train(name, preset("pusht-small", changes), evaluations, (0, 1, 2), label)
    sweep.part(
        "Mis-aligned pairs",
        ["ours/all", "misaligned", "left-out", "left-out-none"],
        "ours/all",
        "A fifth of the demonstrations is matched with moments of the pool at random; demonstrations whose "
        "residual stands out are left out. Which ones is in their checkpoint's config.",
    )
    for title, evaluation, text in (
        ("", "all", "The share of training moments that are shown no retrieved chunk."),
        (", nothing retrieved", "none", "The same policies with nothing to correct."),
    ):
        names = [f"{name}/{evaluation}" for name in ("ours", "dropout-0", "dropout-0.3")]
        sweep.part(f"Retrieval dropout{title}", names, names[0], text)


if __name__ == "__main__":
    run(__doc__, build)
