"""A policy server that speaks openpi's protocol."""
