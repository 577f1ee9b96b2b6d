"""A run as a timeline."""
