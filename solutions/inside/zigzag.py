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
# In a ring of four, the rank with the first quarter of the text computes attention for 8 time units, forward. The rank
# with the last quarter needs 56 for as many tokens, and the others wait for it: three sevenths of the time that four
# ranks spend in attention is waiting.
#
# It gets worse with more ranks. The first of *n* has half a block, and the last *n* - 1/2: in a ring of 16 that is 31
# times as much, and nearly half of a very expensive machine stands idle. On eight H800s a plain ring reached 54 % of
# the speed of attention without a ring. Dealing out the tokens differently, and changing nothing else, raised that to
# 90 % [@ring_flash_attention].
#
# > **To tell a friend:** equal shares of a text are not equal work, because later tokens have more to look at.

# %%
from drawing import draw, draw_attention, draw_curves, draw_group
from lib import Layer, Links, Model, goal, predict, retime, simulate
from lib.analysis.figures import end
from lib.schedules.given import backward, forward, given, in_turn, update
from lib.suite.course.solutions import run_of

PRICES = Links()  # 0.2 for 131,072 elements from one rank to the next
TOKENS = 4096
LAYERS = [
    # Layer 0: the data gives keys and values, 512 numbers each.
    Layer(outputs=1024, rows=TOKENS),
    # Layer 1: the data asks, activation 1 is asked.
    Layer("attention", rows=TOKENS, heads=4, kv_heads=4, of=(0, 1)),
    Layer(rows=TOKENS),  # layer 2
]

# %% [markdown]
# ## The idea
#
# Here is attention forward over a ring, the one you know, for any way to deal out the text. Cut the text into equal
# **pieces**, and say which of them each rank gets.


# %%
def ring_of(*shares: tuple[int, ...]) -> list[Model]:
    """Attention forward over a ring in which rank r has the pieces shares[r] of the
    text."""
    pieces = sum(len(share) for share in shares)

    async def attend(model: Model) -> None:
        weight, _ = model.load_weights(0)
        data = model.get_activation([0])
        first, *more = [
            model.shard(data, "rows", piece, pieces) for piece in shares[model.rank]
        ]
        for piece in more:
            first = first.combine(piece)  # one value with all rows of this rank
        model.activations[0] = first
        keys = model.forward(0, first, weight)
        result = model.forward(1, first, keys)
        for _ in range(1, model.RANKS):
            keys = await model.shift(keys, 1)
            result = result + model.forward(1, first, keys)

    return simulate(attend, layers=LAYERS, batches=1, ranks=len(shares), costs=PRICES)


draw_attention(ring_of((0,), (1,), (2,), (3,)))

# %% [markdown]
# The table of blocks again, queries down and keys across, each block in the colour of its rank. The bars show how long
# each rank works in each step of the ring.
#
# From step 1 on, some rank always has a whole block and another has nothing. No rank goes on before all have passed on
# their keys, so each step takes as long as its longest bar: 56.008 in all. The four ranks together have 128.03 to do.
# Dealt out evenly, that is **32.008 each**.
#
# A rank's tokens need not be neighbours. A ring passes on whatever keys it has, and `forward` knows from the positions
# which pairs count. So cut the text into eight pieces and deal them out like cards: pieces 0 and 4 to rank 0, 1 and 5 to
# rank 1, and so on.

# %%
dealt = ring_of((0, 4), (1, 5), (2, 6), (3, 7))
draw_attention(dealt)

# %% [markdown]
# Better: 44.008, and every rank has something to do in every step. But rank 3 always has one of the longest bars. It
# holds one value whose rows have a gap, and everything you can do with rows still works on it:

# %%
draw_group({"rank 3": dealt[3].activations[0]})

# %% [markdown]
# Two of eight pieces for each rank: can you reach 32.008? Try it. How much work is piece 0, and how much is piece 7?

# %%
draw_attention(ring_of((0, 6), (1, 7), (2, 4), (3, 5)))  # deal them out as you like

