"""A small fine-tuning run for each new task (0°, the L), next to a frozen policy with as many demonstrations.

python research/sweeps/fine_tune.py --out runs/fine-tune --device cpu --eval-workers 1
"""

from functools import partial

from common import ALONE, HEADLINE, collected

from recap.training.presets import preset
from recap_research.sweep.running import run
from recap_research.sweep.sweep import Sweep, pusht

BASE = ("policy.retrieval_name=pusht-object", *ALONE)
TASKS = {
    "0": ("0°", "tee", (0.0,), 140_000, ()),
    "ell": ("the L", "ell", (-45.0, 45.0), 142_000, ("augment.mirror=false",)),
}
N = (10, 50, 100)
LONGER = {"0": (100,), "ell": (50, 100)}


def build(sweep: Sweep) -> None:
    sweep.title = "Small fine-tune"
    sweep.lead = (
        "What is replaced: a policy on poses without retrieval, fine-tuned to each new task, beside a "
        "frozen one that retrieves."
    )
    rolled, own, shown = {}, {}, {}
    for task, (_, block, angles, seed, _) in TASKS.items():
        keys = tuple(f"{angle:+g}" if angle else "0" for angle in angles)
        rolled[task] = partial(pusht, seeds=HEADLINE, tasks=keys, block=block)
        most = collected("triangle", angles, 100 // len(angles), block, seed)
        own[task] = sweep.pool(f"triangle-{task}", most)
        for n in N:
            spec = collected("disc", angles, n // len(angles), block, seed)
            shown[task, n] = sweep.pool(f"disc-{task}-{n}", spec)
    sweep.train("alone", preset("pusht-small", BASE), rolled, label="no retrieval, not tuned")
    for task, (words, _, _, _, more) in TASKS.items():
        names = []
        for n in N:
            same = rolled[task]("replay", pool=shown[task, n], settings_of="pusht-small")
            frozen = rolled[task]("pusht-small", pool=shown[task, n])
            names += [f"replay-{task}-{n}-same", f"frozen-{task}-{n}"]
            sweep.roll_out(names[-2], same, f"replay, same settings, contact, {n} of {words}")
            sweep.roll_out(names[-1], frozen, f"frozen pusht-small, {n} of {words}")
        for kind, iterations, every, counts in (
            ("fine-tuned", 400, 200, N),
            ("four times as long", 1600, 400, LONGER[task]),
        ):
            for n in counts:
                changes = [*BASE, f"init={sweep.policy('alone-0')}", f"target={own[task]}"]
                changes += [
                    f"n_demonstrations={n}",
                    f"n_iterations={iterations}",
                    "warm_up=50",
                    "learning_rate=3e-4",
                ]
                changes += [f"validate_every={every}", "save_every=400", *more]
                names.append(f"{'tuned' if iterations == 400 else 'longer'}-{task}-{n}")
                config = preset("pusht-small", changes)
                sweep.train(names[-1], config, {"task": rolled[task]}, label=f"{kind}, {n} of {words}")
        sweep.part(
            f"A new task: {words}",
            [*names, f"alone/{task}"],
            f"frozen-{task}-50",
            "Demonstrations of the new task only: the disc's in the pool of the frozen policy, the robot's "
            "own for a fine-tune.",
        )


if __name__ == "__main__":
    run(__doc__, build)
