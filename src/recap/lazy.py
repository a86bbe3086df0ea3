"""Sequences whose items are computed on access, such as frames of a video or episodes of a dataset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A sequence defined by `__len__` and `_item`; indices and slices work as in a list."""

    length: int

    def __len__(self) -> int:
        return self.length

    @abstractmethod
    def _item(self, number: int) -> T:
        """Compute the item, 0 <= number < len."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        numbers = range(len(self))[index]
        return self._item(numbers) if isinstance(numbers, int) else [self._item(i) for i in numbers]


class Made(LazySequence[T]):
    """The results of a function of the index; use a module-level function to be able to pickle it."""

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self.length, self._make = length, make

    def _item(self, number: int) -> T:
        return self._make(number)
