"""Which moment of which demonstration fits now."""
