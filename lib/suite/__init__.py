"""Everything around a course: its progress, hand-ins, notebooks, grading, and the command `puzzles`."""
