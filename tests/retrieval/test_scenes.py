"""Object poses as one vector, and their predicted motion from a demonstration."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recap.retrieval.scenes import carried_objects, names_of, objects_of
from two_arms import STEPS, lift_pot, moved, place_in_box, pose

DEMO = place_in_box(pose(-0.2, 0.3), pose(-0.1, 0.6))


def test_the_main_object_comes_first_in_any_storage_order() -> None:
    stored = replace(DEMO, attributes={"main_object": "can"})
    asked = replace(DEMO, objects={"can": DEMO.objects["can"], "box": DEMO.objects["box"]})
    assert names_of(stored) == names_of(asked) == ["can", "box"]
    np.testing.assert_array_equal(objects_of(stored, 3), objects_of(asked, 3))
    assert objects_of(stored, slice(2, 5)).shape == (3, 14)
    bare = replace(DEMO, objects={})
    assert (objects_of(bare, 0).shape, objects_of(bare, slice(0, 4)).shape) == ((0,), (4, 0))


@given(st.floats(-3, 3), st.floats(-0.3, 0.3), st.floats(-0.3, 0.3), st.sampled_from([0, 2, 4, 6]))
def test_objects_of_a_rigidly_moved_scene_move_with_it(angle: float, x: float, y: float, part: int) -> None:
    t, shift = part * STEPS, np.array([x, y, 0.0])
    frames = np.minimum(t + np.arange(16), len(DEMO) - 1)
    there = {name: moved(angle, shift, poses).astype(np.float32) for name, poses in DEMO.objects.items()}
    query = replace(DEMO, id="query", objects=there)
    found, want = carried_objects(DEMO, frames, query, t), objects_of(query, slice(None))[frames]
    np.testing.assert_allclose(found[:, [0, 1, 2, 7, 8, 9]], want[:, [0, 1, 2, 7, 8, 9]], atol=1e-4)
    for turn in (slice(3, 7), slice(10, 14)):
        np.testing.assert_allclose(np.abs((found[:, turn] * want[:, turn]).sum(1)), 1, atol=1e-4)


def test_objects_unknown_to_the_demonstration_keep_their_pose() -> None:
    query = lift_pot(pose(0.1, 0.4))
    found = carried_objects(DEMO, np.arange(10, 26), query, 5)
    np.testing.assert_array_equal(found, np.tile(objects_of(query, 5), (16, 1)))
