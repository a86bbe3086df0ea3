"""ReCAP: retrieve, do not retrain."""

__version__ = "0.1.0"
