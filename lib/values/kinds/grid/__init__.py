"""Layers of a grid: what each point needs of those around it, and what all of them have in common."""
