"""Meta-World: fifty tasks of one arm, with its experts and success checks."""
