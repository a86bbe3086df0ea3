"""The fifty tasks in the split of ML45; does not import the simulator."""

from __future__ import annotations

from recap.errors import one_of

SEEN = (
    "assembly",
    "basketball",
    "button-press-topdown",
    "button-press-topdown-wall",
    "button-press",
    "button-press-wall",
    "coffee-button",
    "coffee-pull",
    "coffee-push",
    "dial-turn",
    "disassemble",
    "door-close",
    "door-open",
    "drawer-close",
    "drawer-open",
    "faucet-open",
    "faucet-close",
    "hammer",
    "handle-press-side",
    "handle-press",
    "handle-pull-side",
    "handle-pull",
    "lever-pull",
    "pick-place-wall",
    "pick-out-of-hole",
    "push-back",
    "pick-place",
    "plate-slide",
    "plate-slide-side",
    "plate-slide-back",
    "plate-slide-back-side",
    "peg-insert-side",
    "peg-unplug-side",
    "soccer",
    "stick-push",
    "stick-pull",
    "push-wall",
    "push",
    "reach-wall",
    "reach",
    "shelf-place",
    "sweep-into",
    "sweep",
    "window-open",
    "window-close",
)
UNSEEN = ("bin-picking", "box-close", "hand-insert", "door-lock", "door-unlock")
TASKS = (*SEEN, *UNSEEN)
GROUPS = {"seen": SEEN, "unseen": UNSEEN, "all": TASKS}
# The goal is only a mark, which the cameras here do not show: no image tells where it is.
GOAL_UNSEEN = frozenset(
    {
        "coffee-pull",
        "coffee-push",
        "disassemble",
        "pick-out-of-hole",
        "pick-place",
        "pick-place-wall",
        "push",
        "push-back",
        "push-wall",
        "reach",
        "reach-wall",
        "stick-push",
        "sweep",
    }
)


def tasks_named(name: str) -> tuple[str, ...]:
    """A task, a comma-separated list, or a group."""
    if name in GROUPS:
        return GROUPS[name]
    return tuple(one_of("task", key.strip(), TASKS) for key in name.split(","))


def instruction(task: str) -> str:
    """A task's instruction."""
    return task.replace("-", " ")
