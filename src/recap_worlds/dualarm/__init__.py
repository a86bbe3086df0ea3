"""Two arms, two robots: a suite of table-top tasks on MuJoCo, close in spirit to RoboTwin's."""
