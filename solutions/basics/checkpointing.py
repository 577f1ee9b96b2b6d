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
# <!-- part: top -->

# %% [markdown]
# # $heading
#
# One sequence of 2,048 tokens leaves 275 GB of activations in GPT-3: 2.9 GB for each of its 96 layers. But the
# *input* of a layer is only 50 MB. The rest the layer computes inside, and it can compute that again whenever you
# ask. Keep the inputs of the layers and nothing else, and 275 GB become 4.8.
#
# In 2016 Tianqi Chen and others did this to an image model of 1,000 layers: 7 GB instead of 48, for 30 % more time.
# Most large models since have used it: **activation checkpointing**, or recomputation.
#
# How much should you forget? Forget nothing, and the memory is full. Forget nearly everything, and backward has to
# bring back a long stretch of the network at once. And the memory is full again.
#
# > **To tell a friend:** activations are cheap to compute again and expensive to keep. So keep a few, and recompute
# > the rest when backward gets there.
#
# In these puzzles layers are simple: what goes in (the **activation**) is all that their backward needs. So here we
# forget the inputs of layers, and bring them back by running **segments** of several layers forward again.

# %%
from drawing import compare, draw, draw_curves
from lib import Model, check, goal, predict, simulate
from lib.schedules.data_parallel import segments

# %% [markdown]
# ## The idea
#
# Six layers, four batches. Above, everything is kept, as in puzzle $number_basic. Below, the layers are cut into two
# segments. Forward keeps only the input of each segment. The last segment keeps all of its inputs, because it goes
# back at once. Then the first segment runs forward **again**, this time keeping its inputs, and goes back.


# %%
def in_segments(k: int, layers: int, whole: bool = False) -> list[Model]:
    from lib.schedules.data_parallel import checkpointed

    return simulate(checkpointed(k, whole=whole), layers=layers, batches=4, ranks=1)


compare(
    keep_everything=in_segments(1, layers=6),
    two_segments=in_segments(2, layers=6, whole=True),
)

# %% [markdown]
# One peak has become two lower ones. It takes 12 more: three layers run forward a second time, on four batches.
#
# **Predict:** with six segments, of one layer each, what would you save?
#
# <details><summary>Answer</summary>
#
# Nothing. The inputs of six segments are the inputs of six layers: all there are. With one segment you save nothing
# either, because the last segment keeps everything. The best number lies in between.
#
# </details>
#
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 1 | 8 | 4 |
#
# **Given:** all weights and optimizer states, and `activations[0]`, the data of all four batches. `forward(layer)`
# makes `activations[layer + 1]`. `backward(layer)` makes the gradients, deletes what is not needed any more, and
# updates the layer. And `segments(8, k)` cuts 8 layers into *k* segments, each as long as the others or longer by
# one: `segments(8, 2)` is `[range(0, 4), range(4, 8)]`.
#
# **To do:** choose `k`. One training step, in which a layer goes forward once more where its activation was deleted.
#
# **Rules**
#
# - All four batches travel together. (Taking them one by one also saves activations, but sums of gradients stay in
#   memory: it needs 7,471,104 elements here, too many for any goal.)
# - Keep values in the stores. Park a value in a variable while something else runs, and only the first goal counts.
#   What counts is the peak.
# - Forward and backward take 1 for each batch and layer, also when they run again; an update takes 0.5.

# %% [markdown]
# ### Predict first
#
# Without checkpoints the step takes 68 and 8,912,896 elements. Which *k* is best, and what is the peak then? (Weights
# and optimizer states are 4,194,304 of it. An activation of four batches is 524,288.) And the time, if you run
# forward again only where backward needs it?

# %%
guess = predict("checkpointing", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal leaves some choice of `k`, the second takes the best one. For the third, compute nothing that is not
# used. (The limits answer your prediction as well, so guess first.)

# %%
goal("checkpointing")

# %% [markdown]
# <!-- part: hints -->


# %%
def checkpointing(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation(range(model.BATCHES))

    def forward(layer: int) -> None:
        activations[layer + 1] = model.forward(
            layer, activations[layer], weights[layer]
        )

    def backward(layer: int) -> None:
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer], weights[layer], opt_states[layer]
        )
        del grad_weights[layer]

    # Cut the layers into segments. Forward: of each segment but the last keep only its
    # input. Then the loss. Backward, from the last segment: forward through it again,
    # unless all is there; then back.
    # --- your code (about 18 lines) ---
    k = round(model.LAYERS**0.5)
    *before, last = segments(model.LAYERS, k)
    for segment in before:
        for layer in segment:
            forward(layer)
            if layer > segment[0]:
                del activations[layer]
    for layer in last:
        forward(layer)
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]
    for layer in reversed(last):
        backward(layer)
    for segment in reversed(before):
        for layer in segment[:-1]:  # what the last one gives is not read again
            forward(layer)
        for layer in reversed(segment):
            backward(layer)
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(checkpointing, puzzle="checkpointing")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Three segments: layers 0 to 2, 3 to 5, and 6 and 7.
#
# **Memory**, in activations of four batches (524,288 elements). When the last segment goes back there are three inputs of
# segments, one more of layer 7, and a gradient: 5. For the second segment there are two inputs of segments, two more, and a
# gradient: 5 again. For the first it is one less. 5 · 524,288 + 4,194,304 = 6,815,744. Two segments have 2 inputs, 3 more and a
# gradient: 6. Four segments have 4 inputs, 1 more and a gradient: 6 again.
#
# **Time.** The last segment is not computed again. Of the others, the last layer need not be: its output went into
# the next segment, which has gone back already. So layers 0, 1, 3 and 4 go forward twice, 4 · 4 = 16: 84 instead of
# 68. If you run whole segments again, 92.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="checkpointing")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### How much to forget
#
# The peak of this model for every number of segments, as the simulator measures it. There is a valley in between:

