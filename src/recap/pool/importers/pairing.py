"""Pairs demonstrations of the same scene, by one rule for both sides of training.

scene        scene ids, as in datasets written by ReCAP, or RoboTwin's seeds
order        the i-th demonstration of a task with the i-th of the same task on the other side
column:NAME  equal values of a column of the dataset or of its episode table
FILE.csv     a table `episode,scene`; episodes by id, as listed by recap pool ls
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from recap.errors import InputError
from recap.types import Episode

SCENE, ORDER, COLUMN = "scene", "order", "column:"


def check_rule(rule: str) -> str:
    """The rule, if it is valid; otherwise raises an InputError."""
    if rule in (SCENE, ORDER) or rule.endswith(".csv") or (rule.startswith(COLUMN) and rule != COLUMN):
        return rule
    raise _refused(f"unknown pairing '{rule}': choose one of scene, order, column:NAME, FILE.csv")


def column_of(rule: str) -> str | None:
    """The column that a source must read for the rule, or None."""
    return rule.removeprefix(COLUMN) if rule.startswith(COLUMN) else None


def paired(episodes: Iterable[Episode], rule: str) -> Iterator[Episode]:
    """The same demonstrations with the scene ids given by the rule."""
    column = column_of(check_rule(rule))
    if rule == SCENE:
        yield from episodes
    elif rule == ORDER:
        n: Counter[str] = Counter()
        for episode in episodes:
            yield replace(episode, scene_id=f"{episode.task}/{n[episode.task]}")
            n[episode.task] += 1
    elif column is not None:
        for episode in episodes:
            if column not in episode.attributes:
                known = ", ".join(list(episode.attributes)[:8]) or "none"
                raise _refused(
                    f"episode '{episode.id}' has no column '{column}' to pair by: it has {known}; name "
                    "another, or add its dataset to a pool with the same --pair-by"
                )
            yield replace(episode, scene_id=str(episode.attributes[column]))
    else:
        scenes, known_ids = _table(Path(rule)), list(episodes)
        if known_ids and not any(episode.id in scenes for episode in known_ids):
            raise _refused(f"{rule} names none of the episodes: use their ids, such as {known_ids[0].id!a}")
        for episode in known_ids:
            yield replace(episode, scene_id=scenes.get(episode.id, episode.scene_id))


def _table(path: Path) -> dict[str, str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return {row["episode"].strip(): row["scene"].strip() for row in csv.DictReader(file)}
    except (OSError, KeyError, AttributeError, UnicodeDecodeError, csv.Error) as error:
        raise _refused(f"{path} is no table of pairs ({error}): its header is episode,scene") from error


def _refused(why: str) -> InputError:
    return InputError(why, code="input.pairing")
