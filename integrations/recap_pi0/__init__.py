"""Backbones of the π0 type, found by the entry points of the group `recap.backbones`."""
