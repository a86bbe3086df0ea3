"""Retrieval `contact`: replay, plain and with the policy's settings, and `pusht-small`, on T and L.

python research/sweeps/contact.py --out runs/contact --device cpu --eval-workers 0
"""

from functools import partial

from common import FRESH, HEADLINE, LETTERS, SHORT, pools_by_size

from recap.training.presets import preset
from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht

AGENTS = {
    "aligned-{}": ("replay", {"retrieval": "object"}, "replay, plain, object"),
    "contact-{}": ("replay", {"retrieval": "contact"}, "replay, plain, contact"),
    "contact-{}-same": ("replay", {"settings_of": "pusht-small"}, "replay, same settings, contact"),
    "small-{}": ("pusht-small", {}, "pusht-small"),
}


def build(sweep: Sweep) -> None:
    sweep.title = "Contact"
    sweep.lead = "What a disc did, carried over to the triangle so that it touches where the disc did."
    starts = {"all": partial(pusht, seeds=HEADLINE), "fresh": partial(pusht, seeds=FRESH)}
    sweep.train("small", preset("pusht-small"), starts, (0, 1, 2), "pusht-small, contact")
    names = ["aligned"]
    sweep.roll_out("aligned", pusht("replay", HEADLINE, retrieval="object"), "replay, plain, object")
    for end, words, given in (
        ("", "", {"seeds": HEADLINE}),
        ("-pixels", ", poses from pixels", {"seeds": HEADLINE, "objects": "pixels"}),
        ("-fresh", ", fresh starts", {"seeds": FRESH}),
    ):
        names += [f"contact{end}", f"contact{end}-same"]
        plain = pusht("replay", retrieval="contact", **given)
        sweep.roll_out(names[-2], plain, f"replay, plain, contact{words}")
        same = pusht("replay", settings_of="pusht-small", **given)
        sweep.roll_out(names[-1], same, f"replay, same settings, contact{words}")
    sweep.part("Contact", [*names, "small"], "contact-same", "The triangle, 900 disc demonstrations.")
    for block, letter in LETTERS.items():
        names = [f"small-{block}-0"]
        nothing = pusht("pusht-small", SHORT, block=block, matching="none")
        sweep.roll_out(names[0], nothing, f"pusht-small, nothing retrieved (the {letter})")
        for n, pool in pools_by_size(sweep, block).items():
            for name, (policy, given, label) in AGENTS.items():
                names.append(name.format(f"{block}-{n}"))
                spec = pusht(policy, SHORT, block=block, pool=pool, **given)
                sweep.roll_out(names[-1], spec, f"{label}, {n} of the {letter}")
        unseen = "" if block == "tee" else ", which no policy was trained on"
        reference = f"contact-{block}-900-same"
        sweep.part(f"Pool size, the {letter}{unseen}", names, reference, "20 starts a goal.")


if __name__ == "__main__":
    run(__doc__, build)