# %% [markdown]
# ## The puzzle
#
# | ranks | tokens | layer 0 | all of attention, dealt out evenly | layer 2 | a pass of keys and values |
# |---|---|---|---|---|---|
# | 4 | 4,096, so 1,024 each | 8 | 32.008 | 4 | 1.6 |
#
# The layers and the prices are those of *Ring attention*. Times are forward on a rank; backward takes the same again.
# An update takes 1 for layer 0 and 0.5 for layer 2, and the all-reduces of their weights' gradients 1.2 and 0.6.
#
# **Given:** the weights of layers 0 and 2, whole on every rank, and `data`: all tokens, of which a rank keeps a quarter.
# And the ring of the last puzzle, which is correct whichever tokens a rank has. Keys and values travel while a rank
# computes. In backward a rank's own block comes first, so it need not keep its own keys until the end:


# %%
@given
async def ring(model: Model) -> None:
    """Attention forward: activation 2 from the data, activation 0, and this rank's keys
    and values, activation 1."""
    queries, keys = model.activations[0], model.activations[1]
    coming = model.shift(keys, 1)
    model.activations[2] = model.forward(1, queries, keys)
    for step in range(1, model.RANKS):
        keys = await coming
        if step < model.RANKS - 1:
            coming = model.shift(keys, 1)
        model.activations[2] += model.forward(1, queries, keys)


@given
async def ring_back(model: Model, home: dict, keys=1):
    """Attention backward, for some of this rank's keys and values: activations[keys]
    goes round, and its gradient behind it. Gives turns to others after each block. In
    the end home[keys] is the last shift, which brings the gradient home."""
    queries, gradient, passing = model.activations[0], model.grad_activations[2], {}
    for step in range(model.RANKS):
        if step > 0:
            model.activations[keys] = await passing.pop("keys")
        if step < model.RANKS - 1:
            passing["keys"] = model.shift(model.activations[keys], 1)
        part, _ = model.backward(1, queries, gradient, model.activations.pop(keys))
        if step > 0:
            part = part + await home[keys]
        home[keys] = model.shift(part, 1)
        del part, _
        yield


# %% [markdown]
# `ring_back` stops at its `yield` until its turn comes again. `await in_turn([ring_back(model, home)])`, with an empty
# dict `home`, runs it to its end; several in the list take turns, a block each. Three more helpers, for layers 0 and 2:
#
# | helper | what it does |
# |---|---|
# | `forward(model, layer)` | makes `activations[layer + 1]` from `activations[layer]` |
# | `backward(model, layer)` | uses up `activations[layer]` and `grad_activations[layer + 1]`, and adds the gradient of the weight to `grad_weights[layer]`; of layer 2 it also gives `grad_activations[2]` |
# | `update(model, layer)` | updates a weight, and uses up its gradient |
#
# With a third argument they take a part: `backward(model, 0, half)` uses up `activations[0, half]` and
# `grad_activations[1, half]`.
#
# **To do:** one training step. At the end every rank has the updated weights.
#
# 1. Choose the tokens of each rank, and put the step together around `ring` and `ring_back`.
# 2. Every rank still waits for one pass: the one that brings the gradient of its keys home. What could it compute
#    meanwhile?
#
# **Rules**
#
# - Values live in the stores, and everything alive counts: what a shift will bring takes memory from its start on. Park
#   a value in a variable while something else runs, and only the first goal counts.
# - You may keep pending operations in a dict or a list of your own.
# - `first.combine(second)` is one value with the rows of both. `model.shard(value, "rows", i, n)` cuts what a value has
#   into *n* equal parts, in order: of rows 0-511 and 2048-2559 the second of two is 2048-2559.

# %% [markdown]
# ### Predict first
#
# With a quarter of the text in one piece, the best ring of the last puzzle ended at 138.216, and its ranks were idle
# for 35 % of the time. Now deal out the tokens evenly, let `ring_back` run to its end, and await the last pass, 1.6,
# before layer 0 goes back. Start each all-reduce as soon as its gradient is complete, and update layer 2 first. When is
# the step over, and how many percent of the time are ranks idle?

