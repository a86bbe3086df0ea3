"""Parses lists and ranges of numbers and seeds on the command line."""

from __future__ import annotations

import math

from recap.errors import InputError

MAX_VALUES = 1_000_000  # more is a typing error, and would fill the memory


def parse_numbers(text: str) -> tuple[float, ...]:
    """Parse `-30`, `-60,0,45` or `-60:60:15`; the end of a range is included."""
    found: list[float] = []
    for item in _items(text, "number"):
        try:
            numbers = [float(part) for part in item.split(":")]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
            raise InputError(f"unknown number '{item}': give one such as -30, or a range -60:60:15")
        if len(numbers) == 1:
            found.append(numbers[0] + 0.0)  # no -0
            continue
        first, last, step = numbers
        if step <= 0 or last < first:
            raise InputError(f"empty range '{item}': give first:last:step such as -60:60:15")
        n = (last - first) / step + 1e-9  # so that 0:0.3:0.1 includes its end
        if n >= MAX_VALUES:
            raise InputError(f"range '{item}' is too long: give fewer than {MAX_VALUES}")
        found += [first + i * step + 0.0 for i in range(int(n) + 1)]
    return tuple(found)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse `42`, `42,43,50` or `42:92`; the end of a range is excluded."""
    seeds: list[int] = []
    for item in _items(text, "seed"):
        try:
            numbers = [int(part) for part in item.split(":")]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 2):
            raise InputError(f"unknown seed '{item}': give whole numbers such as 42,43 or a range 42:92")
        if numbers[0] < 0:
            raise InputError(f"seed {numbers[0]} is negative: give whole numbers from 0 up")
        seed_range = range(numbers[0], numbers[-1] + (len(numbers) == 1))
        if not seed_range:
            raise InputError(f"empty range of seeds '{item}': give first:end such as 42:92 (end excluded)")
        if seed_range.stop - seed_range.start > MAX_VALUES:
            raise InputError(f"range of seeds '{item}' is too long: give at most {MAX_VALUES}")
        seeds += seed_range
    return tuple(seeds)


def _items(text: str, what: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise InputError(f"no {what} in '{text}': give them separated by commas")
    return items
