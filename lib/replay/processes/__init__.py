"""Processes: starting ranks and watching over them."""