# %%
guess = predict("zigzag", end=..., idle=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal only asks for even work. For the second, no rank waits for keys: with `ring` and `ring_back` you reach
# both at once. For the third, no rank even waits for the gradient of its keys to come home. The fourth is just as fast
# and needs 13 % less memory.

# %%
goal("zigzag")

# %% [markdown]
# <!-- part: hints -->


# %%
async def zigzag(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 2):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    data = model.get_activation(range(model.BATCHES))

    # Choose this rank's tokens. Forward, loss and backward of them; then update layers
    # 0 and 2.
    # --- your code (about 23 lines) ---
    early = model.shard(data, "rows", model.rank, 2 * model.RANKS)
    late = model.shard(data, "rows", 2 * model.RANKS - 1 - model.rank, 2 * model.RANKS)
    activations[0] = early.combine(late)
    del data, early, late

    forward(model, 0)  # the keys and values of these rows
    await ring(model)
    forward(model, 2)
    grad_activations[3] = model.loss(activations.pop(3))
    backward(model, 2)
    sums, home = {2: model.allreduce(grad_weights.pop(2), 2)}, {}

    # Early and late keys go round one after the other, each with its gradient.
    for half in (0, 1):
        activations[1, half] = model.shard(activations[1], "rows", half, 2)
    del activations[1]
    await in_turn(ring_back(model, home, (1, half)) for half in (1, 0))
    del grad_activations[2]

    # The late gradient is at home first, and layer 0 takes it while the early one is on
    # its way.
    for half in (1, 0):
        activations[0, half] = model.shard(activations[0], "rows", half, 2)
        grad_activations[1, half] = await home.pop((1, half))
        backward(model, 0, half)
    sums[0] = model.allreduce(grad_weights.pop(0), 0)
    for layer in (2, 0):
        grad_weights[layer] = await sums.pop(layer)
        update(model, layer)
    # --- end of your code ---

    for layer in (0, 2):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(zigzag, puzzle="zigzag")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Attention takes 32.008 on every rank, forward and backward. With 8 and 4 for the other layers, twice, and 1.5 for the
# updates that is 89.516: all that a rank computes. It waits for the last pass, 1.6, and for the end of the last
# all-reduce, 1.2, of which the update of layer 2 hides 0.5: **91.816**, of which **2.5 %** is idle. It was 138.216, and
# more than a third of it idle.
#
# (The lower bound in your review is 0.5 less than 89.516. It lets ranks share the update of layer 0, whose weight is
# twice as large as that of layer 2.)
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="zigzag")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## One ring, two ways to deal
#
# In an even ring, no step takes longer than half a block. A pass takes as long as before: just as many keys travel, with
# half the time to hide behind. Slower links show it.

# %%
run, _ = run_of("zigzag")  # yours, once it is correct
contiguous, _ = run_of("ring_attention")
SLOW = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
links = {slow: Links(p2p=slow * 0.2) for slow in SLOW}
draw_curves(
    {
        "one piece each": [
            (slow, end(retime(contiguous, links[slow]))) for slow in SLOW
        ],
        "two pieces each": [(slow, end(retime(run, links[slow]))) for slow in SLOW],
    },
    across="how much slower the link is (1: a pass of keys and values takes 1.6)",
    title="When the step is over, by the speed of the link",
)

