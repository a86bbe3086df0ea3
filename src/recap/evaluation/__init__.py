"""Evaluation: agents, rollouts, and results with confidence intervals."""
