"""Failures of two-arm episodes: reach, grasp, transport, finish or hand-over; and whose task they followed.

One definition for all ten tasks, from the simulator's state at every control step.
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

MOVED_M = 0.01  # an object moved by an arm this far from its start counts as reached
HELD_STEPS = 5  # 0.25 s in which an object is held by fingers alone, or a part is away from its rest position
CONFUSED = 0.5  # an episode followed another task if more than this share of its matches were of that task


@dataclass(frozen=True)
class Need:
    """An object to be grasped, or a part to be moved."""

    thing: str
    n_hands: int = 1  # that hold the object at once
    gives: float | None = None  # for a part: degrees or m that it must move to count as held
    of: str | None = None  # for a part: the object it belongs to


# In the order of the demonstrations.
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
    """The simulator's state at one control step."""

    state: State
    resting: frozenset[str]  # objects that touch anything but an arm


def kind_of(task: Task, moments: Sequence[Moment]) -> Kind:
    """The class of a failed episode.

    The first object, in the order of the demonstrations, that was never held decides: `reach` if it was
    never touched, else `grasp`. If all were held: `transport` if never at their targets, else `finish`: they
    were at their targets, but the task's check was not met, or not long enough. An object that was lifted but
    did not change hands is `hand-over`.
    """
    for need in NEEDS[task.key]:
        if not held(need, moments):
            return "grasp" if reached(need, moments) else "reach"
    if not any(brought(task, moment.state) for moment in moments):
        return "transport"
    return "hand-over" if task.key.startswith("handover") else "finish"


def reached(need: Need, moments: Iterable[Moment]) -> bool:
    """True if fingers touched the object (or the object of the part), or an arm moved it."""
    names = [need.thing] + ([need.of] if need.of else [])
    return any(
        moment.state.touching[name]
        or np.linalg.norm((moment.state.objects[name] - moment.state.start[name])[:3]) >= MOVED_M
        for moment in moments
        for name in names
    )


def held(need: Need, moments: Iterable[Moment]) -> bool:
    """True if the object was held by the needed number of hands for `HELD_STEPS` in a row.

    An object is held if fingers touch it and nothing else does: neither the table nor another object. A part
    is held if fingers touch it and it has moved.
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
    """True if the task's check is met, ignoring finger contacts and gripper openings."""
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
    """Records one episode: every step, and the task of each match."""

    agent: RetrievalAgent
    moments: list[Moment] = field(default_factory=list)
    matched: list[str | None] = field(default_factory=list)  # task of each match; None: nothing was retrieved
    _plan: Plan | None = None

    def __call__(self, world: DualArmWorld) -> None:
        """Record a step."""
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
    """The classification of one episode."""

    task: str
    seed: int
    kind: Kind
    n_looks: int
    n_other: int  # matches of another task
    others: tuple[str, ...]  # those tasks, the most frequent first
    let_go: bool  # at the end no needed object is held

    @property
    def confused(self) -> bool:
        """True if most matches were of another task."""
        return self.n_looks > 0 and self.n_other / self.n_looks > CONFUSED


def account_of(task: Task, result: EpisodeResult, witness: Witness) -> Account:
    """Classify one episode that did not end in an error."""
    kind: Kind = "success" if result.outcome == "success" else kind_of(task, witness.moments)
    others = [name for name in witness.matched if name not in (None, task.key)]
    names = sorted({name for name in others if name is not None}, key=lambda n: (-others.count(n), n))
    last = witness.moments[-1].state
    let_go = not any(last.touching[need.thing] for need in NEEDS[task.key])
    return Account(task.key, result.seed, kind, len(witness.matched), len(others), tuple(names), let_go)


def tally(accounts: Sequence[Account]) -> dict[str, Any]:
    """Counts by task and over all tasks."""
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
        "confused": sum(account.confused for account in failed),  # failed episodes of any class
        "looks": sum(account.n_looks for account in accounts),
        "looks_at_another_task": sum(account.n_other for account in accounts),
    }
