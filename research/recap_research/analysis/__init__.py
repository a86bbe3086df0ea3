"""Analyses of a policy: attention, its causal effect, and failures."""
