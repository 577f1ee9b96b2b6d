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
# # Introduction: from one training step to many GPUs
#
# The weights of Llama 3 405B are 810 GB in bf16. It takes **eleven H100s just to hold them**, before anything is
# trained. It was trained on 16,384 of them at once, and for every single one of them someone had to decide what it
# stores, what it computes, and what it sends to which other. In these puzzles that someone is you.
#
# You write what **one GPU does in one training step**. A simulator runs your function on all of them, checks that
# together they did one correct step, and draws which GPU computed when, which waited, and how much memory each needed.
# You need no GPU for it, because no matrix is ever multiplied. A value here is only a *label*, such as "gradient of
# layer 2, from batches 0 and 1". What makes distributed training hard is which values may be combined, and when, and
# that is what the simulator checks.
#
# This notebook comes in **three sittings**, about fifteen minutes each, with a few lines for you to write in each of
# them:
#
# 1. **One GPU.** By the end you will have written a complete training step.
# 2. **Many GPUs.** By the end four GPUs add up their gradients, and you will have made the waiting disappear.
# 3. **Messages.** By the end you will have built a collective of your own, out of nothing but messages to a neighbour.

# %%
from drawing import draw, draw_collective, draw_group, draw_ring, step_through
from lib import Model, PuzzleError, expect, fix, predict, simulate
from lib.schedules.steps import one_collective

# %% [markdown]
# ---
# # First sitting: one GPU
#
# Let us take a small network of 2 layers, and a training step on 4 batches. A **layer** is one weight matrix, and a
# **batch** is one share of the examples of this step. `Model(...)` gives you a sandbox, in which you can try every
# operation by hand.

# %%
model = Model(layers=2, batches=4)
weights, opt_states, activations, grad_activations, grad_weights = model.storage()

# %% [markdown]
# `model.storage()` returns five dictionaries, the **stores**. They are the memory of your GPU. Each is for one kind of
# value, and you choose the keys.
#
# | store | what goes in | elements |
# |---|---|---|
# | `weights` | the weight of a layer | 512 · 512 = 262,144 |
# | `opt_states` | what the optimizer remembers about that weight, such as momentum | 262,144 |
# | `grad_weights` | the gradient of a weight | 262,144, however many batches are added up in it |
# | `activations` | the input of a layer | 256 · 512 = 131,072 for **each** batch |
# | `grad_activations` | the gradient of an activation | 131,072 for **each** batch |
#
# Look at the last column once more. Some things grow with the batch, and some do not. Half of all the tricks in these
# puzzles come from that difference.
#
# ### Forward
#
# First some data. We take batches 2 and 3 of the four. A value shows itself as a picture of the network, with the part
# that you hold filled in.

# %%
activations[0] = model.get_activation([2, 3])
activations[0]

# %% [markdown]
# `load_weights` gives you the weight of a layer together with its optimizer state.

# %%
for layer in range(model.LAYERS):
    weights[layer], opt_states[layer] = model.load_weights(layer)
weights[0]

# %% [markdown]
# `forward` takes the input of a layer and its weight, and makes the input of the next layer. What comes out of the last
# layer, here `activations[2]`, is the output of the network.

# %%
activations[1] = model.forward(0, activations[0], weights[0])
activations[2] = model.forward(1, activations[1], weights[1])
draw_group(activations)

# %% [markdown]
# ### Backward
#
# `loss` turns the output into its gradient. Then `backward` goes back, one layer at a time. It needs three things: the
# weight of the layer, the gradient of what came **out** of it, and the activation that went **in**. It makes two
# gradients: one for the weight, and one for the input, which the layer below is waiting for.
#
# The keys we use: `grad_activations[k]` is the gradient of `activations[k]`. So the backward of a layer reads
# `activations[layer]` and `grad_activations[layer + 1]`, and writes `grad_weights[layer]` and `grad_activations[layer]`.

# %%
grad_activations[2] = model.loss(activations[2])
for layer in (1, 0):
    grad_weights[layer], grad_activations[layer] = model.backward(
        layer, activations[layer], grad_activations[layer + 1], weights[layer]
    )
draw_group(grad_activations)

