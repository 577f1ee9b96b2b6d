"""Everything beside the puzzles: hints, exercises, predictions, progress, solutions, reviews."""
