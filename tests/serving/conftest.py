"""Demonstrations that are real, and few."""

import pytest

from recap.types import Episode
from recap_worlds.pusht.collecting import CollectSpec, demonstrate


@pytest.fixture(scope="session")
def demos() -> list[Episode]:
    """Four of the disc."""
    spec = CollectSpec("disc", (-30.0, 30.0), 2)
    return [demonstrate(spec, demo) for demo in spec.demos()]
