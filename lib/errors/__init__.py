"""Errors that explain themselves, and the words for numbers, sets and lines of source code."""
