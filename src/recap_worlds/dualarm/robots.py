"""The two robots: links, motors and a gripper that both share; and human hands.

The tool frame is the same on both: x is the approach, y the opening, the origin is between the finger pads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from recap.errors import one_of

SIDES = ("left", "right")
MESHES = Path(__file__).parents[1] / "assets" / "dualarm"
FINGER_TRAVEL = 0.05  # m per finger; the opening is twice that
TOOL_REACH = 0.07  # m from the base of the fingers to the tool frame
FINGER_LENGTH = 0.085
HOME = {"left": (-0.25, -0.02, 0.24), "right": (0.25, -0.02, 0.24)}  # of both robots, pointing down
DOWN = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])  # opens along y


@dataclass(frozen=True)
class Link:
    """One moving link: pose, joint, mesh, and capsules or boxes for collisions."""

    name: str
    pos: str
    quat: str
    axis: str
    limits: tuple[float, float]
    force: float  # N m, near the nominal torque of the motor
    stiffness: float  # N m / rad of the position servo
    armature: float  # kg m², the motor's inertia at the joint
    inertial: str
    mesh: str
    mesh_pose: str
    colour: str
    solids: tuple[str, ...]
    kind: str = "hinge"  # or slide, with limits, force and stiffness in m


@dataclass(frozen=True)
class Robot:
    """A kind of arm; two of them stand at the left and right end of the table, facing each other."""

    name: str
    base_x: float  # m from the middle of the table
    mesh_scale: float
    base_mesh_pose: str
    base_solid: str
    links: tuple[Link, ...]
    hand_pose: str  # base of the fingers in the last link's frame: x forward
    palm: tuple[str, ...]  # geoms in the hand's frame
    rest: tuple[float, ...]  # joints near `HOME`, elbow up
    travel: float = FINGER_TRAVEL  # of one finger
    finger: tuple[float, float, float] = (FINGER_LENGTH, 0.006, 0.011)  # length, half thickness, half width
    finger_colour: str = "0.75 0.75 0.78 1"
    reach: float = TOOL_REACH
    cameras: tuple[str, ...] = ("head", "left_wrist", "right_wrist")  # cameras of its demonstrations


_HALF = "0.70711 0 0 0.70711"  # a quarter turn about z, needed by the ViperX meshes
_DARK, _BLACK = "0.16 0.16 0.18 1", "0.09 0.09 0.1 1"
_GREY, _BLUE = "0.82 0.83 0.85 1", "0.42 0.62 0.78 1"

VIPERX = Robot(
    name="viperx",
    base_x=0.47,
    mesh_scale=0.001,
    base_mesh_pose=f'quat="{_HALF}"',
    base_solid='type="box" size="0.14 0.09 0.03" pos="-0.05 0 0.03"',
    links=(
        Link(
            "shoulder", "0 0 0.079", "1 0 0 0", "0 0 1", (-3.14158, 3.14158), 15, 150, 0.08,
            'pos="0.0003 0 0.0116" mass="0.7986" diaginertia="0.0012 0.00114 0.00094"',
            "shoulder", f'pos="0 0 -0.003" quat="{_HALF}"', _DARK,
            ('type="cylinder" size="0.055 0.03" pos="0 0 0.03"',),
        ),
        Link(
            "upper_arm", "0 0 0.04805", "1 0 0 0", "0 1 0", (-1.85005, 1.25664), 25, 250, 0.16,
            'pos="0.0207 0 0.2265" mass="0.7926" diaginertia="0.0091 0.0089 0.00076"',
            "upper_arm", f'quat="{_HALF}"', _DARK,
            ('type="capsule" size="0.04" fromto="0 0 0.04 0.045 0 0.3"',),
        ),
        Link(
            "upper_forearm", "0.05955 0 0.3", "1 0 0 0", "0 1 0", (-1.76278, 1.6057), 15, 150, 0.08,
            'pos="0.1057 0 0" mass="0.3222" diaginertia="0.00144 0.00134 0.00015"',
            "upper_forearm", "", _DARK,
            ('type="capsule" size="0.032" fromto="0.03 0 0 0.18 0 0"',),
        ),
        Link(
            "lower_forearm", "0.2 0 0", "1 0 0 0", "1 0 0", (-3.14158, 3.14158), 6, 50, 0.03,
            'pos="0.0513 0.0068 0" mass="0.4148" diaginertia="0.00059 0.00055 0.00016"',
            "lower_forearm", 'quat="0 1 0 0"', _DARK,
            ('type="capsule" size="0.03" fromto="0.02 0 0 0.09 0 0"',),
        ),
        Link(
            "wrist", "0.1 0 0", "1 0 0 0", "0 1 0", (-1.8675, 2.23402), 6, 50, 0.03,
            'pos="0.0467 0 0.0106" mass="0.1154" diaginertia="5.5e-5 4.6e-5 4.3e-5"',
            "wrist", f'quat="{_HALF}"', _DARK,
            ('type="capsule" size="0.026" fromto="0.01 0 0 0.05 0 0"',),
        ),
        Link(
            "gripper", "0.069744 0 0", "1 0 0 0", "1 0 0", (-3.14158, 3.14158), 4, 30, 0.02,
            'pos="0.0396 0 0.004" mass="0.2517" diaginertia="0.00069 0.00065 0.00047"',
            "gripper", f'pos="-0.02 0 0" quat="{_HALF}"', _DARK,
            ('type="box" size="0.022 0.022 0.025" pos="0.02 0 0"',),
        ),
    ),
    hand_pose='pos="0.0687 0 0"',
    palm=(
        f'type="mesh" mesh="gripper_bar" pos="-0.088875 0 0" quat="{_HALF}" rgba="{_BLACK}" '
        'contype="0" conaffinity="0" group="1" mass="0"',
        'type="box" size="0.024 0.074 0.03" pos="-0.02 0 0" group="3" mass="0.02"',
    ),
    rest=(0.0, -0.7, 0.9, 0.0, 1.3, 0.0),
)  # fmt: skip

UR5E = Robot(
    name="ur5e",
    base_x=0.62,
    mesh_scale=1.0,
    base_mesh_pose="",
    base_solid='type="cylinder" size="0.075 0.05" pos="0 0 0.05"',
    links=(
        Link(
            "shoulder", "0 0 0.163", "1 0 0 0", "0 0 1", (-3.14159, 3.14159), 150, 1500, 0.3,
            'pos="0 0 0" mass="3.7" diaginertia="0.0103 0.0103 0.00666"',
            "shoulder", "", _BLUE,
            ('type="capsule" size="0.06" fromto="0 -0.01 0 0 0.06 0"',),
        ),
        Link(
            "upperarm", "0 0.138 0", "0.70711 0 0.70711 0", "0 1 0", (-3.14159, 3.14159), 150, 1500, 0.3,
            'pos="0 0 0.2125" mass="8.393" diaginertia="0.134 0.134 0.0151"',
            "upperarm", "", _GREY,
            ('type="capsule" size="0.058" fromto="0 0 0 0 0 0.425"',),
        ),
        Link(
            "forearm", "0 -0.131 0.425", "1 0 0 0", "0 1 0", (-3.14159, 3.14159), 150, 1500, 0.3,
            'pos="0 0 0.196" mass="2.275" diaginertia="0.0312 0.0312 0.0041"',
            "forearm", "", _GREY,
            ('type="capsule" size="0.048" fromto="0 0 0.02 0 0 0.38"',),
        ),
        Link(
            "wrist1", "0 0 0.392", "0.70711 0 0.70711 0", "0 1 0", (-6.28319, 6.28319), 28, 300, 0.1,
            'pos="0 0.127 0" mass="1.219" diaginertia="0.00256 0.00256 0.00219"',
            "wrist1", "", _BLUE,
            ('type="capsule" size="0.04" fromto="0 0.09 0 0 0.127 0"',),
        ),
        Link(
            "wrist2", "0 0.127 0", "1 0 0 0", "0 0 1", (-6.28319, 6.28319), 28, 300, 0.1,
            'pos="0 0 0.1" mass="1.219" diaginertia="0.00256 0.00256 0.00219"',
            "wrist2", "", _GREY,
            ('type="capsule" size="0.04" fromto="0 0 0.08 0 0 0.1"',),
        ),
        Link(
            "wrist3", "0 0 0.1", "1 0 0 0", "0 1 0", (-6.28319, 6.28319), 28, 300, 0.1,
            'pos="0 0.077 0" mass="0.1889" diaginertia="0.00013 0.0001 0.0001"',
            "wrist3", "", _GREY,
            ('type="cylinder" size="0.036 0.02" pos="0 0.075 0" quat="0.70711 0.70711 0 0"',),
        ),
    ),
    # The hand's x is the flange's y; the hand's y is the flange's x.
    hand_pose='pos="0 0.158 0" xyaxes="0 1 0 1 0 0"',
    palm=(
        f'type="box" size="0.03 0.035 0.03" pos="-0.03 0 0" rgba="{_BLACK}" group="1" mass="0.3"',
        f'type="box" size="0.014 0.066 0.026" pos="-0.014 0 0" rgba="{_DARK}" group="1" mass="0.2"',
    ),
    rest=(0.0, -1.9, 2.2, -1.9, -1.5708, 0.0),
)  # fmt: skip

_SKIN = "0.87 0.68 0.55 1"


def _free(name: str, axis: str, kind: str, limit: float, force: float, stiffness: float) -> Link:
    """A joint of a free-floating hand."""
    inertia = 'pos="0 0 0" mass="0.06" diaginertia="1e-4 1e-4 1e-4"'
    armature = 0.3 if kind == "slide" else 0.01
    return Link(
        name,
        "0 0 0",
        "1 0 0 0",
        axis,
        (-limit, limit),
        force,
        stiffness,
        armature,
        inertia,
        "",
        "",
        _SKIN,
        (),
        kind,
    )


# Two free hands: thumb and index finger are shorter, thicker and open less than the robots' fingers.
HAND = Robot(
    name="hand",
    base_x=0.0,
    mesh_scale=1.0,
    base_mesh_pose="",
    base_solid="",
    links=(
        _free("x", "1 0 0", "slide", 1.2, 80, 4000),
        _free("y", "0 1 0", "slide", 1.2, 80, 4000),
        _free("z", "0 0 1", "slide", 1.2, 80, 4000),
        _free("yaw", "0 0 1", "hinge", 6.28319, 8, 60),
        _free("tilt", "1 0 0", "hinge", 3.14159, 8, 60),
        _free("lean", "0 1 0", "hinge", 3.14159, 8, 60),
    ),
    hand_pose='pos="0 0 0" xyaxes="0 0 -1 0 1 0"',
    palm=(
        f'type="box" size="0.03 0.036 0.014" pos="-0.032 0 -0.012" rgba="{_SKIN}" group="1" mass="0.3"',
        *(
            f'type="capsule" size="0.008" fromto="-0.005 {y} -0.02 0.03 {0.8 * y:.4f} -0.032" rgba="{_SKIN}" '
            'contype="0" conaffinity="0" group="1" mass="0"'
            for y in (-0.028, -0.01, 0.008)
        ),
        f'type="capsule" size="0.026" fromto="-0.07 0 -0.012 -0.2 0 -0.012" rgba="{_SKIN}" contype="0" '
        'conaffinity="0" group="1" mass="0"',
    ),
    rest=(0.0, 0.0, 0.3, 0.0, 0.0, 0.0),
    travel=0.045,
    finger=(0.065, 0.008, 0.009),
    finger_colour=_SKIN,
    reach=0.055,
    cameras=("head",),
)

ROBOTS = {robot.name: robot for robot in (VIPERX, UR5E)}
EMBODIMENTS = {**ROBOTS, HAND.name: HAND}


def robot_named(name: str) -> Robot:
    """The embodiment with that name; raises an InputError that lists the known ones."""
    return EMBODIMENTS[one_of("embodiment", name, EMBODIMENTS)]


@cache
def mesh_files(robot: Robot) -> dict[str, bytes]:
    """File name -> content, for the compiler."""
    return {file.name: file.read_bytes() for file in sorted((MESHES / robot.name).glob("*.stl"))}


def assets_xml(robot: Robot) -> str:
    """XML of the robot's meshes for <asset>."""
    scale = " ".join([f"{robot.mesh_scale:g}"] * 3)
    return "".join(f'<mesh name="{f[:-4]}" file="{f}" scale="{scale}"/>' for f in mesh_files(robot))


