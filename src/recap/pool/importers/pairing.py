"""Which demonstrations show the same scene, and so are pairs: one rule for both sides of a training.

scene        the scene ids that datasets of ours, or RoboTwin's seeds, carry
order        the i-th demonstration of a task with the i-th of the same task on the other side
column:NAME  equal values of a column of the dataset, or of its episode table
FILE.csv     a table `episode,scene`; episodes by id, as recap pool ls shows it
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from recap.errors import InputError
from recap.types import Episode

SCENE, ORDER, COLUMN = "scene", "order", "column:"


def check_rule(rule: str) -> str:
    """One of the four, or an InputError."""
    if rule in (SCENE, ORDER) or rule.endswith(".csv") or (rule.startswith(COLUMN) and rule != COLUMN):
        return rule
    raise InputError(
        f"unknown pairing '{rule}': choose one of scene, order, column:NAME, FILE.csv", code="input.pairing"
    )


def column_of(rule: str) -> str | None:
    """The column that a source has to read for it."""
    return rule.removeprefix(COLUMN) if rule.startswith(COLUMN) else None


def paired(episodes: Iterable[Episode], rule: str) -> Iterator[Episode]:
    """The same demonstrations with the scene ids of that rule."""
    if check_rule(rule) == SCENE:
        return iter(episodes)
    if rule == ORDER:
        return _renamed(episodes, _by_order())
    column = column_of(rule)
    return _by_file(episodes, Path(rule)) if column is None else _renamed(episodes, _by_column(column))


def _renamed(episodes: Iterable[Episode], scene: Callable[[Episode], str]) -> Iterator[Episode]:
    return (replace(episode, scene_id=scene(episode)) for episode in episodes)


def _by_order() -> Callable[[Episode], str]:
    n: Counter[str] = Counter()

    def scene(episode: Episode) -> str:
        n[episode.task] += 1
        return f"{episode.task}/{n[episode.task] - 1}"

    return scene


def _by_column(name: str) -> Callable[[Episode], str]:
    def scene(episode: Episode) -> str:
        if name not in episode.attributes:
            known = ", ".join(list(episode.attributes)[:8]) or "none"
            raise InputError(
                f"episode '{episode.id}' has no column '{name}' to pair by: it has {known}; "
                "add its dataset to a pool with the same --pair-by, or name another",
                code="input.pairing",
            )
        return str(episode.attributes[name])

    return scene


def _by_file(episodes: Iterable[Episode], path: Path) -> Iterator[Episode]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = {row["episode"].strip(): row["scene"].strip() for row in csv.DictReader(file)}
    except (OSError, KeyError, AttributeError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path} cannot be read as pairs: {error}; give a table with the header episode,scene",
            code="input.pairing",
        ) from error
    known = list(episodes)
    if known and not any(episode.id in table for episode in known):
        raise InputError(
            f"{path} names none of the episodes: they are called {known[0].id!a}, …; use these ids",
            code="input.pairing",
        )
    return _renamed(known, lambda episode: table.get(episode.id, episode.scene_id))
