"""What to do, given a moment and a retrieved chunk: a world-action model, stateless and batched."""