# %%
peaks = [(k, check(in_segments(k, layers=8)).memory / 1_000_000) for k in range(1, 9)]
draw_curves(
    {"the peak": peaks},
    across="segments",
    up="peak, in millions of elements",
    title="8 layers, 4 batches",
) if out else None

# %% [markdown]
# And what it is made of, for a network of 64 layers. One curve rises: the inputs of segments that wait. One falls:
# the inputs inside the segment at work. Where they meet, their sum is least:

# %%
counts = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32]
draw_curves(
    {
        "inputs that wait": [(k, k) for k in counts],
        "inputs at work": [(k, 64 / k) for k in counts],
        "both": [(k, k + 64 / k) for k in counts],
    },
    across="segments",
    up="activations",
    title="64 layers: how many activations are there at a time",
)

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# `torch.utils.checkpoint`, around every few layers. With *L* layers in *k* segments of equal length, and *B* batches together
# (two or more):
#
# ```
# time = 2·B·L + 0.5·L + B·(L - L/k - k + 1)
# peak = 2·L·W + (k + L/k)·B·A
# ```
#
# `k + L/k` is least where both terms are equal, at *k* = √*L*. Then it is 2·√*L*: 16 activations instead of 65 for
# a network of 64 layers, and 63 instead of 1,001 for one of 1,000. The time is never more than one forward longer.
# This is the result of 2016 [@chen2016]: keep every √*n*-th activation, and a network of *n* layers trains in memory for
# about 2√*n* of them. What you keep and what you recompute at a time are then equally large, and both are small.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **Inside a layer.** A transformer layer keeps 34 bytes for each number that goes in, and more for attention: in GPT-3
#   114 bytes in all. With full recomputation it keeps 2 [@korthikanti2022]. So the usual segment is one layer, and *k* is
#   the number of layers.
# - **What it costs.** Measured on a layer of a model of 22 billion parameters: everything again takes 39 % longer. Only
#   the attention again, which is large and quick to compute: 7 % [@korthikanti2022].
# - **Choose well.** In GPT-3, forgetting attention alone frees 70 % of the activations for 2.7 % more arithmetic.
#   Together with sequence parallelism this took a model of 530 billion parameters on 2,240 A100s from 42.1 to 54.2 %
#   MFU, compared with recomputing everything [@korthikanti2022].
# - **Or not at all.** Llama 3 405B was trained without it on sequences of 8,192 tokens: with tensor and pipeline
#   parallelism the activations fitted [@llama3].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - Our layers keep nothing but their input, so a segment of a single layer saves nothing. A real layer keeps many times its
#   input, and a segment of one layer saves nearly all of that.
# - A backward takes as long as a forward here. On a GPU it takes twice as long, so one more forward adds a third to the
#   step, not a half.
# - Dropout is random, and the second forward must draw the same numbers. So a real checkpoint also saves the state of
#   the random number generator.

# %% [markdown]
# ## Questions to think about
#
# **1.** From *k* = 3 to *k* = 7 the time goes down again: 84, 80, 80, 76, 72. Why? And is there ever a reason to take more
# segments than √*L*?
#
# <details><summary>Answer</summary>
#
# The last layer of a segment is not computed again, and a segment of one layer has no other. The more segments, the less is
# computed twice. With seven segments only layer 0 is: 72, for 8,388,608 elements. So take as many segments as fit. √*L* is the
# number when only memory counts.
#
# </details>
#
# **2.** Can you get below 2·√*L* activations?
#
# <details><summary>Answer</summary>
#
# Yes, by computing some layers more than twice. Keep the input and the middle, go back through the second half, and
# treat each half in the same way. The number of activations then grows with the logarithm of *L*. For 8 layers that
# has the same peak as three segments, and takes 88. For 64 layers it has 8 activations instead of 16, and runs the
# whole network forward twice more. `reveal("checkpointing")` has it.
#
# </details>
#
# **3.** You take the batches one by one, and add up their gradients, as in puzzle $number_grad_accum. Then what is left for
# checkpoints to do?
#
# <details><summary>Answer</summary>
#
# One batch has 8 activations and a gradient, 9 · 131,072, where four together have 36 · 131,072. But the sums of the
# gradients of all layers now wait from one batch to the next: 8 · 262,144. Together that is 7,471,104 without any
# checkpoint, and three segments save only 4 · 131,072 of it. Checkpoints help where activations are the larger part.
# That is so on real GPUs, and all the more in a pipeline, which holds the activations of several microbatches in
# flight.
#
# </details>
#
# **4.** In a pipeline a rank has several batches in flight. Say it has two layers and four batches (as in puzzle
# $number_one_f_one_b, later in this chapter). How much would checkpoints save there?
#
# <details><summary>Answer</summary>
#
# A stage of two layers has two inputs a batch. Keep only the first, and backward brings the other back for one batch
# at a time: 3 · 131,072 less, and each backward takes one forward longer. With a stage of twelve real layers this is
# common: the stage keeps one input for each microbatch in flight, and everything inside for only one of them.
#
# </details>
#
# ## Where this leads
#
# You can buy memory with time, and you know the price. Time is what is short now: you still do all the work alone, one
# batch after the other. The batches do not need each other until the very end. So why should one GPU do them all?

# %% [markdown]
# <!-- part: links -->
