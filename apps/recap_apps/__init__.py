"""Applications on top of the library: a demonstration and a studio."""
