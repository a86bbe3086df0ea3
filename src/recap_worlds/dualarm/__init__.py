"""Two arms, two robots: a suite of table-top tasks on MuJoCo, similar to RoboTwin's."""
