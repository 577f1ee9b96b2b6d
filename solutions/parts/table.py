# %% [markdown]
# $table
