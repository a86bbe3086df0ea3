"""Routes around the block do not touch it."""

import itertools

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from recap.geometry import transform_points
from recap_worlds.pusht.blocks import BLOCKS
from recap_worlds.pusht.pushers import TRIANGLE
from recap_worlds.pusht.routing import obstacles, route
from recap_worlds.pusht.shapes import DISC_RADIUS
from recap_worlds.pusht.simulator import make_body

points = st.tuples(st.floats(20, 490), st.floats(20, 490)).map(np.array)


@pytest.mark.parametrize("pusher", ["disc", "triangle"])
@given(points, points, st.floats(-3, 3), st.sampled_from(sorted(BLOCKS)))
def test_a_route_never_touches_the_block(
    pusher: str, start: np.ndarray, end: np.ndarray, theta: float, name: str
) -> None:
    block = BLOCKS[name]
    body = make_body(block, pusher)
    shape = shapely.unary_union(
        [shapely.Polygon(bar) for bar in transform_points(np.array([256.0, 256.0, theta]), block.parts)]
    )

    def swept(a: np.ndarray, b: np.ndarray) -> shapely.Geometry:
        if pusher == "disc":
            return shapely.LineString([a, b]).buffer(DISC_RADIUS - 0.1)
        return shapely.MultiPoint(np.concatenate([TRIANGLE + a, TRIANGLE + b])).convex_hull

    if min(shape.distance(swept(p, p + 0.01)) for p in (start, end)) < 4:
        return  # only routes with both ends clear of the block are checked
    center = transform_points(np.array([256.0, 256.0, theta]), body.offset)
    way = route(start, end, obstacles(body, center[0], center[1], theta), body.core_radius)
    assert len(way) >= 2, "in the middle of the board there is always a route"
    assert np.array_equal(way[[0, -1]], [start, end])
    for a, b in itertools.pairwise(way):
        assert not shape.intersects(swept(a, b))
