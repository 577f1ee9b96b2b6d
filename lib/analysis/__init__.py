"""Analyses of a Trace."""
