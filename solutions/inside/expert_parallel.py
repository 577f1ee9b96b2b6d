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
# In 2020 a model with 600 billion parameters was trained in four days, on 2,048 TPUs [@lepikhin2020]. A dense model of
# that size multiplies every token by all 600 billion. Here each token met only a small part of them.
#
# The trick: give a layer many weights, the **experts**, and let a **router** choose two of them for each token. Add
# experts, and the model grows, but a token takes no longer: a **mixture of experts**, MoE. The catch: they do not
# fit on one GPU, so they are spread over many.
#
# > **To tell a friend:** the weights stay where they are, and each token goes to see its experts.

# %%
from drawing import draw, draw_collective, draw_experts, draw_group
from lib import (
    Layer,
    Links,
    Model,
    PuzzleError,
    goal,
    predict,
    route_by_loads,
    simulate,
)
from lib.schedules.given import backward, forward, given, joined, update
from lib.suite.course.solutions import run_of

PRICES = Links()  # 0.2 for 131,072 elements from one rank to the next


def layers(*loads: int, capacity: int | None = None) -> list[Layer]:
    """The layers of this puzzle, with experts that get these shares of the tokens."""
    route = route_by_loads(loads, top=2)
    return [
        Layer(),  # layer 0: as in other puzzles, the same for all tokens
        Layer("dispatch", experts=4, route=route, capacity=capacity),  # layer 1
        Layer("experts", experts=4),  # layer 2
        Layer("combine"),  # layer 3
    ]


# %% [markdown]
# ## The idea
#
# Four ranks, four experts, one on each rank. Each rank has its own batch of 256 tokens, and each token has chosen two
# experts. An MoE layer does three things, here three layers:
#
# | layer | what forward gives | weight |
# |---|---|---|
# | 1, **dispatch** | each token twice, once for each expert it has chosen | none |
# | 2, **experts** | what each expert makes of its tokens | four, one for each expert |
# | 3, **combine** | each token once again: the sum of its two results, each weighted by the router's trust in that expert | none |
#
# After dispatch a rank holds its own tokens, sorted by expert, but only one of the experts. So before layer 2 the ranks
# exchange tokens: each cuts what it has into pieces for experts 0, 1, 2 and 3, and sends each to the rank with that
# expert. An **all-to-all** does that for all ranks at once. After layer 2 another one brings the results home. Forward,
# where `joined` puts what comes from all ranks together, and `cut` makes the pieces: one for each expert along
# `"experts"`, or along `"batch"`, one for each rank's batch:


# %%
@given
def cut(model: Model, value, dim: str) -> list:
    """A value cut along a dim, into one piece for each rank."""
    return [model.shard(value, dim, rank, model.RANKS) for rank in range(model.RANKS)]


async def only_forward(model: Model) -> None:
    weight, _ = model.load_weights(0)
    expert, _ = model.load_weights(2, model.rank, model.RANKS)  # this rank's expert
    tokens = model.forward(0, model.get_activation([model.rank]), weight)
    by_expert = model.forward(1, tokens)
    arrived = joined(await model.alltoall(cut(model, by_expert, "experts"), 2))
    results = model.forward(2, arrived, expert)
    home = joined(await model.alltoall(cut(model, results, "batch"), 3))
    shown[model.rank] = {"by expert": by_expert, "arrived": arrived, "home": home}
    model.forward(3, home)


shown: dict = {}
balanced = simulate(
    only_forward, layers=layers(1, 1, 1, 1), batches=4, ranks=4, costs=PRICES
)
draw_experts(balanced)

# %% [markdown]
# Each rank has 512 choices to place, two for each of its 256 tokens, and here the router is balanced: 128 for each
# expert. After dispatch rank 2 has its own batch, for all experts:

# %%
draw_group({"by expert": shown[2]["by expert"]})

# %% [markdown]
# And after the exchange it has the tokens of all batches for its own expert:

# %%
draw_group({"arrived": shown[2]["arrived"]})

# %% [markdown]
# In between, this is what travelled:

# %%
draw_collective(balanced, "alltoall")

# %% [markdown]
# On the clock, forward has two holes, one for each exchange. A rank cannot compute in them: all its tokens are away.

# %%
draw(balanced)

# %% [markdown]
# Leave out the second exchange, and the next operation says which results are missing:


# %%
async def not_home(model: Model) -> None:
    expert, _ = model.load_weights(2, model.rank, model.RANKS)
    weight, _ = model.load_weights(0)
    by_expert = model.forward(
        1, model.forward(0, model.get_activation([model.rank]), weight)
    )
    arrived = joined(await model.alltoall(cut(model, by_expert, "experts"), 2))
    model.loss(model.forward(3, model.forward(2, arrived, expert)))