def arm_xml(robot: Robot, side: str) -> str:
    """XML of one arm with its gripper for <worldbody>; links are named left/shoulder and so on."""
    x, turn = (-robot.base_x, "1 0 0 0") if side == "left" else (robot.base_x, "0 0 0 1")
    look = 'contype="0" conaffinity="0" group="1" mass="0"'
    opened = "".join(
        f'<body name="{side}/{link.name}" pos="{link.pos}" quat="{link.quat}" gravcomp="1">'
        f"<inertial {link.inertial}/>"
        f'<joint name="{side}/{link.name}" {_slide(link)}axis="{link.axis}" '
        f'range="{link.limits[0]} {link.limits[1]}" '
        f'armature="{link.armature}"/>'
        + (
            f'<geom type="mesh" mesh="{link.mesh}" {link.mesh_pose} rgba="{link.colour}" {look}/>'
            if link.mesh
            else ""
        )
        + "".join(f'<geom {solid} group="3" mass="0"/>' for solid in link.solids)
        for link in robot.links
    )
    base = (
        f'<geom type="mesh" mesh="base" {robot.base_mesh_pose} rgba="{_DARK}" {look}/>'
        f'<geom {robot.base_solid} group="3" mass="0"/>'
        if robot.base_solid
        else ""
    )
    return (
        f'<body name="{side}/base" pos="{x} 0 0" quat="{turn}">'
        f"{base}{opened}{_hand_xml(robot, side)}{'</body>' * (len(robot.links) + 1)}"
    )


