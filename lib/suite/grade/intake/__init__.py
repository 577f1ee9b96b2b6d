"""Sorts hand-ins by student and attempt, and says what cannot be graded. Runs nothing, and unpacks nothing to disk."""
