"""Sweeps: policies to train and agents to roll out, written in Python and run by one command."""
