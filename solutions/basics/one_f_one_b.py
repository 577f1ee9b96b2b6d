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
# One sequence of 2,048 tokens leaves 275 GB of activations in GPT-3. On a pipeline of 8 stages that is 34 GB a stage,
# and 34 GB fit into an H100. But a pipeline wants many microbatches, or it waits most of the time. Say 32. GPipe
# takes all of them forward before the first one goes back: 32 · 34 GB = 1.1 TB on each GPU. One stage now needs
# fourteen H100s for its activations alone.
#
# So choose: a small bubble, or activations that fit. Unless you look at *when* each microbatch goes back.
#
# > **To tell a friend:** 1F1B does not make a pipeline faster. It frees memory sooner, so that you can afford the
# > many microbatches that do.
#
# *The words, once more.* A **stage** is the run of layers that a rank owns. A **microbatch** is a batch that travels
# alone. The **bubble** is the time in which ranks wait.

# %%
from math import ceil

from drawing import compare, draw, draw_curves
from lib import Model, Trace, check, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# This is GPipe, on 4 ranks, with 4 microbatches and with 8. The second does twice the work in 53.0 instead of 33.8:
# less than twice as long, because its bubble is smaller. But look at the memory.


# %%
def run_gpipe(batches: int) -> list[Model]:
    from lib.schedules.pipelines.generators import gpipe
    from lib.schedules.pipelines.program import program_of

    program = program_of(gpipe(ranks=4, batches=batches))
    return simulate(program, layers=8, batches=batches, ranks=4)


compare(four=run_gpipe(4), eight=run_gpipe(8))

# %% [markdown]
# It grows from 2,883,584 to 4,456,448 elements, and 16 microbatches would take 7,602,176. On every rank the inputs of
# all microbatches pile up until the last one has gone forward.
#
# Now find the moment when rank 3 has taken its *first* microbatch forward. It is the end of the line, so it has the
# loss. It could go back at once, and free everything that microbatch left. Instead it waits for seven others. And as
# soon as rank 3 sends a gradient back, rank 2 can go back and free too, and so on up the pipeline.
#
# A microbatch that has gone forward on a rank and not yet back is **in flight** there. The activation memory of a
# stage is proportional to the number of microbatches in flight.
#
# **Predict.** Rank 3 goes back as soon as it can. How many microbatches are in flight there, at most? How many does
# rank 0 need in flight, so that no rank runs out of work before the first gradient is back? Write a number for each of
# the four ranks. They are compared with your run below, under "The stairs".

# %%
in_flight = ["?", "?", "?", "?"]  # on ranks 0, 1, 2, 3

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 4 | 8 | 8 |
#
# **Given:** the two halves of your GPipe. `await forward(b)` receives batch *b* (or reads it), takes it through the
# layers of this rank, and passes it on (or takes its loss). `await backward(b)` receives its gradient, goes back, adds
# up the gradients of the weights, passes on, and deletes everything that batch *b* still had here. The updates are
# given, too.
#
# **To do:** call them in the right order. Each rank has an order of its own. GPipe would be two loops, one after the
# other. 1F1B has three phases: the **warm-up**, the **steady state** and the **cool-down**.
#
# **Rules**
#
# - All messages are **awaited**: a message takes 0.2 of the sender's time and 0.2 of the receiver's.
# - One message at a time can be on the way to each rank.
# - On each rank the batches go forward in order, and back in order, because that is how messages arrive.
# - The check runs your order at other sizes, too. In one of them there are fewer batches than ranks.
# - A deadlock here means that your order is impossible: a rank asks for a gradient (or a batch) that another sends only
#   later, or it is so far ahead of the next one that its messages find no room. The messages in `forward` and `backward` are right as they are.

# %% [markdown]
# ### Predict first
#
# GPipe ends at 53.0. When will 1F1B end, and what will be the highest peak? (A weight has 262,144 elements, an
# activation half of that; weights and optimizer states of a stage are 4 · 262,144, the sums of its gradients 2 · 262,144.)

