# %% [markdown]
# ## The words
#
# <details><summary>What is a bubble, a shard, a V? The field's words, and the puzzle that teaches each</summary>
#
# $words
#
# </details>
