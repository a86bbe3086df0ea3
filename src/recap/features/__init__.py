"""How a moment is described, for pool and query alike."""
