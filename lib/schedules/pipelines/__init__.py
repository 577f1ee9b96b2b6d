"""Pipelines as orders: for every rank the list of its actions, and what follows from it."""
