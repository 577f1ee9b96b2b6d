"""Recordings as pictures: a real run beside the schedule that it was to be."""
