"""What goes with the puzzles."""
