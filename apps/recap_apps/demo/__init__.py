"""The demo: a frozen policy gains a task because demonstrations are appended to its pool."""
