"""Sweeps: policies to train and agents to evaluate, defined in Python and run by one command."""
