"""Finds optimal pipelines with CP-SAT.

    python -m lib.schedules.solver --stages 4 --layers 8 --batches 4 [--overlap] [--write]

Run when the puzzles are written, never when they are solved: what it found is stored, and `lib.analysis.bounds.optima`
reads it. The only room that needs OR-tools: pip install ortools.
"""
