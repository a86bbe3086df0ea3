"""The page for a person: teach by dragging, watch the frozen policy use it, look after the pool."""
