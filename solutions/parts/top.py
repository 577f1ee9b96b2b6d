# %% [markdown]
# $heading
