"""Recordings: when each rank did what, of a profiler, a file or an order that was timed; and how two of them differ."""
