"""The describer of pool, training and query: named terms with a fingerprint."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from recap.errors import InputError
from recap.features.terms import Term
from recap.types import F32, Frames, Requires

REVISION = 1  # increment it if the same settings give other numbers


class Retargeting(Protocol):
    """Converts the motion of one tool to that of a reference tool."""

    @property
    def fingerprint(self) -> str:
        """Changes with any setting."""

    def to_reference_tool(self, episode: Frames) -> Frames:
        """The same frames as if done with the reference tool."""


class TermDescriber:
    """Describes each frame by the given terms; terms that need future actions are for training only.

    Args:
        terms: name -> term.
        retargeting: applied to every episode and query before it is described.
    """

    def __init__(self, terms: Mapping[str, Term], retargeting: Retargeting | None = None) -> None:
        self.terms = dict(terms)
        self.retargeting = retargeting
        self.base: TermDescriber | None = None  # this describer without the last term, see `with_term`
        self.added: TermDescriber | None = None  # a describer of only that term

    @cached_property
    def fingerprint(self) -> str:
        """Changes with any setting or weight of any term."""
        settings = {name: _settings(term) for name, term in sorted(self.terms.items())}
        parts: dict[str, Any] = {"revision": REVISION, "terms": settings}
        if self.retargeting is not None:
            parts["contact"] = self.retargeting.fingerprint
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def dims(self) -> dict[str, int]:
        """Term -> width."""
        return {name: term.dim for name, term in self.terms.items()}

    def only(self, names: Iterable[str]) -> TermDescriber:
        """A describer of only these terms, such as those that a query needs."""
        wanted = set(names)
        kept = {name: term for name, term in self.terms.items() if name in wanted}
        return TermDescriber(kept, self.retargeting)

    def by_cameras(self) -> list[TermDescriber]:
        """Split into a describer of the terms without images, and one of the terms with images."""
        sees = {name for name, term in self.terms.items() if getattr(term, "requires", Requires()).cameras}
        return [part for part in (self.only(self.terms.keys() - sees), self.only(sees)) if part.terms]

    def with_term(self, name: str, term: Term) -> TermDescriber:
        """A describer with one more term."""
        found = TermDescriber({**self.terms, name: term}, self.retargeting)
        found.base, found.added = self, TermDescriber({name: term}, self.retargeting)
        return found

    @cached_property
    def requires(self) -> Requires:
        """The objects, goal and cameras that the terms need."""
        found = Requires()
        for term in self.terms.values():
            found |= getattr(term, "requires", Requires())
        return found

    @cached_property
    def n_back(self) -> int:
        """The number of frames, up to the present, that a row may depend on."""
        return max((int(getattr(term, "n_back", 1)) for term in self.terms.values()), default=1)

    @cached_property
    def from_start(self) -> bool:
        """True if a row depends on the first frame of the episode."""
        return any(getattr(term, "from_start", False) for term in self.terms.values())

    def describe(self, episode: Frames) -> dict[str, F32]:
        """Term -> (t, d)."""
        missing = self.requires.missing(episode.objects, episode.goal)
        if missing is not None:
            raise InputError(f"episode {episode.id} has no {missing}: choose a retrieval that needs none")
        if self.retargeting is not None:
            episode = self.retargeting.to_reference_tool(episode)
        rows = {}
        for name, term in self.terms.items():
            row = np.asarray(term.describe(episode), np.float32)
            # A sum shows nan and infinity in half the time of np.isfinite; this runs at every step.
            if row.shape != (len(episode), term.dim) or not math.isfinite(row.sum(dtype=np.float64)):
                raise InputError(f"term '{name}' of episode {episode.id} is not finite or of another shape")
            rows[name] = row
        return rows


def _settings(term: Term) -> dict[str, Any]:
    """The type and fields of a term; an encoder is represented by its fingerprint."""
    assert is_dataclass(term)
    assert not isinstance(term, type)
    settings: dict[str, Any] = {}
    for field in fields(term):
        value = getattr(term, field.name)
        settings[field.name] = getattr(value, "fingerprint", value)
    return {"type": type(term).__name__, **settings}