try:
    simulate(not_home, layers=layers(1, 1, 1, 1), batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Forward you have just seen. Backward needs exchanges, too. Where does the gradient of each result arise, and on which
# rank is it needed?
#
# **In parts.** To fill the holes, cut the tokens of a rank into four parts, by rows. Each part travels on its own, and
# its step has five **stretches**. A stretch waits for what the one before it has sent, computes, and sends something
# on:
#
# | stretch | waits for | computes | sends |
# |---|---|---|---|
# | `leave` | | forward: layers 0 and 1 | each token to its experts |
# | `at_expert` | tokens | forward: layer 2 | each result home |
# | `turn` | results | layer 3, the loss, and backward: layer 3 | ? |
# | `back_at_expert` | ? | backward: layer 2 | ? |
# | `back_home` | ? | backward: layers 1 and 0 | |
#
# While a part is on the way, the rank can compute a stretch of another part. Two helpers for that: `send` starts an
# exchange, and `await arrived(part)` gives what has come:


# %%
@given
def exchanges(model: Model):
    """Two functions: one starts the exchange of a part, the other waits for it."""
    on_the_way = {}

    def send(part: int, value, dim: str) -> None:
        on_the_way[part] = model.alltoall(cut(model, value, dim), value.layer)

    async def arrived(part: int):
        return joined(await on_the_way.pop(part))

    return send, arrived


# %% [markdown]
# ## The puzzle
#
# | ranks | batches | layer 0 | layer 2 | an exchange | all-reduce of layer 0's gradient | an update |
# |---|---|---|---|---|---|---|
# | 4 | 4, one a rank | 1 | 2: 512 tokens for this rank's expert | 0.3 | 0.6 | 0.5 for a weight, or an expert |
#
# These are times forward on a rank; backward takes the same again. Dispatch and combine take no time. A part takes a
# quarter of all that.
#
# **Given:** the weight of layer 0, whole on every rank, that of this rank's expert, the data of this rank's batches in
# four parts, and the two stretches of forward, `leave` and `at_expert`. What is of a part has it in its key, as in
# `activations[2, part]`. And three helpers:
#
# | helper | what it does |
# |---|---|
# | `forward(model, layer, part)` | makes `activations[layer + 1, part]` from `activations[layer, part]` |
# | `backward(model, layer, part)` | uses up `activations[layer, part]` and `grad_activations[layer + 1, part]`; adds the gradient of the weight to `grad_weights[layer]` and, but for layer 0, gives `grad_activations[layer, part]` |
# | `update(model, layer)` | updates a weight, and uses up its gradient |
#
# They are for layers 0 and 2. Dispatch and combine have no weight: `model.forward(3, results)`, and
# `model.backward(3, None, gradient)` gives one gradient. The `None` stands for their input, which they do not need.
#
# **To do:** one training step, in three steps of yours.
#
# 1. The other three stretches. Call all five for one part after the other.
# 2. A sum over the ranks, and two updates. Which gradient needs the sum? Now the step is correct.
# 3. The order. What could the rank compute between a `send` and the `await arrived` for it?
#
# **Rules**
#
# - What a later stretch reads lives in the stores, and everything alive counts: what an exchange will bring takes
#   memory from its start on. Park a value in a variable while something else runs, and only the first goal counts.
# - `set_final_weight` gets layer 0, and this rank's expert of layer 2.

# %% [markdown]
# ### Predict first
#
# Your first version takes one part after the other, and awaits every collective at once. How many collectives does a
# rank call, and when is the step over?

# %%
guess = predict("expert_parallel", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step, wherever you put the experts. For the second, they stay on their ranks and only
# tokens travel: that is your first version. For the third, compute while tokens are in flight. For the last, never wait
# for a token.

# %%
goal("expert_parallel")

# %% [markdown]
# <!-- part: hints -->


# %%
async def expert_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    send, arrived = exchanges(model)

    weights[0], opt_states[0] = model.load_weights(0)
    weights[2], opt_states[2] = model.load_weights(2, model.rank, model.RANKS)
    mine = model.BATCHES // model.RANKS
    activations[0] = model.get_activation(
        range(model.rank * mine, (model.rank + 1) * mine)
    )
    parts = 4  # of the rows of each batch
    for part in range(parts):
        activations[0, part] = model.shard(activations[0], "rows", part, parts)
    del activations[0]

    @given
    def leave(part: int) -> None:
        forward(model, 0, part)
        send(part, model.forward(1, activations.pop((1, part))), "experts")

    @given
    async def at_expert(part: int) -> None:
        activations[2, part] = await arrived(part)
        forward(model, 2, part)
        send(part, activations.pop((3, part)), "batch")

    # The other three stretches, and all five for each part; then update layers 0 and 2.
    # --- your code (about 26 lines) ---
    async def turn(part: int) -> None:
        grad_activations[4] = model.loss(model.forward(3, await arrived(part)))
        send(part, model.backward(3, None, grad_activations.pop(4)), "experts")

    async def back_at_expert(part: int) -> None:
        grad_activations[3, part] = await arrived(part)
        backward(model, 2, part)
        send(part, grad_activations.pop((2, part)), "batch")

    async def back_home(part: int) -> None:
        grad_activations[1, part] = model.backward(1, None, await arrived(part))
        backward(model, 0, part)

    for part in range(parts):
        leave(part)
    for part in range(parts):
        await at_expert(part)
        if part > 0:
            await turn(part - 1)
    for part in range(parts):
        await back_at_expert(part)
        if part == 0:
            # Its results came home while the experts went back already.
            await turn(parts - 1)
    for part in range(parts):
        await back_home(part)

    # Of layer 0 alone: each expert has seen the tokens of all ranks.
    total = model.allreduce(grad_weights.pop(0), 0)
    update(model, 2)
    grad_weights[0] = await total
    update(model, 0)
    # --- end of your code ---

    for layer in (0, 2):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(expert_parallel, puzzle="expert_parallel")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# A rank computes 1 and 2 forward, 2 and 1 backward, and two updates take 1: at least 7. There are two exchanges in each
# direction, 0.3 each for all four parts, and an all-reduce of 0.6. With nothing beside them, the step is over at 8.8.
# Four exchanges for each of four parts, and the all-reduce: 17 collectives. (Here a message has no price of its own, so
# four short exchanges take as long as a long one.)
#
# The time of an exchange: a rank sends 384 of its 512 choices to others, 512 numbers each, 196,608 elements, and
# receives as many. Four exchanges and an all-reduce are 1,179,648 elements sent.
#
# Of the 8.8, the rank computes for 7. Only one thing has nothing to hide behind: the all-reduce, 0.6, is 0.1 longer
# than the update that can run beside it. So with the right order the step is over at 7.1.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="expert_parallel")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## When all want the same expert
#
# A router is trained, and nothing makes it balanced. Suppose that 7 of 8 tokens choose expert 0. Forward alone, with
# the function from above:

# %%
hot = simulate(
    only_forward, layers=layers(7, 3, 3, 3), batches=4, ranks=4, costs=PRICES
)
draw_experts(hot)

# %%
draw(hot)

# %% [markdown]
# Rank 0 has more than twice the work of any other rank, and all of them wait for it: their results come home in one
# exchange. That exchange takes longer, too. It lasts as long as the rank that sends or receives the most.
#
# One answer is a **capacity**: an expert takes only so many tokens of each rank. First choices come before second
# choices, and tokens in their order, so each rank decides alone what it sends. The rest is **dropped**: those tokens do
# without that expert.

# %%
uneven = layers(7, 3, 3, 3, capacity=160)
capped = simulate(only_forward, layers=uneven, batches=4, ranks=4, costs=PRICES)
draw_experts(capped)

# %%
print("capacity   at expert 0   dropped   forward takes")
for capacity in (224, 192, 160, 128, 96):
    uneven = layers(7, 3, 3, 3, capacity=capacity)
    run = simulate(only_forward, layers=uneven, batches=4, ranks=4, costs=PRICES)
    at_expert = [shown[rank]["arrived"].elements() // 512 for rank in range(4)]
    dropped = 1 - sum(at_expert) / 2048
    time = max(model.time for model in run)
    print(f"{capacity:8} {at_expert[0]:13} {dropped:9.1%} {time:15.4g}")

# %% [markdown]
# With a capacity of 128, exactly an even share, forward is as fast as with a balanced router, and 19 % of all choices
# are lost. A capacity is usually given as a multiple of the even share, the **capacity factor**: 160 is a factor of
# 1.25.
#
# A capacity also bounds the largest part that travels. A library that can only exchange parts of equal size pads all of
# them to it, with empty slots: `model.alltoall_padded`. With a capacity of 160 each rank then sends 3 × 160 slots each
# time. Without padding it sends 3 × 96 tokens to the experts (rank 0), or 160 + 2 × 96 (the others).
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **The order.** All parts leave first. Then each goes to its experts, while the next one is still on its way there. A
# part turns when its results are home, and the part after it is at the experts meanwhile. One hole is left: the results
# of the last part are on their way home, and no other part is in forward. But the gradients of the first part have
# arrived by then, so the experts go back with them before the last part turns.
#
# **Expert parallelism**, combined with data parallelism over the same ranks: layer 0 is on all of them, and its
# gradients are summed; each expert is on one rank, sees the tokens of all ranks, and its gradient needs no sum. With
# *n* ranks, *t* tokens on each, and *k* experts for each token, *h* numbers a token:
#
# ```
# one exchange, in elements sent        t·k·h·(n - 1)/n
# a training step                        four exchanges a layer
# weights and optimizer states          those of 1 expert in n, however many there are
# all experts on all ranks               no exchange, n times the weights, and an all-reduce of all their gradients
# ```
#
# The first line hardly grows with *n*: however many experts there are, each token still makes *k* trips out and back.
#
# </details>

# %%
run, _ = run_of("expert_parallel")  # yours, once it is correct
draw_experts(run)

# %% [markdown]
# ## On real GPUs
#
# - **How large.** GShard had 600 billion parameters and was trained in 4 days on 2,048 TPU v3 [@lepikhin2020].
# - **Where the link is slow.** An all-to-all over two hosts with H100s takes more than four times as long as inside one
#   [@scaling_book]: half of what a GPU sends has to pass its one network card. So routers are often limited to a few
#   hosts for each token.
# - **A library of its own.** DeepEP does nothing but dispatch and combine. Over two hosts of eight Hopper GPUs it
#   reports 90 GB/s on 12 of a GPU's multiprocessors [@deepep, of version 2]. A network card carries only 50 GB/s: the
#   90 count the tokens that stay in the host, too, up to half of all. With DeepEP and fused kernels, a model of 30
#   billion parameters, its experts spread over 8 GPUs, went from 9,930 to 14,796 tokens a second on each GPU
#   [@nous_torchtitan_19].
# - **Without dropping.** MegaBlocks multiplies the tokens of all experts as one block-sparse matrix, however many each
#   has, and drops none: up to 40 % faster than Tutel [@gale2022].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# The router is given: which experts a token goes to does not depend on what is learned, and how much each result counts
# is fixed. A real router is a small matrix with a gradient of its own, and usually an extra loss or bias that balances
# it. An expert is one matrix here, and two or three in a transformer. Ranks know how many tokens will arrive; real ones
# exchange the counts first. Combining a token's results takes no time.

# %% [markdown]
# ## Questions to think about
#
# **1.** Why is the gradient of layer 0 summed over all ranks, and that of an expert over none?
#
# <details><summary>Answer</summary>
#
# A gradient must cover all tokens. Layer 0 on rank 2 has only seen the tokens of rank 2. Expert 2, on rank 2, has seen
# the tokens of all ranks that chose it: the exchange brought them. Its gradient is already complete. A sum over the
# ranks would add gradients of different experts, which have nothing to do with each other.
#
# </details>
#
# **2.** Put all four experts on each rank. How long does a step take then?
#
# <details><summary>Answer</summary>
#
# There is no exchange. But the gradients of four experts are summed over all ranks, 2.4, and each rank updates four
# experts, 2. Awaited, the step ends at 11.5, and each rank holds four times the experts' weights, gradients and
# optimizer states. With 256 experts it would be 256 times.
#
# </details>
#
# **3.** Which tokens are dropped, and what happens to them?
#
# <details><summary>Answer</summary>
#
# The last ones of each rank's batch: first choices go first, and tokens in their order. A token that loses one of its
# two experts continues with the other result, which counts for no more than before. If it loses both, combine gives
# zero; in a transformer the residual connection carries the token past the layer. It is unfair that the last tokens of
# a text always lose: shuffle them first, and chance decides.
#
# </details>
#
# **4.** In the last 0.1 of the all-reduce, no rank computes. What else could a rank do then?
#
# <details><summary>Answer</summary>
#
# Save some work for that moment: the weight half of the expert's last backward, with `backward_input` and
# `backward_weight`, is 0.25. Then the step is over at 7.0.
#
# </details>
#
# ## Where this leads
#
# Tensor, sequence, context and now expert parallelism: each has its own group of ranks and its own rule for who sums
# what with whom. Whatever is inside a layer, some GPUs of a pipeline always wait. The chapter on pipelines asks how
# few. (Two chapters in between are deeper: what if a single example is too large for a GPU, and where do all those
# batches come from?)

# %% [markdown]
# <!-- part: links -->
