"""The commands for who teaches with runs: `puzzles compare` and `puzzles gallery`, as pictures, pages and slides."""
