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
# Your last pipeline kept one GPU busy, and three waiting. With 16 stages, as for Llama 3 405B, fifteen would be waiting:
# of 16,384 H100s, 15,360 would do nothing, at any moment.
#
# Think of a car factory that builds a single car. The engine is put in, the doors wait. The doors are put on, the engine
# people go for coffee. You would not call that a production line. And you have four batches, which do not need each
# other at all.
#
# > **To tell a friend:** a pipeline is only fast when there is more than one thing in it.
#
# *The words, once more.* A **stage** is the run of layers that one rank owns. A batch that travels alone is a
# **microbatch**. The **bubble** is the time in which ranks wait.

# %%
from drawing import compare, draw
from lib import Model, PuzzleError, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# As soon as rank 0 is done with batch 0, it passes it on and begins with batch 1, while rank 1 works on batch 0. Here
# are three stages, once with a single batch, and once with three:


# %%
def three_stages(batches: int) -> list[Model]:
    from lib.schedules.pipelines.generators import gpipe
    from lib.schedules.pipelines.program import program_of

    program = program_of(gpipe(ranks=3, batches=batches))
    return simulate(program, layers=3, batches=batches, ranks=3)


compare(one_batch=three_stages(1), three_batches=three_stages(3))

# %% [markdown]
# Three times the work, and it takes 13.7 instead of 8.1. One after the other, the three would take 23.3. The second
# and the third use time in which ranks would have waited anyway.
#
# All microbatches go forward, then all go backward, then there is one update: this schedule is called **GPipe**. It is the
# pipeline of puzzle $number_pipeline, with the gradient accumulation of puzzle $number_grad_accum inside.
#
# There are several values of each kind on a rank now, so give them keys with two parts, `activations[layer, b]`. Messages
# between two ranks arrive in the order in which they were sent. Mix two batches up, and you hear of it:


# %%
async def mixed_up(model: Model) -> None:
    weights, opt_states = model.weights, model.opt_states
    activations, grad_activations = model.activations, model.grad_activations
    weights[0], opt_states[0] = model.load_weights(0)
    for b in (0, 1):
        activations["in", b] = model.get_activation([b])
        activations["out", b] = model.forward(0, activations["in", b], weights[0])
        grad_activations["out", b] = model.loss(activations["out", b])
    model.backward(0, activations["in", 0], grad_activations["out", 1], weights[0])


try:
    simulate(mixed_up, layers=1, batches=2, ranks=1)
except PuzzleError as error:
    print(error)

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 4 | 8 | 4 |
#
# **Given:** on each rank its layers `my_layers`, from `first` to `last`, with their weights and optimizer states, whole.
#
# **To do:** one training step. Each batch travels on its own: all of them forward, then all of them backward. Add up the
# gradients, and update once.
#
# **Rules**
#
# - Keep values in the stores, and the peak of the rank with the highest one counts. Park a value in a variable while
#   something else runs, and only the first goal counts.
# - Messages only, each 0.2 for the sender and 0.2 for the receiver.
# - There is room for one message on the way to each rank. A second `pass_to` waits until the first has been received.

# %% [markdown]
# ### Predict first
#
# The last puzzle took 67.4. How long will it take when the batches travel one by one? And which rank will have the
# highest peak, if all of them delete what they do not need? (Do all stages do the same?)