# %% [markdown]
# Two pieces each hide all passes up to a link that is 2.5 times as slow, one piece each up to five times. At eight
# times, the link alone decides, and it no longer matters which rank has which tokens.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Zigzag** ring attention: with *n* ranks the text is cut into 2*n* pieces, and rank *i* has pieces *i* and 2*n* - 1 -
# *i*. The work on a piece grows by the same amount from one piece to the next, so the first and the last together have
# as much as the second and the last but one: the trick with which Gauss is said to have added up the numbers from 1
# to 100. With *t* tokens on each rank, and a block of *b* = *t*²/65,536:
#
# ```
# attention, one way     contiguous: (n - 1/2)·b     zigzag: n/2·b     together: n²/2·b
# each step              contiguous: b for some      zigzag: b/2 for all
# ```
#
# So with many ranks it is nearly twice as fast. Which rank gets which of these pairs does not matter, and no other way
# to deal out two pieces each is even.
#
# The memory does not depend on which tokens a rank has. The best ring of the last puzzle keeps a rank's own keys until
# the end of backward, 1,048,576 elements, and waits for no gradient: 90.216. `ring_back` does its own block first and
# need not keep them: 7,077,888. Send the gradients of the two pieces one after the other, and while the second travels
# layer 0 is busy with the first: 90.216 with 7,077,888.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **How much.** The 54 % and 90 % above are of FlashAttention on an even eighth of the work with nothing to send,
#   forward and backward [@ring_flash_attention]. The text is cut once, when it is loaded, so it costs nothing later.
# - **In PyTorch** it is the default: `context_parallel` rearranges causal text in this way unless you turn it off.
#   After its own block, a rank takes either all its queries and the early half of the keys, or the late half of its
#   queries and all keys: always half a block, and never one with a mask in it
#   [@pytorch_context_parallel, head-tail load balance].
# - **Without a ring.** Llama 3 deals out its text in the same 2*n* pieces, and gathers keys and values [@llama3].
# - **In stripes.** Give rank *i* tokens *i*, *n* + *i*, 2*n* + *i* and so on, and the work is almost even too. But now
#   every block of every step has a mask along its whole diagonal. It reached 83 % [@ring_flash_attention].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# A pair of a query and a key costs the same wherever it is, and one behind the mask costs nothing. A kernel works on
# tiles of 64 or 128 tokens, and a tile that the mask cuts through costs as much as a full one. And every text here
# fills all 4,096 tokens. Where short texts are packed into one long row, each token attends only to its own text, and
# they need another way to deal.

# %% [markdown]
# ## Questions to think about
#
# **1.** Do all ranks send the same amount? Do any keys travel for nothing?
#
# <details><summary>Answer</summary>
#
# All ranks send the same amount, and as much as without zigzag. All other ranks need the early half of a rank's keys.
# The late half is piece 2*n* - 1 - *i*, and only ranks before *i* have later tokens. So a quarter of what a rank
# receives it does not read; in the plain ring it was half. Most of that has to pass through all the same: the keys go
# upwards, and those who read a late half are the last on its way.
#
# </details>
#
# **2.** Cut the text into 16 pieces, and deal them out in fours: 0 7 11 12, 1 2 13 14, 5 6 9 10 and 3 4 8 15. The
# numbers of each four add up to 30, so the work is even. Is the ring as fast as zigzag?
#
# <details><summary>Answer</summary>
#
# No: `draw_attention(ring_of((0, 7, 11, 12), (1, 2, 13, 14), (5, 6, 9, 10), (3, 4, 8, 15)))`. Each rank has the same
# total, but not in each step. After the first step the longest block takes 10 and the shortest 6: 38.008 together
# instead of 32.008. For a ring an even total is not enough; every step has to be even. With zigzag it is.
#
# </details>
#
# **3.** For the last goal the gradients of two pieces come home one after the other. Try the other order: why does one
# of the two take 0.8 longer?
#
# <details><summary>Answer</summary>
#
# In each step, some ranks hold the keys of a rank before them. There the late keys are later than all of their own
# tokens, so the early keys are the whole block. Others hold keys of a rank after them, and each half is half of the
# work. A shift begins once all ranks have called it. Early first: the first shift waits for the ranks for which the
# early half is everything. Late first: it sets out in the middle of the block.
#
# </details>
#
# **4.** Without the causal mask, what would you do?
#
# <details><summary>Answer</summary>
#
# Nothing: all blocks are the same size, and contiguous pieces are fine. The same holds for a sliding window of a fixed
# size: each token has the same number of keys, and with contiguous pieces most of them are close by.
#
# </details>
#
# ## Where this leads
#
# Zigzag is fair because it counts pairs. There is a fair way without counting: give every rank all the tokens, but only
# some of the heads.

# %% [markdown]
# <!-- part: links -->
