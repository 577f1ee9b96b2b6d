# %% cellView="form" jupyter={"source_hidden": true}
# @title Set up: run this cell first
# Looks for the puzzles, which this notebook cannot do without.
import sys

if sys.version_info < (3, 11):
    python = sys.version.split()[0]
    raise RuntimeError(
        f"the puzzles need Python 3.11 or newer; this is Python {python}"
    )
try:
    from drawing import draw
    from lib import simulate
except ImportError as error:
    raise RuntimeError(
        f"{error}. This notebook needs the folder that it comes from, with lib/ and "
        "drawing/ in it: type `make lab` there. (Another `lib` or `drawing` beside the "
        "notebook is in the way: call it something else.) Or use a notebook that "
        "brings the puzzles along, in Colab too: `.venv/bin/puzzles export --colab` in "
        "that folder writes one for each puzzle into colab/"
    ) from None
