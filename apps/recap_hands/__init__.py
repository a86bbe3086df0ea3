"""Hands of people as demonstrations: films lifted to tool poses, and published recordings imported."""
