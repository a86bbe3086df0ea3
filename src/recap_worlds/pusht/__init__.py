"""PushT: push a block onto its goal, with either of two pushers, at any goal angle."""
