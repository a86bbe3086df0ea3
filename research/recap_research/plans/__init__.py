"""Many trainings and evaluations as one list, in the order in which they answer most."""
