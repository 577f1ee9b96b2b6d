"""Puzzles at other sizes than their own: what their goals are there, and which sizes a seed gives."""
