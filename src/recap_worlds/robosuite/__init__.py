"""robosuite: its robots, tasks, controllers and success checks behind the public seam."""