# %% [markdown]
# **Exercise 1.** A network of three layers, and one batch. Take it all the way forward, whatever the number of layers
# (the check also tries five).
# Replace the line with `NotSolved` by your code and run the cell: it tells you at once whether you are right.


# %%
def all_the_way(model: Model) -> None:
    weights, opt_states, activations, *_ = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([0])
    # Forward through layer 0, layer 1, and so on.
    # --- your code (about 4 lines) ---
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(
            layer, activations[layer], weights[layer]
        )
    # --- end of your code ---


for layers in (3, 5):
    out = simulate(all_the_way, layers=layers, batches=1, ranks=1)
    expect(out, store="activations", layer=layers)

# %% [markdown]
# ### Memory
#
# Nothing is freed for you. A value takes memory until you delete it from its store: `del activations[0]`. `status()`
# lists what you hold, and `memory()` adds it up. Here is the sandbox, after forward and backward:

# %%
model.status()
print("memory:", f"{model.memory():,.0f}", "elements")

# %% [markdown]
# More than 3 million elements, and half of it is rubbish: after backward nothing reads the activations or their
# gradients again.
#
# **Exercise 2.** Here is a forward and a backward through one layer. For each value ask: does anything below this line
# still read it? If not, `del` it. Three values should be left, the ones that an update needs.


