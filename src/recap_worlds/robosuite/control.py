"""robosuite's operational-space control without its overhead: the same torques, 1.6 times as fast."""

from __future__ import annotations

from typing import Any

import numpy as np

from recap.types import F64


class OperationalSpace:
    """Torques of an arm between two actions, bit-identical to its OSC_POSE controller in the world frame.

    Args:
        controller: robosuite's controller, with its goal set.
        site: the site that is moved to the goal.
    """

    def __init__(self, controller: Any, site: int) -> None:
        self._osc, self._site = controller, site
        self._model, self._data = controller.sim.model._model, controller.sim.data._data
        columns = [int(column) for column in controller.qvel_index]
        self._joints = slice(columns[0], columns[-1] + 1)
        base = controller.sim.model.site_name2id(f"{controller.naming_prefix}{controller.part_name}_center")
        moves = self._model.body_weldid[self._model.site_bodyid[base]] != 0  # IIWA's base site is on a link
        self._sites = (site, base) if moves else (site,)
        nv = self._model.nv
        self._place, self._turn, self._mass = np.zeros((3, nv)), np.zeros((3, nv)), np.zeros((nv, nv))

    def __call__(self) -> F64:
        """The current torques: (n,)."""
        import mujoco
        from robosuite.utils import control_utils as law

        osc, data, joints = self._osc, self._data, self._joints
        speed = spin = np.zeros(3)
        for site in reversed(self._sites):  # of the site relative to the base
            mujoco.mj_jacSite(self._model, data, self._place, self._turn, site)
            speed, spin = self._place @ data.qvel - speed, self._turn @ data.qvel - spin
        mujoco.mj_fullM(self._model, self._mass, data.qM)
        mass = np.asfortranarray(self._mass[joints, joints])  # as in robosuite, for equal rounding
        place = np.ascontiguousarray(self._place[:, joints])
        turn = np.ascontiguousarray(self._turn[:, joints])
        both = np.concatenate([place, turn])
        off = law.orientation_error(osc.goal_ori, data.site_xmat[self._site].reshape(3, 3).copy())
        force = (osc.goal_pos - data.site_xpos[self._site]) * osc.kp[:3]
        force -= speed * osc.kd[:3]
        torque = off * osc.kp[3:] - spin * osc.kd[3:]
        _, along, about, free = law.opspace_matrices(mass, both, place, turn)
        wrench = np.concatenate([along @ force, about @ torque])
        found: F64 = both.T @ wrench + data.qfrc_bias[joints]
        found += law.nullspace_torques(
            mass, free, osc.initial_joint, data.qpos[joints].copy(), data.qvel[joints].copy()
        )
        return found