# %%
guess = predict("gpipe", end=..., rank=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. The limits answer your prediction, so guess first.

# %%
goal("gpipe")

# %% [markdown]
# <!-- part: hints -->


# %%
async def gpipe(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    per_rank = model.LAYERS // model.RANKS
    my_layers = range(model.rank * per_rank, (model.rank + 1) * per_rank)
    first, last = my_layers[0], my_layers[-1]
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # For each batch: input, forward, output to the next rank or into the loss. For each
    # batch: gradient, backward, sum of the weight gradients, message to the rank
    # before. Update.
    # --- your code (about 38 lines) ---
    for b in range(model.BATCHES):
        if model.rank == 0:
            activations[0, b] = model.get_activation([b])
        else:
            activations[first, b] = await model.receive(model.rank - 1)
        for layer in my_layers:
            activations[layer + 1, b] = model.forward(
                layer, activations[layer, b], weights[layer]
            )
        if model.rank < model.RANKS - 1:
            await model.pass_to(model.rank + 1, activations[last + 1, b])
        else:
            grad_activations[last + 1, b] = model.loss(activations[last + 1, b])
        del activations[last + 1, b]

    for b in range(model.BATCHES):
        if model.rank < model.RANKS - 1:
            grad_activations[last + 1, b] = await model.receive(model.rank + 1)
        for layer in reversed(my_layers):
            grad_weights[layer, b], grad_activations[layer, b] = model.backward(
                layer,
                activations[layer, b],
                grad_activations[layer + 1, b],
                weights[layer],
            )
            del activations[layer, b], grad_activations[layer + 1, b]
            if b > 0:
                grad_weights[layer, b] = (
                    grad_weights[layer, b] + grad_weights[layer, b - 1]
                )
                del grad_weights[layer, b - 1]
        if model.rank > 0:
            await model.pass_to(model.rank - 1, grad_activations[first, b])
        del grad_activations[first, b]

    # b is still the last batch, so grad_weights[layer, b] is the sum over all of them.
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer, b], weights[layer], opt_states[layer]
        )
        del grad_weights[layer, b]
    # --- end of your code ---

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(gpipe, puzzle="gpipe")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# **Time.** A rank in the middle needs 0.2 + 2 + 0.2 = 2.4 for a batch forward: receive, two layers, pass on. The first
# batch reaches the end of the last stage after 4 · 2 + 3 · 0.4 = 9.2. Then the others follow, one every 2.4, so forward is
# over at 9.2 + 3 · 2.4 = 16.4. Backward is the same again: 32.8. And 1 for the updates of two layers: 33.8.
#
# **Memory.** At the end of forward every rank holds the inputs of 2 layers for 4 batches, eight activations in all. So why
# is rank 3 special? Look at what else is alive when backward begins. Ranks 0 to 2 get gradients *one at a time*, by
# message, and use up each of them before the next one comes. But rank 3 has taken the loss of every batch during forward.
# Its gradients are all there at once, and three of them wait while the first one is used. (If you take the losses later,
# it is the outputs that wait instead. They are just as large.)
#
# You can see it in the review: at the peak, at time 18.4, rank 3 holds what every rank holds, and **three gradients of its
# output, for batches 1 to 3**. That is 3 · 131,072 elements more than the others: 2,883,584 against 2,490,368.
#
# </details>
# %%
draw(out)

# %%
Model.check(out, puzzle="gpipe")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### One car at a time
#
# The same four stages, the same layers, the same four batches. Here a batch starts when the one before it has come all
# the way back. Count the boxes that stand above each other at any moment, here and in your picture.

# %%
from lib.schedules.pipelines.action import parse
from lib.schedules.pipelines.program import program_of

orders = [" ".join(f"{stage}F{b} {stage}B{b}" for b in range(4)) for stage in range(4)]
before = simulate(program_of(tuple(map(parse, orders))), layers=8, batches=4, ranks=4)
draw(before)

