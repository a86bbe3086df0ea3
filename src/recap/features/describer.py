"""One describer for pool, training and query: named terms, stamped with a fingerprint."""

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

REVISION = 1  # raise it when the same settings come to mean other numbers


class Retargeting(Protocol):
    """Describes what one tool did as a reference tool would have done it."""

    @property
    def fingerprint(self) -> str:
        """Of every setting."""

    def to_reference_tool(self, episode: Frames) -> Frames:
        """The same frames, of the reference tool."""


class TermDescriber:
    """Describes each frame by the given terms; terms that need the future serve training only.

    Args:
        terms: by name.
        retargeting: applied to every episode and query before it is described.
    """

    def __init__(self, terms: Mapping[str, Term], retargeting: Retargeting | None = None) -> None:
        self.terms = dict(terms)
        self.retargeting = retargeting
        self.base: TermDescriber | None = None  # the describer that has one term less: see `with_term`
        self.added: TermDescriber | None = None  # that term alone

    @cached_property
    def fingerprint(self) -> str:
        """Of every setting of every term, and of the weights behind them."""
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
        """The same description, of these terms alone: what a query needs."""
        wanted = set(names)
        kept = {name: term for name, term in self.terms.items() if name in wanted}
        return TermDescriber(kept, self.retargeting)

    def by_cameras(self) -> list[TermDescriber]:
        """The same description in parts, terms that read images apart from the others."""
        sees = {name for name, term in self.terms.items() if getattr(term, "requires", Requires()).cameras}
        return [part for part in (self.only(self.terms.keys() - sees), self.only(sees)) if part.terms]

    def with_term(self, name: str, term: Term) -> TermDescriber:
        """The same description, and one term more."""
        found = TermDescriber({**self.terms, name: term}, self.retargeting)
        found.base, found.added = self, TermDescriber({name: term}, self.retargeting)
        return found

    @cached_property
    def requires(self) -> Requires:
        """What a scene must have to be described."""
        found = Requires()
        for term in self.terms.values():
            found |= getattr(term, "requires", Requires())
        return found

    @cached_property
    def n_back(self) -> int:
        """How many frames, up to now, a row may depend on."""
        return max((int(getattr(term, "n_back", 1)) for term in self.terms.values()), default=1)

    @cached_property
    def from_start(self) -> bool:
        """Whether a row depends on how the episode began."""
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
            # nan and infinity show in the sum, at half the price of looking at each: this runs at every step
            if row.shape != (len(episode), term.dim) or not math.isfinite(row.sum(dtype=np.float64)):
                raise InputError(f"term '{name}' of episode {episode.id} is not finite or of another shape")
            rows[name] = row
        return rows


def _settings(term: Term) -> dict[str, Any]:
    """Type and fields; an encoder among them by its own fingerprint."""
    assert is_dataclass(term)
    assert not isinstance(term, type)
    settings: dict[str, Any] = {}
    for field in fields(term):
        value = getattr(term, field.name)
        settings[field.name] = getattr(value, "fingerprint", value)
    return {"type": type(term).__name__, **settings}
