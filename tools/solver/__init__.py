"""Finds optimal pipelines with CP-SAT.

    python -m tools.solver --stages 4 --layers 8 --batches 4 [--overlap] [--write]
    python -m tools.solver --order zb_h1 --stages 4 --batches 8 [--limit 3] [--write]

Run when the puzzles are written, never when they are solved: what it found is stored, and `lib.analysis.bounds.optima`
reads it, or `best_orders` beside it. The only room that needs OR-tools, which the extra `optimum` brings.
"""
