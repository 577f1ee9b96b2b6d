# %% [markdown]
# $navigation
