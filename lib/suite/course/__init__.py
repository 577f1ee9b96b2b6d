"""Everything around the puzzles: hints, exercises, predictions, progress, solutions, reviews."""
