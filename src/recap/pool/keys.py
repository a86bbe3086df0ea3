"""What a version of a pool holds, and where: columns, since there may be a million rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from recap.lazy import Made

T = TypeVar("T")


class Key(NamedTuple):
    """One live row: what it holds and where it is."""

    id: str
    sha256: str
    seq: int
    fragment: int
    offset: int  # physical row of the fragment


class ByName(Mapping[str, T]):
    """What a function makes of the number of an episode."""

    def __init__(self, index: Index, make: Callable[[int], T]) -> None:
        self.index, self._make = index, make

    def __len__(self) -> int:
        return len(self.index.ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self.index.ids)

    def __getitem__(self, name: str) -> T:
        return self._make(self.index.number_of[name])


@dataclass(frozen=True, eq=False)
class Index:
    """The live rows of one version, or of a fragment, in the order they were added, as columns."""

    ids: tuple[str, ...]
    digests: NDArray[np.bytes_]  # SHA-256 in hexadecimal
    places: NDArray[np.int64]  # (n, 3): seq, fragment, offset
    unreadable: Mapping[int, str] = field(default_factory=dict)  # fragment -> why it cannot be read

    @classmethod
    def of(cls, parts: Sequence[Index], unreadable: Mapping[int, str] | None = None) -> Index:
        """Rows of fragments together."""
        ids = tuple(chain.from_iterable(part.ids for part in parts))
        digests = np.concatenate([np.zeros(0, "S64"), *(part.digests for part in parts)])
        places = np.concatenate([np.zeros((0, 3), np.int64), *(part.places for part in parts)])
        if (np.diff(places[:, 0]) < 0).any():
            order = np.argsort(places[:, 0], kind="stable")
            ids, digests, places = tuple(ids[i] for i in order.tolist()), digests[order], places[order]
        return cls(ids, digests, places, unreadable or {})

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Place in the order by episode."""
        return dict(zip(self.ids, range(len(self.ids)), strict=True))

    @property
    def keys(self) -> Sequence[Key]:
        """Each row, made when asked for."""
        return Made(len(self.ids), self._key)

    @property
    def by_id(self) -> Mapping[str, Key]:
        """Keys by episode."""
        return ByName(self, self._key)

    @property
    def digest_of(self) -> Mapping[str, str]:
        """Hashes by episode, looked up one by one."""
        return ByName(self, lambda number: self.digests[number].decode())

    def state(self) -> dict[str, str]:
        """Id -> hash."""
        return dict(zip(self.ids, map(bytes.decode, self.digests.tolist()), strict=True))

    def of_fragment(self, number: int) -> Index:
        """The rows of one fragment."""
        where = np.flatnonzero(self.places[:, 1] == number)
        return Index(tuple(self.ids[i] for i in where.tolist()), self.digests[where], self.places[where])

    def _key(self, number: int) -> Key:
        return Key(self.ids[number], self.digests[number].decode(), *self.places[number].tolist())