def _slide(link: Link) -> str:
    return "" if link.kind == "hinge" else f'type="{link.kind}" '


def _hand_xml(robot: Robot, side: str) -> str:
    """Palm, tool frame, wrist camera and two fingers; the same on every robot except for the palm."""
    # Half a turn on the right arm, so that at home y points away from the operator on both arms.
    turn = "1 0 0 0" if side == "left" else "0 1 0 0"
    length, thick, wide = robot.finger
    fingers = "".join(
        f'<body name="{side}/finger_{n}" gravcomp="1"><joint name="{side}/finger_{n}" type="slide" '
        f'axis="0 {sign} 0" range="0 {robot.travel}" armature="0.3" damping="2"/>'
        f'<geom name="{side}/pad_{n}" type="box" size="{length / 2} {thick} {wide}" '
        f'pos="{length / 2} {sign * thick} 0" rgba="{robot.finger_colour}" mass="0.03" '
        f'friction="1.5 0.02 0.0005" condim="4" group="1" solref="0.01 1"/></body>'
        for n, sign in ((1, 1), (2, -1))
    )
    palm = "".join(f"<geom {geom}/>" for geom in robot.palm)
    return (
        f'<body name="{side}/hand" {robot.hand_pose} gravcomp="1">{palm}'
        f'<site name="{side}/tool" pos="{robot.reach} 0 0" quat="{turn}" size="0.004" rgba="0 0 0 0"/>'
        f'<camera name="{side}_wrist" pos="-0.02 0 0.09" xyaxes="0 -1 0 0.5 0 0.866" fovy="70"/>'
        f"{fingers}</body>"
    )


