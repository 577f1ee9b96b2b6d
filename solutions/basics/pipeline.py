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
# So far the data stayed where it was, and the weights travelled. The weights of GPT-3 are 350 GB in bf16. If they are
# sharded, each GPU has to fetch nearly all of them, twice in every step. Through the eight network cards of a host, 400
# GB a second together, that is 0.9 seconds each time, and all eight cards are busy with it.
#
# Now look at what goes from one *layer* to the next. For a sequence of 2,048 tokens it is 2,048 · 12,288 numbers: **50
# MB**, a millisecond on a single card. A step that takes 64 sequences through the model sends 3.2 GB over each border,
# and the same back: 6.4 GB, where gathering twice is 700.
#
# > **To tell a friend:** do not bring the weights to the data. Bring the data to the weights.
#
# *A new word.* A **stage** is a run of neighbouring layers that one rank takes care of, alone.

# %%
from drawing import draw
from lib import Model, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# Cut the model, not the data. With 8 layers and 4 ranks each rank is a stage of two layers. Rank 0 has layers 0 and 1,
# rank 1 has 2 and 3, and so on. No weight ever leaves its rank. What travels is an activation, at each border between
# two stages, and later its gradient, on the way back:
#
# ```
# rank 0: layers 0 1  ──activations[2]──>  rank 1: layers 2 3  ──activations[4]──>
#                     <──grad act[2]─────                      <──grad act[4]─────   ...
# ```
#
# You have met messages in the introduction: `await model.pass_to(rank, value)` on one side, and
# `value = await model.receive(rank)` on the other. Here is one batch that goes through a small pipeline of two stages,
# and comes back:


# %%
def two_stages() -> list[Model]:
    from lib.schedules.pipelines.generators import gpipe
    from lib.schedules.pipelines.program import program_of

    program = program_of(gpipe(ranks=2, batches=1))
    return simulate(program, layers=2, batches=1, ranks=2)


draw(two_stages())

# %% [markdown]
# Each stage lives the life of a whole GPU, from its first layer to its last. Only the two ends are special. The first
# stage gets its input from the data, and has no rank to send a gradient to. The last one has the loss. Every stage in
# between receives, passes on, receives, and passes back.
#
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 4 | 8 | 4 |
#
# **Given:** on each rank its layers `my_layers`, from `first` to `last`, with their weights and optimizer states, whole.
#
# **To do:** one training step. All four batches travel together through the stages, there and back. Then every rank
# updates its own layers.
#
# **Rules**
#
# - Keep values in the stores. Park a value in a variable while something else runs, and only the first goal counts.
#   What you have sent counts for you too, until you delete it *and* the other rank has called `receive`.
# - A message takes 0.2 for the sender and then 0.2 for the receiver.
# - No collective is needed, as no weight is on two ranks. `set_final_weight` gets the weights of this rank's layers.

# %% [markdown]
# ### Predict first
#
# All four batches go through all four ranks, one rank after the other, and all the way back. For what share of the
# time, in percent and over all ranks, is a rank *not* computing? And how many messages does a rank in the middle send?

# %%
guess = predict("pipeline", idle=..., messages=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. The limits answer your prediction, so guess first.

# %%
goal("pipeline")

# %% [markdown]
# <!-- part: hints -->


# %%
async def pipeline(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    per_rank = model.LAYERS // model.RANKS
    my_layers = range(model.rank * per_rank, (model.rank + 1) * per_rank)
    first, last = my_layers[0], my_layers[-1]
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # The input of this stage: data, or a message. Forward through my layers.
    # The output: to the next rank or into the loss. Its gradient: from the next rank or
    # from the loss.
    # Backward through my layers, and a message to the rank before. Update.
    # --- your code (about 28 lines) ---
    if model.rank == 0:
        activations[0] = model.get_activation(range(model.BATCHES))
    else:
        activations[first] = await model.receive(model.rank - 1)

    for layer in my_layers:
        activations[layer + 1] = model.forward(
            layer, activations[layer], weights[layer]
        )

    if model.rank == model.RANKS - 1:
        grad_activations[last + 1] = model.loss(activations[last + 1])
        del activations[last + 1]
    else:
        await model.pass_to(model.rank + 1, activations[last + 1])
        del activations[last + 1]
        grad_activations[last + 1] = await model.receive(model.rank + 1)

    for layer in reversed(my_layers):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]

    if model.rank > 0:
        await model.pass_to(model.rank - 1, grad_activations[first])
    del grad_activations[first]

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer], weights[layer], opt_states[layer]
        )
        del grad_weights[layer]
    # --- end of your code ---

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(pipeline, puzzle="pipeline")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# While one rank works, the other three wait, so it is about three quarters. Exactly: a rank computes 2 layers · 4 batches
# forward (8), the same backward (8), and 2 updates (1), which is 17. All four ranks, one after the other, take 4 · 16 = 64
# for forward and backward. Three messages go down and three come back (6 · 0.4 = 2.4), and rank 0 updates last (1). So the
# run takes 67.4. Of that, 17 / 67.4 = 25.2 % is used, and 74.8 % is not.
#
# A rank in the middle sends 2 messages: the activation to the next rank, and its gradient to the one before.
#
# </details>
# %%
draw(out)

