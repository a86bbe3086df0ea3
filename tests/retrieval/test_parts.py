"""Parts of a demonstration: the object that each arm refers to, inferred from the motion."""

from recap.retrieval.parts import NOTHING, parts_of
from two_arms import STEPS, lift_pot, place_in_box, pose


def test_a_pick_refers_to_the_grasped_object_and_a_place_to_its_target() -> None:
    parts = parts_of(place_in_box(pose(-0.2, 0.3), pose(-0.1, 0.6)))
    box, can = parts.names.index("box"), parts.names.index("can")
    left, right = parts.arms
    assert [part.reference for part in left] == [can, box, box]
    assert [part.held for part in left] == [NOTHING, can, NOTHING]
    assert [part.begin for part in left] == [0, 2 * STEPS - 1, 6 * STEPS - 1]
    assert [part.reference for part in right] == [NOTHING]  # the right arm rests


def test_an_object_lifted_and_held_refers_to_itself() -> None:
    parts = parts_of(lift_pot(pose(0.0, 0.4, angle=0.3)))
    for arm in parts.arms:
        assert [(part.reference, part.held) for part in arm] == [(0, NOTHING), (0, 0)]
        assert [part.from_start for part in arm] == [False, True]


def test_an_object_moved_away_and_held_refers_to_the_world() -> None:
    carried = place_in_box(pose(-0.2, 0.1), pose(-0.1, 0.6))
    carried.actions[:, 9][2 * STEPS - 1 :] = 0.0  # the gripper never opens
    only = {"can": carried.objects["can"]}
    parts = parts_of(type(carried)(**{f: getattr(carried, f) for f in carried.__slots__} | {"objects": only}))
    assert [part.reference for part in parts.arms[0]] == [0, NOTHING]
