"""One page from evaluations and analyses."""