# %%
Model.check(out, puzzle="pipeline")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is **model parallelism** in its plainest form. If you have ever put half of a model on `cuda:0` and the other half
# on `cuda:1`, you have built it before. In the picture a staircase goes down, and then up again. (The way *forward* goes
# down, because rank 0 is on top.) The time in which a rank waits is called the **bubble**, and here the bubble is
# three quarters of the picture.
#
# ```
# time = 2·L·B + 2·(R - 1)·0.4 + 0.5·L/R         compute as on one device + messages + the updates of one stage
# peak = 2·(L/R)·W + (L/R + 1)·B·A               weights and optimizer states of a stage + its activations
# ```
#
# Look at the first line. The compute is not divided by *R*. Four GPUs are hardly faster than one. Only the memory is
# divided by *R*, and that alone can be worth it: a model that does not fit on one GPU now fits on four.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **Borders are cheap.** On GPUs *without* fast links between them, with plain PCIe, a model still became 3.3 times as
#   fast when it went from two stages to eight [@huang2019]. (With the trick of the next puzzle.)
# - **Who does it.** Llama 3 405B ran in 16 stages, on 16,384 H100s [@llama3]. A model of a trillion parameters ran in 64
#   stages, on 3,072 A100s [@narayanan2021]. In both, the eight GPUs of a machine share each layer, and different stages
#   are on different machines: little traffic where links are slow.
# - **Equal layers are not equal stages.** The first stage has the word embeddings as well, and the last one the output
#   layer and the loss. All stages wait for the slowest. Llama 3 therefore has one layer less in its first and in its last
#   stage [@llama3].
# - **What goes wrong.** Clipping gradients needs the norm of *all* of them. In a pipeline each rank sees its own stage
#   only, and until 2024 torchtitan clipped every stage by a norm of its own [@torchtitan_596]. Nothing crashed.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - A message takes 0.2 on each side, whether there is one batch in it or four. On a real link four batches take four
#   times as long.
# - All layers are alike. There are no embeddings, no output layer, and the loss takes no time.
# - While a rank sends, it does not compute. Real sends run beside the computation.
# - As before: a backward takes as long as a forward (on a GPU twice), and a layer keeps nothing inside.

# %% [markdown]
# ## Questions to think about
#
# **1.** What would 16 stages do with this schedule, for 16 times the money?
#
# <details><summary>Answer</summary>
#
# Fifteen of sixteen GPUs would wait, all the time: 94 % of the machine. With *R* stages the share is (R - 1)/R, and it
# only gets worse. This is why no large model is trained like this, and why you are not done.
#
# </details>
#
# **2.** Why update at the end, and not each layer right after its backward?
#
# <details><summary>Answer</summary>
#
# Because another rank is waiting for your message, and none for your update. Each update before the message delays all
# ranks before you, one after the other. Sending first costs nothing. The rule is worth keeping: **do first what others
# wait for.**
#
# </details>
#
# **3.** Which needs more from the network, this pipeline or sharded weights?
#
# <details><summary>Answer</summary>
#
# Count the elements for one step. Here each of the 3 borders is crossed by the activation of 4 batches, and back by its
# gradient: a rank in the middle sends 2 · 4·A = 8·A. With sharded weights, a rank sends for each of 8 layers 3/4·W in
# each of two all-gathers and 6/4·W in the all-reduce: 8 · 3·W = 24·W = 48·A. Six times as much, for this little model.
# For GPT-3 with 64 sequences a step it was 6.4 GB against 700 for the two gathers alone, over a hundred times as much.
# The larger the layers, and the fewer sequences a step, the better for the pipeline.
#
# </details>
#
# ## Where this leads
#
# Rank 1 waits until rank 0 has done *all* four batches. But what is the least that it has to get before it can begin?

# %% [markdown]
# <!-- part: links -->
