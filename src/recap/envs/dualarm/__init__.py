"""Two arms over a table: tasks and pool levels by the names RoboTwin 2.0 gives them."""
