"""Noisy poses, and demonstrations at another speed; nothing is trained.

python research/sweeps/beyond.py --out runs/beyond --device cpu --eval-workers 0
"""

from common import ANGLES, SHORT, collected

from recap_research.sweep.pools import Selection
from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht

AGENTS = {
    "aligned-{}": ("replay", {"retrieval": "object"}, "replay, plain, object"),
    "contact-{}-same": ("replay", {"settings_of": "pusht-small"}, "replay, same settings, contact"),
    "small-{}": ("pusht-small", {}, "pusht-small"),
}


def build(sweep: Sweep) -> None:
    sweep.title = "Beyond"
    sweep.lead = "Poses that are off, and demonstrations at another speed."
    pools = {
        "half": sweep.pool("speed-half", collected("disc", ANGLES, 22, speed=0.5)),
        "usual": sweep.pool("tee-198", Selection("pusht-9x100", 198)),
        "twice": sweep.pool("speed-twice", collected("disc", ANGLES, 22, speed=2.0)),
    }
    words = {"half": "half the speed", "usual": "the usual speed", "twice": "twice the speed"}
    names = []
    for px in (0, 2, 4, 8):
        for name, (policy, given, label) in AGENTS.items():
            names.append(name.format(f"noise-{px}"))
            spec = pusht(policy, SHORT, pose_noise=(px, px), **given)
            off = f"pose noise of {px} px and {px}°" if px else "true poses"
            sweep.roll_out(names[-1], spec, f"{label}, {off}")
    sweep.part("Pose noise", names, "contact-noise-0-same", "Drawn anew at each look.")
    names = []
    for speed, pool in pools.items():
        for name, (policy, given, label) in AGENTS.items():
            names.append(name.format(speed))
            spec = pusht(policy, SHORT, pool=pool, **given)
            sweep.roll_out(names[-1], spec, f"{label}, 198 at {words[speed]}")
    sweep.part("Speed", names, "contact-usual-same", "The same goals, 22 demonstrations each.")


if __name__ == "__main__":
    run(__doc__, build)
