"""A scene as one compiled model: table, lights, cameras, two arms and the objects of a task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from recap_worlds.dualarm.objects import Body, Place, body_xml
from recap_worlds.dualarm.robots import (
    SIDES,
    Robot,
    arm_xml,
    assets_xml,
    equality_xml,
    exclusions_xml,
    mesh_files,
    motors_xml,
    tendon_xml,
)

TIME_STEP_S = 0.002
N_SUBSTEPS = 25  # a control step is 0.05 s
CAMERAS = ("head", "left_wrist", "right_wrist")
MAX_IMAGE_SIZE = 1024
N_DISTRACTORS = 5
_TABLE_LOOKS = (
    ("flat", "0.78 0.74 0.68", "0.78 0.74 0.68"),  # the first is that of the clean split
    ("checker", "0.62 0.52 0.42", "0.72 0.62 0.5"),
    ("checker", "0.35 0.42 0.4", "0.45 0.52 0.5"),
    ("gradient", "0.75 0.72 0.7", "0.5 0.46 0.42"),
    ("flat", "0.3 0.3 0.34", "0.3 0.3 0.34"),
    ("checker", "0.8 0.8 0.82", "0.6 0.64 0.7"),
    ("flat", "0.52 0.36 0.24", "0.52 0.36 0.24"),
)


def build_scene(robot: Robot, bodies: Sequence[Body], *, with_distractors: bool) -> Any:
    """The compiled model; poses and appearance are set at every reset."""
    distractors = [_distractor_xml(n) for n in range(N_DISTRACTORS)] if with_distractors else []
    xml = f"""
<mujoco model="dualarm">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{TIME_STEP_S}" integrator="implicitfast" cone="elliptic" impratio="8" iterations="30"/>
  <visual>
    <headlight ambient="0.38 0.38 0.38" diffuse="0.35 0.35 0.35" specular="0 0 0"/>
    <global offwidth="{MAX_IMAGE_SIZE}" offheight="{MAX_IMAGE_SIZE}"/>
    <quality offsamples="0" shadowsize="0"/>
    <map znear="0.02" zfar="10"/>
  </visual>
  <asset>{assets_xml(robot)}{_table_looks_xml()}</asset>
  <worldbody>
    <light name="lamp" pos="0.3 -0.5 1.6" dir="-0.2 0.3 -1" directional="true" castshadow="false"
           diffuse="0.5 0.5 0.48" specular="0.1 0.1 0.1"/>
    <camera name="head" pos="0 -0.7 0.68" xyaxes="1 0 0 0 0.619 0.786" fovy="48"/>
    <geom name="table" type="box" size="0.8 0.42 0.02" pos="0 0.02 -0.02" material="table_0"
          friction="0.9 0.01 0.0002" group="2"/>
    <geom name="floor" type="plane" size="12 12 0.1" pos="0 0 -0.75" rgba="0.33 0.35 0.38 1" group="2"/>
    {"".join(arm_xml(robot, side) for side in SIDES)}
    {"".join(body_xml(body) for body in bodies)}
    {"".join(distractors)}
  </worldbody>
  <tendon>{"".join(tendon_xml(side) for side in SIDES)}</tendon>
  <actuator>{"".join(motors_xml(robot, side) for side in SIDES)}</actuator>
  <equality>{"".join(equality_xml(side) for side in SIDES)}</equality>
  <contact>{"".join(exclusions_xml(robot, side) for side in SIDES)}</contact>
</mujoco>"""
    return mujoco.MjModel.from_xml_string(xml, mesh_files(robot))


def _table_looks_xml() -> str:
    return "".join(
        f'<texture name="table_{n}" type="2d" builtin="{kind}" rgb1="{one}" rgb2="{two}" '
        f'width="64" height="64"/>'
        f'<material name="table_{n}" texture="table_{n}" texrepeat="6 4" specular="0" reflectance="0"/>'
        for n, (kind, one, two) in enumerate(_TABLE_LOOKS)
    )


def _distractor_xml(n: int) -> str:
    """A distractor without collisions, outside the arms' workspace."""
    shape, size = (("box", "0.025 0.018 0.03"), ("cylinder", "0.022 0.035"), ("sphere", "0.025"))[n % 3]
    return (
        f'<body name="distractor_{n}"><geom type="{shape}" size="{size}" pos="0 0 0.03" contype="0" '
        f'conaffinity="0" group="2" mass="0"/></body>'
    )


def put(model: Any, data: Any, bodies: Sequence[Body], places: Mapping[str, Place]) -> None:
    """Set the pose of every body."""
    for body in bodies:
        place = places[body.name]
        half = math.radians(place.yaw) / 2
        position, quaternion = (place.x, place.y, place.z), (math.cos(half), 0.0, 0.0, math.sin(half))
        if body.fixed:
            model.body(body.name).pos, model.body(body.name).quat = position, quaternion
        else:
            data.joint(body.name).qpos[:] = (*position, *quaternion)
        for part in body.parts:
            start = math.radians(part.start) if part.joint == "hinge" else part.start
            data.joint(part.name).qpos[:] = start


class Look:
    """Randomises colours, lights, table and distractors of a model, around their compiled values."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._things = np.flatnonzero(model.geom_group == 2)
        self._table, self._floor = model.geom("table").id, model.geom("floor").id
        self._colours = model.geom_rgba.copy()
        self._lamp = (model.light_dir[0].copy(), model.light_diffuse[0].copy())
        self._ambient = model.vis.headlight.ambient.copy()
        names = (model.body(i).name for i in range(model.nbody))
        self._distractors = [name for name in names if name.startswith("distractor_")]

    def draw(self, rng: np.random.Generator) -> None:
        """Set a random appearance; colours stay near their original, so that objects remain recognisable."""
        model = self._model
        colours = self._colours.copy()
        own, same = np.unique(colours[self._things, :3], axis=0, return_inverse=True)
        own = np.clip(own + rng.uniform(-0.15, 0.15, own.shape), 0.02, 1.0)  # equal colours stay equal
        colours[self._things, :3] = own[same.ravel()]
        colours[self._table] = colours[self._floor] = 1.0
        colours[self._table, :3] = rng.uniform(0.75, 1.0, 3)
        colours[self._floor, :3] = rng.uniform(0.15, 0.6, 3)
        for name in self._distractors:
            body = model.body(name)
            far = rng.random() < 0.7
            body.pos = (
                rng.uniform(-0.4, 0.4),
                rng.uniform(0.31, 0.4) if far else rng.uniform(-0.38, -0.33),
                0,
            )
            colours[body.geomadr[0]] = (*rng.uniform(0.1, 0.95, 3), 1.0)
        model.geom_rgba[:] = colours
        model.geom_matid[self._table] = model.material(f"table_{rng.integers(len(_TABLE_LOOKS))}").id
        model.light_dir[0] = self._lamp[0] + rng.uniform(-0.5, 0.5, 3) * (1, 1, 0)
        model.light_diffuse[0] = self._lamp[1] * rng.uniform(0.6, 1.3) * rng.uniform(0.85, 1.15, 3)
        model.vis.headlight.ambient[:] = self._ambient * rng.uniform(0.75, 1.25)