# %%
def clean_up(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    weights[0], opt_states[0] = model.load_weights(0)
    activations[0] = model.get_activation([0])
    activations[1] = model.forward(0, activations[0], weights[0])
    grad_activations[1] = model.loss(activations[1])
    grad_weights[0], grad_activations[0] = model.backward(
        0,
        activations[0],
        grad_activations[1],
        weights[0],
    )
    # Delete everything that is not read again.
    # --- your code (about 2 lines) ---
    del activations[0], activations[1]
    del grad_activations[0], grad_activations[1]
    # --- end of your code ---


out = simulate(clean_up, layers=1, batches=1, ranks=1)
expect(out, memory=3 * 262_144)

# %% [markdown]
# The puzzles judge you by the **peak**, the highest memory at any moment of the step. So it matters *when* you delete:
# the sooner, the better.
#
# <details><summary>The fine print about memory (for when you wonder)</summary>
#
# - **Keep values in the stores.** What you park in a local variable still takes memory. The check will find it and show
#   it, and then only the first goal of a puzzle counts.
# - **The peak** is measured when a forward, a loss, a backward, an update or a communication begins. `+` does not count.
# - **Training repeats.** The weights and optimizer states that a rank loads were there before the step began, so they
#   count from the first moment, in whatever line you load them. What an update gives you counts to the end, because the
#   next step starts with it. And whatever a rank had before the step it must have afterwards, updated once.
# - **On the way.** A message belongs to the sender's memory until the other rank calls `receive`. From then on it
#   belongs to the receiver's.
#
# </details>
#
# ### Update
#
# A gradient remembers which batches it has seen. In our sandbox these are batches 2 and 3 of the four, so it is too
# early for an update:

# %%
try:
    model.update(0, grad_weights[0], weights[0], opt_states[0])
except PuzzleError as error:
    print(error)

# %% [markdown]
# Every mistake is reported like this: what happened, what was expected, what came instead, where it is in your code, and
# what to do about it. If the fix is the answer itself, the message only hints at it; `fix()` shows the line.
#
# We would now have to run batches 0 and 1 as well. In the sandbox there is a short cut, `fake_grad`, which makes up a
# gradient. (In a puzzle the check does not fall for it.) Gradients of different batches are added with `+`.

# %%
grad_weights["sum"] = grad_weights[0] + model.fake_grad(0, [0, 1])
weights[0], opt_states[0] = model.update(
    0, grad_weights["sum"], weights[0], opt_states[0]
)
weights[0]

# %% [markdown]
# ### Time
#
# We measure **time** in units of "one batch forward through one layer".
#
# | operation | time |
# |---|---|
# | `forward`, `backward` | 1 for each batch |
# | `update` | 0.5 |
# | `loss`, `load_weights`, `get_activation`, `+` | 0 |
#
# (A real backward takes about twice as long as a forward. Here both take 1, to keep the arithmetic easy.)
#
# **Exercise 3.** Your first complete training step: one layer, two batches, one after the other. The loop is given. What
# is missing comes after it: add up the two gradients, and update.
#
# But predict first: when will this step be over? Replace the `...` with your number. All puzzles ask you for
# predictions like this one. Being wrong is not a problem. Not guessing is, because then there is nothing to be
# surprised about.

# %%
guess = predict(end=...)
guess


# %%
def first_step(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    weights[0], opt_states[0] = model.load_weights(0)
    for b in range(model.BATCHES):
        activations[0] = model.get_activation([b])
        activations[1] = model.forward(0, activations[0], weights[0])
        grad_activations[1] = model.loss(activations[1])
        grad_weights["batch", b], grad_activations[0] = model.backward(
            0, activations[0], grad_activations[1], weights[0]
        )
        del activations[0], activations[1], grad_activations[0], grad_activations[1]

    # grad_weights["batch", 0] and grad_weights["batch", 1] are there. Add them up, and
    # update layer 0.
    # --- your code (about 4 lines) ---
    grad_weights["sum"] = grad_weights["batch", 0] + grad_weights["batch", 1]
    weights[0], opt_states[0] = model.update(
        0, grad_weights["sum"], weights[0], opt_states[0]
    )
    # --- end of your code ---

    model.set_final_weight(0, weights[0])  # hands in the result


out = []  # forget the last run in case this one fails
out = simulate(first_step, layers=1, batches=2, ranks=1)
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Each of 2 batches goes forward (1) and backward (1) through 1 layer, and then there is one update: 2 · 2 + 0.5 = 4.5.
#
# </details>

# %%
draw(out)

# %% [markdown]
# How to read this picture: time runs to the right, with one row for each rank (there is only one so far). A full box is
# a **forward**, a pale one of the same colour the **backward** through that layer. The number says which batch. Below
# you see the **memory**, moment by moment, stacked by kind of value.
#
# And the verdict:

# %%
Model.check(out)

# %% [markdown]
# **That was the first sitting.** You have written a whole training step by hand, gradient accumulation included. If you
# want to stop here, puzzles $number_basic and $number_grad_accum need nothing more than this.
#
# ---
# # Second sitting: many GPUs
#
# From now on there are several GPUs. They all run **the same function**, each with a `model` of its own: its own stores,
# its own clock, and its own number, `model.rank`. That is why a GPU is called a **rank** here. The number is all that
# makes one of them behave differently from the others.
#
# `simulate` runs your function on every rank and gives you the list of their models.


# %%
def hello(model: Model) -> None:
    model.activations[0] = model.get_activation([model.rank])
    print("rank", model.rank, "of", model.RANKS, "works on", model.activations[0])


out = simulate(hello, layers=1, batches=4, ranks=4)

# %% [markdown]
# This is the usual arrangement when there are as many batches as ranks: **rank r works on batch r**. All it takes is
# `get_activation([model.rank])`.
#
# ### `async` and `await`
#
# As soon as ranks talk to each other, they have to wait for each other. That needs two words of Python:
#
# 1. **Calling starts it.** `work = model.allreduce(...)` hands the operation to the network and returns at once.
# 2. **`await` waits for it.** `result = await work` gives you the result when it is there.
#
# Mostly you do both on one line: `result = await model.allreduce(...)`. The function around it becomes an `async def`.
# What a rank computes by itself (`forward`, `backward`, `loss`, `update`) is never awaited.
#
# ### All-reduce: the sum, for everyone
#
# Every rank brings the gradient for its own batch, and every rank leaves with the sum over all batches. The second
# argument says which layer this is about.


# %%
async def sum_gradients(model: Model) -> None:
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    grad_weights["sum"] = await model.allreduce(grad_weights["mine"], 0)


out = simulate(sum_gradients, layers=1, batches=4, ranks=4)
for m in out:
    print("rank", m.rank, "has", m.grad_weights["mine"])
    print("       and gets", m.grad_weights["sum"])

# %%
draw_collective(out)

# %% [markdown]
# An operation in which all ranks take part is called a **collective**. It starts when the *last* rank has arrived,
# takes 0.3, and ends for all of them at once. (0.3 whatever the size. Real collectives are not so kind: twice the data
# takes nearly twice as long, and even an empty one is not free.)
#
# **Predict.** Rank r runs `forward` on r + 1 batches before it comes to the all-reduce: one batch on rank 0, four on
# rank 3. When is it over? And what share of the time, in percent over all four ranks, is spent waiting?

# %%
guess = predict(end=..., idle=...)
guess


# %%
async def late(model: Model) -> None:
    weights, opt_states, activations, *_ = model.storage()
    grad_weights = model.grad_weights
    weights[0], opt_states[0] = model.load_weights(0)
    activations[0] = model.get_activation(range(model.rank + 1))
    activations[1] = model.forward(0, activations[0], weights[0])
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    grad_weights["sum"] = await model.allreduce(grad_weights["mine"], 0)


out = simulate(late, layers=1, batches=4, ranks=4)
guess.against(out)

# %%
draw(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Rank 3 arrives at 4, the others wait for it, and the all-reduce takes 0.3: it is over at 4.3, on every rank. The ranks
# computed for 1, 2, 3 and 4, which is 10 of the 4 · 4.3 = 17.2 that went by. So 42 % of the time was wasted.
#
# </details>
#
# One slow GPU slows down all the others. Train on thousands of them, and you will spend days hunting for the one that
# is a little too warm.
#
# ### Do not wait when you have something to do
#
# Calling only *starts* a collective. So a rank can compute while the network is busy, and `await` later.
#
# **Exercise 4.** Same work, same ranks as above, but start the all-reduce **before** the forward and await it **after**
# the forward. The run should end at 4.0: no rank waits for the network any more.


# %%
async def hide_it(model: Model) -> None:
    weights, opt_states, activations, *_ = model.storage()
    grad_weights = model.grad_weights
    weights[0], opt_states[0] = model.load_weights(0)
    activations[0] = model.get_activation(range(model.rank + 1))
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    # Start the all-reduce; go forward, into activations[1]; then wait for the sum, into
    # grad_weights["sum"].
    # --- your code (about 3 lines) ---
    work = model.allreduce(grad_weights["mine"], 0)
    activations[1] = model.forward(0, activations[0], weights[0])
    grad_weights["sum"] = await work
    # --- end of your code ---


out = simulate(hide_it, layers=1, batches=4, ranks=4)
calls = ["allreduce", "forward"]
expect(out, store="grad_weights", batches=range(4), end=4.0, calls=calls)

# %%
draw(out)

# %% [markdown]
# The word for this is **overlap**, and real training lives on it. (A call returns a **work**, not a value. Keep it in a
# variable until you await it; the stores take values only.)
#
# You will forget an `await` one day. Then there is a work where a value should be, and you see this:


# %%
async def forgot_await(model: Model) -> None:
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    grad_weights["sum"] = model.allreduce(grad_weights["mine"], 0)


try:
    simulate(forgot_await, layers=1, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# ### All-gather: the pieces, for everyone
#
# A rank does not have to load a whole weight. `load_weights(layer, shard, total)` loads one **shard**, one of `total`
# equal pieces, with a shard of the optimizer state. With four shards that is a quarter of the memory. But `forward` and
# `backward` need the whole weight, and `allgather` puts it together from the shards of all ranks.

# %%
out = simulate(one_collective("allgather"), layers=1, batches=4, ranks=4)
draw_collective(out)

# %% [markdown]
# Note the difference. An all-*reduce* **adds**: more batches, same size. An all-*gather* **puts pieces together**: more
# shards, more memory.
#
# ### Reduce-scatter: the sum, one piece for each
#
# Every rank brings its whole gradient, and leaves with *one shard* of the sum: rank r with shard r. In the puzzles it is
# called `scatterreduce`.

# %%
out = simulate(one_collective("scatterreduce"), layers=1, batches=4, ranks=4)
draw_collective(out)

# %% [markdown]
# | call | a rank brings | a rank gets |
# |---|---|---|
# | `await model.allreduce(gradient, layer)` | whole gradient, its own batch | whole gradient, all batches |
# | `await model.allgather(shard, layer)` | its shard | all shards |
# | `await model.scatterreduce(gradient, layer)` | whole gradient, its own batch | its shard, all batches |
#
# **Exercise 5.** Look at the table long enough, and you see that one of the three is the other two, one after the other.
# Give every rank the sum of all four gradients, whole, **without** `allreduce`.


# %%
async def in_two_halves(model: Model) -> None:
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    # Two collectives; the sum goes into grad_weights["sum"].
    # --- your code (about 2 lines) ---
    grad_weights["shard"] = await model.scatterreduce(grad_weights["mine"], 0)
    grad_weights["sum"] = await model.allgather(grad_weights["shard"], 0)
    # --- end of your code ---


out = simulate(in_two_halves, layers=1, batches=4, ranks=4)
calls = ["scatterreduce", "allgather"]
expect(out, store="grad_weights", batches=range(4), whole=True, end=0.6, calls=calls)

# %% [markdown]
# An all-reduce **is** a reduce-scatter followed by an all-gather. Remember this one. It is the key to half of the
# memory savings in modern training, because very often you only need one of the two halves.
#
# **That was the second sitting.** Puzzles $number_ddp, $number_wsdp and $number_fsdp need nothing more than this.
#
# ---
# # Third sitting: messages
#
# Not everything is for everyone. `await model.pass_to(rank, value)` sends a **message** to one other rank, and
# `await model.receive(rank)` waits for one from it. Here a batch moves down a line of four ranks. Each of them knows one
# layer of the network.


# %%
async def relay(model: Model) -> None:
    weights, opt_states, activations, *_ = model.storage()
    layer = model.rank
    weights[layer], opt_states[layer] = model.load_weights(layer)
    if model.rank == 0:
        activations["in"] = model.get_activation([0])
    else:
        activations["in"] = await model.receive(model.rank - 1)
    activations["out"] = model.forward(layer, activations["in"], weights[layer])
    if model.rank < model.RANKS - 1:
        await model.pass_to(model.rank + 1, activations["out"])
        del activations["out"]


out = simulate(relay, layers=4, batches=1, ranks=4)

# %% [markdown]
# A message takes 0.2 for the sender and then 0.2 for the receiver. It is a copy: the value also stays with the sender,
# until it is deleted there. The receiver waits until something comes. The sender can go on, unless its last message to
# that rank has not been received yet: there is room for **one** message on the way.
#
# A picture of a run is good, and walking through it is better. Drag the slider, or use the arrow keys, and watch the
# batch go from rank to rank. The **bubble** is the share of the time in which ranks wait.

# %%
step_through(out)

# %% [markdown]
# ### When every rank waits
#
# Ranks 0 and 1 want to swap their gradients and add them up. Both are polite: each waits for the other's message first.
# On real GPUs such a program just stands still. Many minutes later there is a timeout, and it says little that helps.
# The simulator sees it at once:


# %%
async def after_you(model: Model) -> None:
    other = 1 - model.rank
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    grad_weights["theirs"] = await model.receive(other)
    await model.pass_to(other, grad_weights["mine"])
    grad_weights["sum"] = grad_weights["mine"] + grad_weights["theirs"]


try:
    simulate(after_you, layers=1, batches=2, ranks=2)
except PuzzleError as error:
    print(error)

# %% [markdown]
# This is a **deadlock**. The message says for each rank what it is waiting for, and on which line.
#
# **Exercise 6.** Fix it. What the message proposes works, and takes 0.8. You can swap in 0.4: remember that there is room
# for one message on the way.


# %%
async def swap(model: Model) -> None:
    other = 1 - model.rank
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    # The other rank's gradient goes into grad_weights["theirs"].
    # --- your code (about 2 lines) ---
    await model.pass_to(other, grad_weights["mine"])
    grad_weights["theirs"] = await model.receive(other)
    # --- end of your code ---
    grad_weights["sum"] = grad_weights["mine"] + grad_weights["theirs"]


out = simulate(swap, layers=1, batches=2, ranks=2)
calls = ["pass_to", "receive"]
expect(out, store="grad_weights", batches=range(2), end=0.4, calls=calls)

# %% [markdown]
# The second classic is a collective in which one rank does not take part:


# %%
async def without_rank_2(model: Model) -> None:
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    if model.rank != 2:
        grad_weights["sum"] = await model.allreduce(grad_weights["mine"], 0)


try:
    simulate(without_rank_2, layers=1, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Collectives have no names on the wire. A rank's first collective meets the first of every other rank, its second their
# second, and so on. So all ranks have to call **the same collectives in the same order**.
#
# ### Your own all-reduce
#
# Two ranks can swap. What do four do? They sit in a **ring**. Each has a neighbour on its right to send to, and one on
# its left to receive from. In each round every rank passes on what it received in the round before. After three rounds
# every gradient has been on every rank.
#
# **Exercise 7.** Fill in one round. `total` is the sum so far, and `travelling` is what this rank passes on next: at
# first its own gradient, then what it got in the round before.


# %%
async def my_allreduce(model: Model) -> None:
    grad_weights = model.grad_weights
    left, right = (model.rank - 1) % model.RANKS, (model.rank + 1) % model.RANKS
    mine = model.fake_grad(0, [model.rank])
    grad_weights["total"] = grad_weights["travelling"] = mine
    for _ in range(model.RANKS - 1):
        # Pass on what is travelling, take what comes from the left, add it up.
        # --- your code (about 3 lines) ---
        await model.pass_to(right, grad_weights["travelling"])
        grad_weights["travelling"] = await model.receive(left)
        grad_weights["total"] = grad_weights["total"] + grad_weights["travelling"]
        # --- end of your code ---
    del grad_weights["travelling"]


out = simulate(my_allreduce, layers=1, batches=4, ranks=4)
expect(out, store="grad_weights", batches=range(4), end=1.2, calls=calls)

# %%
draw(out)

# %% [markdown]
# **That was the third sitting**: four ranks, no boss, and every rank has the sum. NCCL, the library under PyTorch, does
# a large all-reduce in a ring just like this (for small ones it has trees), with one more trick: it cuts the gradient
# into as many pieces as there are ranks, and lets the pieces travel. Then a rank sends about twice the size of the
# gradient. With yours it is three times for four ranks, and 999 times for a thousand. Step through the real one:

# %%
draw_ring(simulate(one_collective("allreduce"), layers=1, batches=4, ranks=4))

# %% [markdown]
# ---
# # How a puzzle works
#
# You know all you need. Each puzzle is a notebook with a gap in one function. You read what the problem is,
# **predict** what will happen, look at the **goal**, fill the gap, and run. Then the notebook draws your run, checks it,
# and reviews it.
#
# - A run that fails says why, and shows what all ranks did up to that moment.
# - `print(model.rank, model.memory())` and `model.status()` work inside your function, too.
# - Stuck? `hint(...)` opens one hint at a time.
# - The first goal, *passes*, is enough to go on. *As good as the classic* is the solution of Sasha Rush's *LLM Training
#   Puzzles*, on which these are modelled, and *as good as our reference* is the solution that comes with this notebook.
# - The review also knows a **lower bound**, which no schedule can beat.
#
# Besides the bubble, one word comes up often: the chain of operations that decides when a run ends, each waiting for the
# one before it, is the **critical path**.
#
# <details><summary>All the words, to look up later</summary>
#
# | word | meaning |
# |---|---|
# | **activation** | the input of a layer; `activations[0]` is the data, `activations[LAYERS]` the output of the network |
# | **batch** | one share of the examples of this training step; there are `model.BATCHES` of them, numbered from 0 |
# | **collective** | an operation in which all ranks take part |
# | **gradient** | the derivative of the loss, for each activation and for each weight |
# | **layer** | one weight matrix; there are `model.LAYERS` of them, numbered from 0 |
# | **message** | a value that one rank passes to one other |
# | **microbatch** | a batch that travels through the network on its own |
# | **optimizer state** | what the optimizer remembers about a weight from step to step |
# | **rank** | one GPU with its own memory, and its number; there are `model.RANKS` of them, numbered from 0 |
# | **shard** | one of `total` equal pieces of a weight, of its gradient or of its optimizer state |
# | **stage** | neighbouring layers that one rank takes care of |
# | **step** | one update of every weight; time is something else, see above |
#
# </details>

# %% [markdown]
# <!-- part: links -->
