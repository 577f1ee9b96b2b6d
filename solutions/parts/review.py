# %% [markdown]
# ### How good is it?
#
# The review shows how far you are from the best that is possible, where your ranks wait and why, and what filled the
# memory at the peak. When your run is correct, it draws the reference solution under yours.
#
# <details><summary>More to ask of a run, each in a cell of its own</summary>
#
# - `from drawing import step_through`, then `step_through(out)`: drag the slider, or use the arrow keys, and see what
#   each rank does and holds at any moment.
# - `from lib import why`, then `why(out, rank=0, time=5)`, with a rank and a time at which it idles: follow that gap back
#   to what held the rank up.
# - `from lib import reveal`, then `reveal("$id")`, when you have passed: the official solution, and other good ways to
#   solve the puzzle.
#
# </details>

# %%
from lib import review

review(out, puzzle="$id")