def motors_xml(robot: Robot, side: str) -> str:
    """Position servos of the joints, then of the gripper, for <actuator>."""
    joints = "".join(
        f'<position name="{side}/{link.name}" joint="{side}/{link.name}" kp="{link.stiffness}" '
        f'dampratio="1" forcerange="{-link.force} {link.force}" '
        f'ctrlrange="{link.limits[0]} {link.limits[1]}"/>'
        for link in robot.links
    )
    return joints + (
        f'<position name="{side}/grip" tendon="{side}/grip" kp="1500" dampratio="1" '
        f'forcerange="-40 40" ctrlrange="-0.01 {robot.travel}"/>'
    )


def tendon_xml(side: str) -> str:
    """The tendon of the gripper's servo: both fingers with weight one half."""
    fingers = "".join(f'<joint joint="{side}/finger_{n}" coef="0.5"/>' for n in (1, 2))
    return f'<fixed name="{side}/grip">{fingers}</fixed>'


def equality_xml(side: str) -> str:
    """Couples the two fingers."""
    return (
        f'<joint joint1="{side}/finger_1" joint2="{side}/finger_2" polycoef="0 1 0 0 0" '
        'solref="0.004 1" solimp="0.95 0.99 0.001"/>'
    )


def exclusions_xml(robot: Robot, side: str) -> str:
    """Excludes collisions between neighbouring links of one arm, up to three apart."""
    chain = [f"{side}/{name}" for name in ("base", *(link.name for link in robot.links), "hand")]
    pairs = [(a, b) for i, a in enumerate(chain) for b in chain[i + 1 : i + 4]]
    fingers = [f"{side}/finger_{n}" for n in (1, 2)]
    pairs += [(a, finger) for finger in fingers for a in chain[-4:]] + [(fingers[0], fingers[1])]
    return "".join(f'<exclude body1="{a}" body2="{b}"/>' for a, b in pairs)
