"""Learn once: pairs of target and pool demonstrations in, a frozen policy out."""
