"""Worlds of our own: PushT and two arms, each with its expert, its retrieval, its recipes and its pools.

`import recap_worlds.envs` registers their Gymnasium ids.
"""
