"""Runs beside each other and beside their goals: bars, plots, comparisons, reviews, answers."""
