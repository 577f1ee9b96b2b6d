"""The commands about pipelines: `puzzles schedule` and `puzzles explore`."""
