"""ReCAP inside RoboTwin's own evaluation loop."""
