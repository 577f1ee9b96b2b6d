"""Finds and loads a function in a student's file."""
