"""Recordings of hands as datasets, found by the entry points of the group `recap.formats`."""
