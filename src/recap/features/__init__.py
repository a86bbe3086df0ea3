"""Descriptors of frames, computed in the same way for pool and query."""
