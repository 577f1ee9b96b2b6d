# %% [markdown]
# **Stuck?** There are three hints: a question, an idea, and nearly the code. To open the first, change the 0 to 1. Then
# 2, then 3.

# %%
from lib import fix, hint

hint("$id", 0)
