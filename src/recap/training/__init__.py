"""Training on pairs of target and pool demonstrations; the result is a frozen policy."""
