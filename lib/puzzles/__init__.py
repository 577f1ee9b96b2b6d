"""The records of the puzzles."""
