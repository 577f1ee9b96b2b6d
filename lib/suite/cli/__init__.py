"""The `puzzles` command."""