# %%
guess = predict("one_f_one_b", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. The limits answer your prediction, so guess first.

# %%
goal("one_f_one_b")

# %% [markdown]
# <!-- part: hints -->


# %%
async def one_f_one_b(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    per_rank = model.LAYERS // model.RANKS
    my_layers = range(model.rank * per_rank, (model.rank + 1) * per_rank)
    first, last = my_layers[0], my_layers[-1]
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    async def forward(b: int) -> None:
        if model.rank == 0:
            activations[first, b] = model.get_activation([b])
        else:
            activations[first, b] = await model.receive(model.rank - 1)
        for layer in my_layers:
            activations[layer + 1, b] = model.forward(
                layer, activations[layer, b], weights[layer]
            )
        if model.rank == model.RANKS - 1:
            grad_activations[last + 1, b] = model.loss(activations[last + 1, b])
        else:
            await model.pass_to(model.rank + 1, activations[last + 1, b])
        del activations[last + 1, b]

    async def backward(b: int) -> None:
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

    # Some forwards. Then backward and forward in turn. Then the backwards that are
    # left.
    # --- your code (about 7 lines) ---
    ahead = min(model.BATCHES, model.RANKS - model.rank)
    for b in range(ahead):
        await forward(b)
    for b in range(model.BATCHES):
        await backward(b)
        if b + ahead < model.BATCHES:
            await forward(b + ahead)
    # --- end of your code ---

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(
            layer,
            grad_weights[layer, model.BATCHES - 1],
            weights[layer],
            opt_states[layer],
        )
        del grad_weights[layer, model.BATCHES - 1]
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(one_f_one_b, puzzle="one_f_one_b")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# **Time.** The first batch reaches the end of rank 3 after 4 · 2 + 3 · 0.4 = 9.2, as in GPipe, and 2 later its
# backward is over: 11.2. From there on rank 3 takes turns. From one backward to the next it passes a gradient back
# (0.2), waits for rank 2 (0.4; not yet for batch 1, which is there already), receives a batch (0.2), and computes 2 +
# 2: 4.8. The last of the eight is over at 11.2 + 7 · 4.8 - 0.4 = 44.4. Its gradient goes through three more stages, 3
# · 2.4 = 7.2, and rank 0 updates two layers: 52.6. GPipe takes 53.0. So 1F1B is just as slow, give or take 0.4.
#
# **Memory.** Rank 0 has four batches in flight, of two inputs each: 8 · 131,072. It has a gradient that just came in
# (131,072; an output that goes out is as large), the sums of its gradients (2 · 262,144), and weights and optimizer states (4 · 262,144). Together
# 2,752,512. Nothing in this depends on the number of batches.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="one_f_one_b")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### The stairs
#
# Look at the memory of the four ranks above: it goes down like stairs. Here is the largest number of batches in flight
# on each rank, beside what you predicted:


# %%
def most_open(run: Trace) -> list[int]:
    """The most batches that have gone forward and not yet back, on each rank."""
    found: list[int] = []
    for program in run.programs:
        open_layers = [0]
        for event in program.events:
            change = {"forward": 1, "backward": -1}.get(event.op, 0)
            open_layers.append(open_layers[-1] + change)
        found.append(ceil(max(open_layers) * run.ranks / run.layers))
    return found


print("GPipe:    ", most_open(Trace.of(run_gpipe(8))))
print("predicted:", in_flight)
if out:
    print("yours:    ", most_open(Trace.of(out)))

# %% [markdown]
# <details><summary>Why these numbers?</summary>
#
# On rank 3 it is one: forward, backward, forward, backward. Rank 0 has to wait until its first batch has been to rank 3
# and back. If it sent nothing in the meantime, the others would starve. So it sends one more for each stage on the way.
#
# </details>
#
# And this is what it buys. Both take the same time for any number of microbatches, give or take 0.4. But only one of
# them lets you have as many as you like:

# %%
from lib.schedules.pipelines.generators import one_f_one_b as one_f_one_b_order
from lib.schedules.pipelines.program import program_of

peaks = {"1F1B": [], "GPipe": []}
for n in range(1, 17):
    run = simulate(program_of(one_f_one_b_order(4, n)), layers=8, batches=n, ranks=4)
    peaks["1F1B"].append((n, check(run).memory / 1_000_000))
    peaks["GPipe"].append((n, check(run_gpipe(n)).memory / 1_000_000))
draw_curves(
    peaks,
    across="microbatches",
    up="peak, in millions of elements",
    title="The rank with the highest peak, 4 stages of 2 layers",
)

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **1F1B**, short for one forward, one backward: what most people mean when they say pipeline parallelism. PipeDream
# had the order first, in 2019, without a flush: weights changed while microbatches were in flight. Your version waits
# for all microbatches before it updates. It is from 2020, as DAPPLE and as PipeDream-Flush, and Megatron-LM made it
# the standard. With *L* layers and *B* microbatches on *R* ranks (three or more, and more microbatches than ranks),
# every message awaited:
#
# ```
# time = 2·(L/R)·(B + R - 1) + 0.8·(B + R - 2.5) + 0.5·L/R
# peak = 3·(L/R)·W + (L + 1)·A
# ```
#
# The first term of the time is that of GPipe, and so is the bubble, (R - 1) / (B + R - 1). The peak has no *B* in it.
# Instead rank 0 has *R* microbatches in flight, of *L/R* inputs each. That is *L*, as if one batch had gone through
# the whole model on one GPU.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **The same bubble, less memory.** Megatron-LM chose 1F1B because it keeps at most as many microbatches as there are
#   stages, and GPipe keeps all of them [@narayanan2021, section 2.2].
# - **How many microbatches.** A model of 28.3 billion parameters on 32 stages: 26.5 % of the time is bubble with 96
#   microbatches, 13.5 % with 256 (computed from measured times) [@qi2023, table 5]. GPipe would have all 256 in flight
#   at once; no GPU has room for that.
# - **Where it comes from.** PipeDream updated the weights as soon as a microbatch came back: no bubble, but several
#   versions of each weight. It trained up to 5.3 times as fast as when every batch is shared among the GPUs
#   [@narayanan2019]. DAPPLE kept the order and waited for all microbatches, so it computes what one GPU would [@fan2020]; so did
#   PipeDream-Flush [@narayanan2020].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - Every message is awaited, on both sides. Real pipelines post their receives early and send while they compute;
#   question 4 shows what that is worth.
# - A backward takes as long as a forward (on a GPU twice), and all layers are alike. On real models the first stage has
#   the embedding, and the last one the output layer, the largest matrix of all.
# - Our stages keep only the inputs of their layers. A real layer keeps many times as much.

# %% [markdown]
# ## Questions to think about
#
# **1.** Why not four forwards at the beginning on *every* rank? It would be simpler.
#
# <details><summary>Answer</summary>
#
# Then the step takes 107.4, twice as long. After its first backward, rank 3 wants to take batch 4 forward. But rank 0
# sends batch 4 only after its own first backward, and that gradient has to come up from rank 3 first. So batch 4 goes
# down and its gradient comes up while three ranks watch, and so does each batch after it. A pipeline stays busy only
# if earlier stages run further ahead.
#
# </details>
#
# **2.** And one forward fewer on each rank than you took (but at least one)? What does it save, and what does it cost?
#
# <details><summary>Answer</summary>
#
# One batch fewer in flight on rank 0, which saves 262,144 elements: 2,490,368. And the time goes up to 83.8. Rank 0
# has to see a gradient before it may begin another batch, and the way to rank 3 and back takes longer than three
# batches do. You took the smallest number at which no rank starves.
#
# </details>
#
# **3.** With 96 microbatches on 4 ranks, how large is the bubble? And how many of them could GPipe take in the memory
# in which 1F1B takes all 96?
#
# <details><summary>Answer</summary>
#
# 3 / (96 + 3) = 3 %. GPipe needs 2,883,584 elements for four microbatches, which is more already, so it can take
# three: with 3 / (3 + 3) a bubble of one half. That is the whole argument for 1F1B, and the picture with the two
# lines shows it at a glance.
#
# </details>
#
# **4.** The review says that no pipeline of this kind ends before 47.4. Where do your 5.2 go, and can you get them back?
#
# <details><summary>Answer</summary>
#
# Into messages that ranks await. Let them run behind the computation: issue each receive one pass before you need it,
# await a send only before the next one, and give every rank but the last one more forward at the beginning, to cover
# the time on the way. It ends at 47.4, the lower bound, and needs 3,276,800 elements. `reveal("one_f_one_b")` has it.
#
# </details>
#
# ## Where this leads
#
# You can now cut the data (data parallel), cut the weights (sharded) and cut the model (pipeline). Llama 3 did all of it
# at once, on 16,384 GPUs. How do two of these fit together on one grid of ranks?

# %% [markdown]
# <!-- part: links -->
