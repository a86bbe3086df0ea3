"""The report page made from evaluations and analyses."""
