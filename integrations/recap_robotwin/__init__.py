"""ReCAP as a policy in a RoboTwin 2.0 checkout."""
