"""Two small robots for tests, unknown to the library; only `recording` imports recap."""
