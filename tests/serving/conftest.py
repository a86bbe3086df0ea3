"""A few real demonstrations."""

import pytest

from recap.types import Episode
from recap_worlds.pusht.collecting import CollectSpec, demonstrate


@pytest.fixture(scope="session")
def demos() -> list[Episode]:
    """Four Push-T demonstrations with the disc pusher."""
    spec = CollectSpec("disc", (-30.0, 30.0), 2)
    return [demonstrate(spec, demo) for demo in spec.demos()]
