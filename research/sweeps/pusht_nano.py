"""The included policy, trained three times, next to replay: evaluation starts, fresh starts, pixel poses.

python research/sweeps/pusht_nano.py --out runs/evidence
"""

from functools import partial

from common import FRESH, HEADLINE

from recap.training.presets import preset
from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht


def build(sweep: Sweep) -> None:
    sweep.title = "The shipped policy"
    sweep.lead = (
        "Images and poses, by contact; the triangle pushes a T to nine goals, of which training saw two."
    )
    same = {"settings_of": "pusht-nano"}
    starts = {
        "": ("", {"seeds": HEADLINE}),
        "-fresh": (", fresh starts", {"seeds": FRESH}),
        "-pixels": (", poses from pixels", {"seeds": HEADLINE, "objects": "pixels"}),
    }
    evaluate = {(end or "-all")[1:]: partial(pusht, **given) for end, (_, given) in starts.items()}
    sweep.train("nano", preset("pusht-nano", ["autoencoder=pusht-nano"]), evaluate, (0, 1, 2), "pusht-nano")
    for end, (words, given) in starts.items():
        sweep.roll_out(
            f"contact{end}", pusht("replay", retrieval="contact", **given), f"replay, plain, contact{words}"
        )
        sweep.roll_out(
            f"contact{end}-same", pusht("replay", **same, **given), f"replay, same settings, contact{words}"
        )
    sweep.roll_out("aligned", pusht("replay", HEADLINE, retrieval="object"), "replay, plain, object")
    sweep.part(
        "The shipped policy",
        ["aligned", "contact", "contact-same", "nano/all"],
        "aligned",
        "Three training seeds, 50 starts a goal.",
    )
    for name, title, text in (
        ("fresh", "Fresh starts", "Starts 2000 to 2049, used for nothing else."),
        ("pixels", "Poses from pixels", "No pose is measured: all are read from the picture."),
    ):
        rows = [f"contact-{name}", f"contact-{name}-same", f"nano/{name}"]
        sweep.part(title, rows, f"contact-{name}-same", text)


if __name__ == "__main__":
    run(__doc__, build)
