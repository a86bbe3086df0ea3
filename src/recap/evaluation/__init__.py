"""Rollouts one can trust: who acts, what is counted, and how sure one may be of it."""
