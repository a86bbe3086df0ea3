"""Retrieval: finds the frame of a demonstration that best matches the current observation."""
