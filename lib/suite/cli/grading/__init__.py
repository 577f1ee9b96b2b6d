"""Grading a class: the command, and the pages it writes."""
