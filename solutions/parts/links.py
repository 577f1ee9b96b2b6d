# %% [markdown]
# $onwards
