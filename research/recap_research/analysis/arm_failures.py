"""Where an episode of two arms fails: reach, grasp, transport or the end; and whose lead it followed.

One definition for all ten tasks, from what the simulator knows at every control step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal, TypeAlias

import numpy as np

from recap.agent import RetrievalAgent
from recap.running_episode import Plan
from recap.types import EpisodeResult
from recap_worlds.dualarm.robots import SIDES
from recap_worlds.dualarm.suite import DualArmWorld
from recap_worlds.dualarm.tasks.task import State, Task

Kind: TypeAlias = Literal["success", "reach", "grasp", "transport", "finish", "hand-over"]
KINDS: tuple[Kind, ...] = ("success", "reach", "grasp", "transport", "finish", "hand-over")

MOVED_M = 0.01  # so far from where it stood a thing has been reached, if by an arm rather than by its fingers
HELD_STEPS = 5  # 0.25 s: so long a thing is borne by fingers alone, or a part kept from where it rests
CONFUSED = 0.5  # of an episode's looks: beyond this share matched another task, it followed another task


@dataclass(frozen=True)
class Need:
    """A thing that has to be taken, or a part that has to be moved."""

    thing: str
    n_hands: int = 1  # that hold it at once
    gives: float | None = None  # of a part: degrees or m by which it is moved before it counts as held
    of: str | None = None  # of a part: what it belongs to


# In the order in which the demonstrations take them.
NEEDS: dict[str, tuple[Need, ...]] = {
    "place_cans_plasticbox": (Need("left_can"), Need("right_can")),
    "move_can_pot": (Need("can"),),
    "open_microwave": (Need("door", gives=5.0, of="microwave"),),
    "grab_roller": (Need("roller", n_hands=2),),
    "pick_dual_bottles": (Need("left_bottle"), Need("right_bottle")),
    "move_pillbottle_pad": (Need("pillbottle"),),
    "lift_pot": (Need("pot", n_hands=2),),
    "click_bell": (Need("button", gives=0.001, of="bell"),),
    "handover_mic": (Need("microphone"),),
    "place_bread_skillet": (Need("skillet"), Need("bread")),
}


@dataclass(frozen=True)
class Moment:
    """One control step, as the simulator knows it."""

    state: State
    resting: frozenset[str]  # what touches anything but an arm


def kind_of(task: Task, moments: Sequence[Moment]) -> Kind:
    """Where a failed episode stopped.

    The first thing, in the order of the demonstrations, that was never held decides: never touched is
    `reach`, else `grasp`. With all held, `transport` if they never were where the task wants them, else
    `finish`: they were, and the check was not met, or not for so long as it must be. What is lifted but does
    not change hands is `hand-over`.
    """
    for need in NEEDS[task.key]:
        if not held(need, moments):
            return "grasp" if reached(need, moments) else "reach"
    if not any(brought(task, moment.state) for moment in moments):
        return "transport"
    return "hand-over" if task.key.startswith("handover") else "finish"


def reached(need: Need, moments: Iterable[Moment]) -> bool:
    """Whether fingers ever touched the thing (or what the part belongs to), or an arm moved it."""
    names = [need.thing] + ([need.of] if need.of else [])
    return any(
        moment.state.touching[name]
        or np.linalg.norm((moment.state.objects[name] - moment.state.start[name])[:3]) >= MOVED_M
        for moment in moments
        for name in names
    )


def held(need: Need, moments: Iterable[Moment]) -> bool:
    """Whether the thing ever was in as many hands as it takes, for `HELD_STEPS` in a row.

    In the hand is what fingers touch and nothing else does: neither the table nor another thing. A part is
    in the hand when fingers touch it and it has given way.
    """
    steps = 0
    for moment in moments:
        state = moment.state
        if need.gives is None:
            taken = need.thing not in moment.resting
        else:
            taken = state.joints[need.thing] >= need.gives
        steps = steps + 1 if taken and len(state.touching[need.thing]) >= need.n_hands else 0
        if steps >= HELD_STEPS:
            return True
    return False


def brought(task: Task, state: State) -> bool:
    """Whether the task's own check is met but for whose fingers touch what, and whether they are closed."""
    things = [need.thing for need in NEEDS[task.key]]
    hands = [frozenset[str](), *(frozenset({side}) for side in SIDES), frozenset(SIDES)]
    closed = dict.fromkeys(state.grips, 0.0)
    return any(
        task.success(
            replace(state, grips=closed, touching={**state.touching, **dict(zip(things, by, strict=True))})
        )
        for by in product(hands, repeat=len(things))
    )


@dataclass
class Witness:
    """Watches one episode: every step, and of which task each look's match was."""

    agent: RetrievalAgent
    moments: list[Moment] = field(default_factory=list)
    matched: list[str | None] = field(default_factory=list)  # a task a look; None: nothing was retrieved
    _plan: Plan | None = None

    def __call__(self, world: DualArmWorld) -> None:
        """Note the step."""
        self.moments.append(Moment(world.env.state(), world.env.resting()))
        plan = self.agent.plan(0)
        if plan is not None and plan is not self._plan:
            view = self.agent.retriever.source.view()
            refs = () if plan.conditioning.is_empty else plan.conditioning.refs
            task = view.episode(refs[0].episode_id).attributes["task_key"] if refs else None
            self.matched.append(None if task is None else str(task))
        self._plan = plan


@dataclass(frozen=True)
class Account:
    """What became of one episode."""

    task: str
    seed: int
    kind: Kind
    n_looks: int
    n_other: int  # looks whose match was of another task
    others: tuple[str, ...]  # which, the most frequent first
    let_go: bool  # at the end nothing that had to be taken is in a hand

    @property
    def confused(self) -> bool:
        """Whether it mostly followed demonstrations of another task."""
        return self.n_looks > 0 and self.n_other / self.n_looks > CONFUSED


def account_of(task: Task, result: EpisodeResult, witness: Witness) -> Account:
    """Sort one episode that was no error."""
    kind: Kind = "success" if result.outcome == "success" else kind_of(task, witness.moments)
    others = [name for name in witness.matched if name not in (None, task.key)]
    names = sorted({name for name in others if name is not None}, key=lambda n: (-others.count(n), n))
    last = witness.moments[-1].state
    let_go = not any(last.touching[need.thing] for need in NEEDS[task.key])
    return Account(task.key, result.seed, kind, len(witness.matched), len(others), tuple(names), let_go)


def tally(accounts: Sequence[Account]) -> dict[str, Any]:
    """Counts by task and over all."""
    by_task: dict[str, list[Account]] = {}
    for account in accounts:
        by_task.setdefault(account.task, []).append(account)
    return {name: _counts(some) for name, some in {**by_task, "all": accounts}.items()}


def _counts(accounts: Sequence[Account]) -> dict[str, Any]:
    failed = [account for account in accounts if account.kind != "success"]
    return {
        "episodes": len(accounts),
        **{kind: sum(account.kind == kind for account in accounts) for kind in KINDS},
        "let_go": sum(account.let_go for account in failed if account.kind == "transport"),
        "confused": sum(account.confused for account in failed),  # among the failed, whatever their kind
        "looks": sum(account.n_looks for account in accounts),
        "looks_at_another_task": sum(account.n_other for account in accounts),
    }
