"""Runs beside each other: on one time axis, many of them small, and one a page for a lecture."""
