"""Names that RoboTwin 2.0 gives to things, shared by its reader, its writer and its deployment module."""

from __future__ import annotations

FPS = 250 / 15  # a frame is kept every 15 of 250 physics steps a second
ARMS = ("left", "right")

# Ours -> the camera's group in the layout of the release, and in that of the main branch.
CAMERAS = {
    "head": ("head_camera", "cam_head"),
    "left_wrist": ("left_camera", "cam_left_wrist"),
    "right_wrist": ("right_camera", "cam_right_wrist"),
    "front": ("front_camera", "cam_front"),
}
_OURS = {theirs: ours for ours, names in CAMERAS.items() for theirs in names}


def our_camera(theirs: str) -> str:
    """Our name of a camera of either layout; one that we do not know keeps its own."""
    return _OURS.get(theirs, theirs)


def their_camera(ours: str, *, newer: bool = False) -> str:
    """The inverse of `our_camera`."""
    return CAMERAS[ours][newer] if ours in CAMERAS else ours
