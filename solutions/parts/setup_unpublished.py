# %% cellView="form" jupyter={"source_hidden": true}
# @title Set up: run this cell first
# Looks for the puzzles, which this notebook cannot do without.
import sys

if sys.version_info < (3, 11):
    raise RuntimeError(f"the puzzles need Python 3.11 or newer; this is Python {sys.version.split()[0]}")
try:
    import drawing
    from lib import simulate
except ImportError:
    raise RuntimeError(
        "this notebook needs the folder that it comes from, with lib/ and drawing/ in it: type `make lab` there. "
        "Or use a notebook that brings them along, in Colab too: `.venv/bin/puzzles export --colab` in that folder writes "
        "one for each puzzle into colab/"
    ) from None
