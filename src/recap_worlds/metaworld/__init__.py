"""Meta-World: fifty tasks of one arm, with its own experts and success checks."""
