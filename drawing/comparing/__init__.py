"""Runs beside each other and beside what was asked for: bars, plots, comparisons, reviews, answers."""
