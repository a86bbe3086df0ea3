"""Demonstrations that are real, and few."""

import pytest

from recap.collection import CollectSpec, demonstrate
from recap.types import Episode


@pytest.fixture(scope="session")
def demos() -> list[Episode]:
    """Four of the disc."""
    spec = CollectSpec("disc", (-30.0, 30.0), 2)
    return [demonstrate(spec, demo) for demo in spec.demos()]
