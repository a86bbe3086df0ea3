"""The studio: web pages to teach by dragging, watch the frozen policy, and inspect the pool."""
