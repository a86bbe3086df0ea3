"""A policy server that robots already speak to."""
