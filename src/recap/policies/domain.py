"""Where a policy acts: what its numbers mean there, and what may be varied without changing what is true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recap.errors import one_of
from recap.policies.encodings import ArmsEncoding, Encoding, PlanarEncoding


@dataclass(frozen=True)
class Domain:
    """One kind of world; its retrieval presets are called `{name}-{mode}`."""

    name: str
    title: str  # for people, as the next two
    images: str
    poses: str
    encoding: Encoding
    mirrors: bool  # whether left and right can be swapped
    paper: bool  # whether most of a picture is white paper, which an autoencoder need not learn
    # By what the kinds of an action are divided before they are compared; 1 where nothing is said.
    units: Mapping[str, float]
    use: str  # how to try a policy out


DOMAINS: Mapping[str, Domain] = {
    domain.name: domain
    for domain in (
        Domain(
            "pusht",
            "PushT",
            "camera image",
            "poses of object and goal",
            PlanarEncoding(),
            mirrors=True,
            paper=True,
            units={},
            use="--pusher triangle",
        ),
        Domain(
            "dualarm",
            "arms on a table",
            "camera images",
            "poses of objects",
            ArmsEncoding(),
            mirrors=False,
            paper=False,
            units={**dict.fromkeys("XYZ", 0.05), "r": 0.5},
            use="--env dualarm",
        ),
    )
}


def domain_named(name: str) -> Domain:
    """The domain of that name."""
    one_of("domain", name, tuple(DOMAINS))
    return DOMAINS[name]
