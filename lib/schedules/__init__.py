"""Known schedules."""
