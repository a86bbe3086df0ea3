"""Two small foreign robots for the tests; nothing of the library is in them but in `recording`."""
