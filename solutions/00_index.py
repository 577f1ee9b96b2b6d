# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# <!-- part: setup -->

# %% [markdown]
# # LLM Training Puzzles
#
# How is a model trained on 4, 16 or 10 000 GPUs? In each of these puzzles you write what one GPU does in one training
# step, and a simulator runs it on all of them, checks it, and draws what happened. No GPU is needed.
#
# Begin with the [introduction](00_introduction.ipynb). It shows every word, value and operation that the puzzles use,
# and takes about half an hour. After it, the arrows say what to solve before what: you need not go in the order of the
# numbers.
#
# Click a card to open its puzzle. Run the cell (Shift-Enter) to see a check mark on those you have solved.

# %% [markdown]
# <!-- part: top -->

# %%
from drawing import puzzle_map
from lib import PUZZLES, solved

puzzle_map(PUZZLES, solved=solved())

# %% [markdown]
# <!-- part: table -->

# %% [markdown]
# ## How to work
#
# - Predict before you run. Where a number can be guessed, a cell asks you for it, and the simulator answers.
# - When something is wrong, read the message: it says which rank, which line of yours, what was expected, what came,
#   and the likely fix. A picture shows the run up to there.
# - When you are stuck, open one hint. Each notebook has three: a question, an idea, and nearly the code.
# - Passing is the first goal. The others are for those who want more, and under each check you see how far you are
#   from the best that is possible.
#
# In a terminal (*File > New > Terminal*), or in a cell with a `!` before it, `puzzles` shows what you have solved and
# what is next, and `puzzles reveal` the official solution, and others, once you have passed. In a terminal,
# `puzzles watch` runs your notebook again whenever you save it.
