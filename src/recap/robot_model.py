"""Robot models as text: a URDF or MJCF reduced to links and joints, so that a description can include it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recap.errors import InputError, did_you_mean

MAX_BYTES = 32 * 2**20  # of one file
MAX_DEPTH = 8  # of nested includes
MAX_TEXT = 2**20  # characters of the reduced model
FRAME = ("pos", "quat", "axisangle", "xyaxes", "zaxis", "euler")
# The elements and attributes to keep. Shapes, masses and motors do not affect the pose of a tool.
URDF = {
    "robot": ("name",),
    "link": ("name",),
    "joint": ("name", "type"),
    "origin": ("xyz", "rpy"),
    "parent": ("link",),
    "child": ("link",),
    "axis": ("xyz",),
    "limit": ("lower", "upper", "velocity", "effort"),
}
MJCF = {
    "mujoco": ("model",),
    "compiler": ("angle", "eulerseq", "autolimits"),
    "default": ("class",),
    "worldbody": (),
    "frame": ("name", "childclass", *FRAME),
    "body": ("name", "childclass", *FRAME),
    "site": ("name", "class", *FRAME),
    "joint": ("name", "class", "type", "pos", "axis", "range", "limited", "ref"),
}


@dataclass(frozen=True)
class Model:
    """The reduced text of a model, with the names of its tips and joints."""

    text: str
    tips: tuple[str, ...]
    joints: tuple[str, ...]

    def check(self, tips: Sequence[str], joints: Sequence[str], what: str) -> None:
        """Refuse names that are not in the model."""
        for kind, names, known in (("tip", tips, self.tips), ("joint", joints, self.joints)):
            for name in (name for name in names if name not in known):
                hint = did_you_mean(name, known) if known else "it has none"
                raise InputError(f"{what} has no {kind} '{name}': {hint}", code="kinematics.name")


def load_model(path: Path) -> Model:
    """Read a model from a file, with the files that an MJCF includes."""
    return read_model(ET.tostring(_parsed(path), "unicode"), str(path))


def read_model(text: str, what: str) -> Model:
    """Reduce the text of a model to links and joints; reduced text stays the same."""
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise _unreadable(what, str(error)) from None
    keep = {"robot": URDF, "mujoco": MJCF}.get(root.tag)
    if keep is None:
        raise _unreadable(what, f"it begins with <{root.tag}>")
    if any("xacro" in str(element.tag) for element in root.iter()):
        raise _unreadable(what, "it is in xacro: write the URDF with the xacro command first")
    _strip(root, keep)
    if keep is URDF:
        joints = [e.get("name", "") for e in root.findall("joint") if e.get("type") != "fixed"]
        tips = [e.get("name", "") for e in root.findall("link")]
    else:
        # Joints of defaults have no name; they are filtered out below.
        joints = [e.get("name", "") for e in root.iter("joint")]
        tips = [e.get("name", "") for tag in ("site", "body") for e in root.iter(tag)]
    kept = ET.tostring(root, "unicode")
    if len(kept) > MAX_TEXT:
        raise _unreadable(what, f"its links and joints take more than {MAX_TEXT} characters")
    return Model(kept, tuple(filter(None, tips)), tuple(filter(None, joints)))


def _strip(element: ET.Element, keep: dict[str, tuple[str, ...]]) -> None:
    element.text = element.tail = None
    for name in set(element.attrib) - set(keep[element.tag]):
        del element.attrib[name]
    for child in list(element):
        if child.tag in keep:
            _strip(child, keep)
        else:
            element.remove(child)


def _parsed(path: Path, depth: int = 0) -> ET.Element:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _unreadable(str(path), f"it has more than {MAX_BYTES // 2**20} MiB")
        root = ET.fromstring(path.read_text("utf-8"))
    except OSError as error:
        raise _unreadable(str(path), error.strerror or "no such file") from None
    except (ET.ParseError, UnicodeDecodeError) as error:
        raise _unreadable(str(path), str(error)) from None
    for parent in list(root.iter()):
        children: list[ET.Element] = []
        for child in parent:
            here = child.tag != "include" or depth == MAX_DEPTH
            children += [child] if here else _parsed(path.parent / child.get("file", ""), depth + 1)
        parent[:] = children
    return root


def _unreadable(what: str, why: str) -> InputError:
    return InputError(f"{what} is no model of a robot ({why}): give a URDF or MJCF", code="kinematics.model")
