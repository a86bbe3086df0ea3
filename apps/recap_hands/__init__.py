"""Human hands as demonstrations: tool poses from films, and importers of published recordings."""
