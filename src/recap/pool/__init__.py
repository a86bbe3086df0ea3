"""Where demonstrations live."""
