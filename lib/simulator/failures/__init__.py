"""A run in which a rank fails: what the others do until then, and its Trace."""