# %% [markdown]
# It ends at 74.6, even later than 67.4 for all four batches together. The work is the same, but there are four times as
# many messages: 24 of 0.4 instead of 6.

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# You built **GPipe**, the schedule with which Google trained giant models in 2019. It took 33.8 instead of 67.4: twice
# as fast, with the same GPUs, because they have something to do now. With *L* layers and *B* batches on *R* ranks
# (three or more):
#
# ```
# time = 2·(L/R)·(B + R - 1) + 0.8·(B + R - 2) + 0.5·L/R
# peak = 3·(L/R)·W + ((L/R + 1)·B - L/R)·A
# ```
#
# Without the messages and the updates the first line is (B + R - 1) times the work of one batch on one stage. Only *B* of
# those are useful, so the rest is the famous bubble:
#
# ```
# bubble = (R - 1) / (B + R - 1)
# ```
#
# The second line is that of the last rank, at the moment when it passes back its first gradient: weights, optimizer states
# and gradients of a stage (3·(L/R)·W), the inputs of L/R layers for all batches but the first, the B - 1 gradients that
# wait, and the one that it is sending. It has a *B* in it. More microbatches make the bubble smaller, and the memory
# larger. That is the price of this schedule.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **It works.** A transformer in 8 stages, measured against 2 stages with a single batch: 1.3 times as fast with one
#   batch, 4.8 times with 4 microbatches, 6.3 times with 32 [@huang2019].
# - **How many microbatches.** The bubble is small once there are four times as many as stages [@huang2019]. With 4 stages it is 75 %
#   for one batch, and 16 % for 16 microbatches.
# - **How large it got.** GPipe trained a model of 83.9 billion parameters on 128 TPU cores with 16 GB each [@huang2019].
# - **Equal stages matter.** An image model whose layers could not be split evenly became only 3.48 times as fast by the
#   same measure, with 8 stages and 32 microbatches [@huang2019].
# - **You cannot have as many as you like.** Llama 3 405B learns from 16 million tokens a step, in sequences of 8,192, over
#   128 pipelines [@llama3]. That leaves 16 sequences for each pipeline of 16 stages.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - A small batch is as efficient as a large one. On a real GPU, microbatches that are too small waste what the smaller
#   bubble has won.
# - Between forward and backward a stage keeps only the inputs of its layers. GPipe keeps even less: only the input of the
#   whole *stage*, and computes the rest again.
# - A message takes time on both sides. Real sends run beside the computation.
# - As before: a backward takes as long as a forward (on a GPU twice), and all layers are alike.

# %% [markdown]
# ## Questions to think about
#
# **1.** Look at the last rank again. It has its first loss early, and then it goes on with forward, although it could begin
# with a backward. What would change if it did, and all other ranks followed?
#
# <details><summary>Answer</summary>
#
# Then a rank alternates: one backward, one forward. This is called **1F1B**. When a batch goes out, the next one comes
# in, so what a rank has in flight no longer grows with the number of microbatches. Here: 2,490,368 elements instead of 2,883,584. With 16 batches the difference would be 2.75 million
# against 7.6 million. The bubble stays as it is [@narayanan2021]. It takes a different order on each rank, and is puzzle
# $number_one_f_one_b. The check of this one accepts it, too: it ends at 33.4.
#
# </details>
#
# **2.** Sixteen stages and sixteen microbatches: how large is Llama 3's bubble by the formula above? And why does Meta not
# lose half of its cluster?
#
# <details><summary>Answer</summary>
#
# 15 / (16 + 15) = 48 %. That would be 8,000 GPUs doing nothing. So each rank gets several short stages instead of one
# long one: layers 0 and 1, then layers 8 and 9, and so on. They are its **virtual stages**, and a batch goes round more
# than once. This is called an **interleaved** pipeline, and is puzzle $number_interleaved. With two of them on each
# rank, filling the pipeline takes half of the time, and there are twice as many messages.
#
# </details>
#
# **3.** Is the bubble lost time?
#
# <details><summary>Answer</summary>
#
# Not if you find something useful to do in it. The backward of a layer makes two gradients. Other ranks wait for only
# one of them, that of the input. That of the weights can be computed at any time before the update, for example when
# you would otherwise wait. In measurements with 28.3 billion parameters on 32 GPUs this *zero bubble* schedule (puzzle
# $number_zero_bubble) went from 0.76 to 0.87 samples a second on each GPU with nearly the same memory, and to 0.99 with
# a lot more [@qi2023].
#
# </details>
#
# ## Where this leads
#
# The bubble is small now, and you paid for it: every microbatch in flight keeps its activations, and GPipe has all of them
# in flight at once. With 32 microbatches no GPU has room for that. Does a microbatch have to wait for all the others before
# it goes back?

# %% [markdown]
# <!-- part: links -->
