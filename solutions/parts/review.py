# %% [markdown]
# ### How good is it?
#
# The review shows how far you are from the best that is possible, where your ranks wait and why, and what filled the
# memory at the peak. When your run is correct, it draws the reference solution under yours.
#
# A gap puzzles you? `why(out, rank=0, time=5)` (`from lib import why`) follows it back to what really held it up.
#
# Passed? Then `reveal("$id")`, in a cell of its own, shows the official solution, and other good ways to solve the
# puzzle.

# %%
from lib import reveal, review

review(out, puzzle="$id")

# %% [markdown]
# ### Walk through it
#
# Drag the slider, or use the arrow keys. You see what each rank does and holds at any moment.

# %%
from drawing import step_through

step_through(out)
