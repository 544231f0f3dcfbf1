"""What the cluster decides: plans, commits, reports. Pure functions of a view."""
