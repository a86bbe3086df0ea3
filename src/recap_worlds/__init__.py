"""The included worlds, such as PushT and two arms, each with its expert, retrievals, recipes and pools.

`import recap_worlds.envs` registers their Gymnasium ids.
"""
