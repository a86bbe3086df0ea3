"""ReCAP as a policy of a RoboTwin 2.0 checkout."""
