"""The exact shared area, compared with shapely."""

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from recap.geometry import transform_points
from recap_worlds.pusht.blocks import BLOCKS
from recap_worlds.pusht.coverage import shared_area

poses = st.tuples(st.floats(-80, 80), st.floats(-80, 80), st.floats(-4, 4)).map(np.array)


@given(poses, poses, st.sampled_from(sorted(BLOCKS)))
def test_shared_area_agrees_with_shapely(a: np.ndarray, b: np.ndarray, name: str) -> None:
    parts_a, parts_b = (transform_points(pose, BLOCKS[name].parts) for pose in (a, b))
    # Bars do not overlap. Joined first, GEOS 3.14 loses one of a turned cup now and then.
    bars_a, bars_b = ([shapely.Polygon(p) for p in parts] for parts in (parts_a, parts_b))
    wanted = sum(one.intersection(other).area for one in bars_a for other in bars_b)
    assert shared_area(parts_a, parts_b) == pytest.approx(wanted, abs=1e-6)


def test_blocks_are_made_of_disjoint_bars_of_equal_total_area() -> None:
    for block in BLOCKS.values():
        assert block.area == BLOCKS["tee"].area
        assert shared_area(block.parts, block.parts) == pytest.approx(block.area)
        assert shapely.Polygon(block.outline).area == pytest.approx(block.area)
        assert shapely.LinearRing(block.outline).is_ccw


def test_the_declared_symmetry_of_each_block_is_true() -> None:
    for block in BLOCKS.values():
        for order in (2, 3, 4, 6):
            turned = transform_points(np.array([0, 0, 2 * np.pi / order]), block.parts)
            looks_alike = shared_area(turned, block.parts) > block.area - 1e-6
            assert looks_alike == (block.symmetry % order == 0), (block.name, order)
