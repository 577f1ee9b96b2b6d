"""Runs a student's function on every rank."""
