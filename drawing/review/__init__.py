"""A review as a picture."""
