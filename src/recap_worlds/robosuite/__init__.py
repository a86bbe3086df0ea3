"""robosuite's robots, tasks, controllers and success checks as a suite."""
