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
# Llama 3 405B was trained on 16,384 GPUs at once. How does that work? What does each of them do, all day long?
#
# Here you find out by doing it. In each puzzle you write what **one GPU does in one training step**. A simulator runs it
# on all of them, checks that they did one correct step together, and draws what happened. You need no GPU.
#
# Begin with the [introduction](00_introduction.ipynb), in three sittings of about fifteen minutes. After the first one
# you can already solve puzzles $number_basic and $number_grad_accum. The puzzles come in chapters, and the large cards are
# the **core path**. The arrows say what to solve before what, and where a card says *after 1.4*, that is a puzzle of an
# earlier chapter. The small labels below go **deeper**, each after the puzzle that it names. You may skip all of them.
#
# Click a card to open its puzzle. To see where you are, with a check mark on what you have solved, run the cell
# (Shift-Enter).

# %% [markdown]
# <!-- part: top -->

# %%
from drawing import puzzle_map
from lib import PUZZLES, solved

puzzle_map(PUZZLES, solved=solved())

# %% [markdown]
# <!-- part: table -->

# %% [markdown]
# <!-- part: words -->

# %% [markdown]
# ## How to work
#
# - **Predict before you run.** Each puzzle asks you for a number or two. Being wrong is how you remember it.
# - **Read the message** when something goes wrong. It says which rank it was and which line of yours, what was expected,
#   what came instead, and what to do. A picture shows what all ranks did up to that moment.
# - **Take one hint at a time** when you are stuck. There are three: a question, an idea, and nearly the code.
# - **Go on when you pass.** The other goals are for those who want more. Under each check you see how far you are from
#   the best that is possible.
# - **Some answers are plain functions.** Most puzzles ask for what each rank does. In some you write a function that
#   answers a question about a mesh, and it is tried on many. A wrong answer shows the smallest one on which it fails.
#
# There is also a command, `puzzles`. In a terminal (*File > New > Terminal*), or in a cell as `!puzzles`, it shows what
# you have solved and what comes next. `puzzles watch`, in a terminal, runs your notebook again whenever you save it.
# And `puzzles reveal ddp` shows the official solution and others, once you have passed.
