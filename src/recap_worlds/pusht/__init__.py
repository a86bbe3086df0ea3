"""PushT: push a block onto its goal with a disc or a triangle, at any goal angle."""
