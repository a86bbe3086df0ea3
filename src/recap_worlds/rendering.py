"""Renders camera images of a scene without a display, with EGL or OSMesa."""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import weakref
from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

import mujoco
import numpy as np

from recap.errors import RecapError
from recap.types import U8

_EGL_DEVICE = 0x313F
MAX_GEOMS = 2000
_open: weakref.WeakSet[Renderer] = weakref.WeakSet()


class Renderer:
    """Renders one model, with its own GL context."""

    def __init__(
        self, model: Any, size: int, groups: Collection[int] = (1, 2), *, headlight: bool = False
    ) -> None:
        """Create a renderer of the model.

        Args:
            groups: geom groups that are visible; other geoms only collide.
            headlight: move the headlight to each camera, which is slower.
        """
        self._headlight = headlight
        self._model = model
        self._context = _gl_context(size)
        self._context.make_current()
        self._options = mujoco.MjvOption()
        self._options.geomgroup[:] = [group in groups for group in range(6)]
        self._scene = mujoco.MjvScene(model, maxgeom=MAX_GEOMS)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        self._perturbation = mujoco.MjvPerturb()
        model.vis.global_.offwidth = model.vis.global_.offheight = size
        self._gpu = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._gpu)
        self._size = size
        if not _open:
            atexit.register(_close_all)  # registered after the backend's handler, so that it runs before it
        _open.add(self)

    def draw(self, data: Any, cameras: Iterable[str], size: int) -> dict[str, U8]:
        """The images of the cameras: (size, size, 3)."""
        self._context.make_current()
        if size != self._size:
            mujoco.mjr_resizeOffscreen(size, size, self._gpu)
            self._size = size
        camera = mujoco.MjvCamera()
        camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        camera.fixedcamid = 0
        self._update(data, camera)
        view = mujoco.MjrRect(0, 0, size, size)
        pictures = {}
        for name in cameras:
            camera.fixedcamid = self._model.camera(name).id
            if self._headlight:
                self._update(data, camera)
            mujoco.mjv_updateCamera(self._model, data, camera, self._scene)
            mujoco.mjr_render(view, self._scene, self._gpu)
            picture = np.empty((size, size, 3), np.uint8)
            mujoco.mjr_readPixels(picture, None, view, self._gpu)
            pictures[name] = np.ascontiguousarray(picture[::-1])
        return pictures

    def _update(self, data: Any, camera: Any) -> None:
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(
            self._model, data, self._options, self._perturbation, camera, everything, self._scene
        )

    def close(self) -> None:
        """Free the GL context."""
        _open.discard(self)
        self._context.make_current()
        self._gpu.free()
        self._context.free()


def _close_all() -> None:
    for renderer in list(_open):
        renderer.close()


def _gl_context(size: int) -> Any:
    backend = choose_backend()
    try:
        if backend == "egl":
            from mujoco.egl import GLContext
        elif backend == "osmesa":
            from mujoco.osmesa import GLContext
        else:
            from mujoco.gl_context import GLContext
        return GLContext(size, size)
    except Exception as error:  # a missing or incomplete GL can raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RecapError(
            f"cannot draw camera pictures with {backend or 'the default backend'} ({reason}): "
            "run `make system` as root, or ask for none (image size 0)"
        ) from None


@cache
def choose_backend() -> str:
    """MUJOCO_GL if set, else EGL if it finds a device, else OSMesa; only Linux needs a choice."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked in ("egl", "osmesa"):
        return asked
    if asked or platform.system() != "Linux":
        return ""
    return "egl" if _egl_has_device() else "osmesa"


def _egl_has_device() -> bool:
    """Checked without PyOpenGL, which cannot switch backends after loading one."""
    try:
        egl = ctypes.CDLL("libEGL.so.1")
        egl.eglGetProcAddress.restype = ctypes.c_void_p
        query = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
        open_display = egl.eglGetProcAddress(b"eglGetPlatformDisplayEXT")
    except (OSError, AttributeError):
        return False
    if not query or not open_display:
        return False
    pointer, number = ctypes.c_void_p, ctypes.c_int
    query_devices = ctypes.CFUNCTYPE(number, number, ctypes.POINTER(pointer), ctypes.POINTER(number))(query)
    display_of = ctypes.CFUNCTYPE(pointer, number, pointer, pointer)(open_display)
    egl.eglInitialize.argtypes = [pointer, pointer, pointer]
    devices, count = (pointer * 16)(), number(0)
    if not query_devices(16, devices, ctypes.byref(count)):
        return False
    displays = (display_of(_EGL_DEVICE, devices[i], None) for i in range(count.value))
    return any(display and egl.eglInitialize(display, None, None) for display in displays)
