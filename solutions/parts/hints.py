# %% [markdown]
# **Stuck?** There are three hints: a question, an idea, and nearly the code. They stay folded until you ask: change
# the 0 to 1 for the first, then 2, then 3.

# %%
from lib import hint

hint("$id", 0)
