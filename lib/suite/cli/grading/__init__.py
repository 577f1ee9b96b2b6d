"""Grading a class: the command, and the pages that it leaves."""
