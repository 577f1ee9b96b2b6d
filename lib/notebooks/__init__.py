"""Building and checking the notebooks."""
