# %% [markdown]
# ### Yours beside the reference
#
# How far you are from the best that is possible, where your ranks wait and why, and what filled the memory at the
# peak. When your run is correct, the timeline of the reference solution is drawn under yours.

# %%
from lib import review

review(out, puzzle="$id")
