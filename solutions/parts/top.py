# %% [markdown]
# $top
