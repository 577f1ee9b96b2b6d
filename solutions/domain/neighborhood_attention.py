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
# A weather grid of 721 rows and 1,440 columns has a million points. Let each point attend to all others, and you have a
# trillion pairs, in every head of every layer. **Neighbourhood attention** gives each point a window instead, such as
# the 7 × 7 points around it [@hassani2023]. That leaves 51 million pairs, 21,000 times fewer. It also helps when the
# grid is split among GPUs: what a point attends to is on its own GPU, or next door.
#
# Mostly. At the very edge of the grid a window would stick out, so it *moves* inwards. A point there needs rows further
# away than a point in the middle does, and a rank with few rows may have windows that reach past its neighbour. If only
# that rank notices, it stops, and all others wait for it forever.
#
# > **To tell a friend:** if something can fail on one rank, let all ranks decide, from what all of them know.
#
# *The words, once more.* In a **halo exchange**, `model.halo(edges, layer)`, each rank hands in the rows at its edges,
# first those for the rank before it, then those for the rank after it, and receives theirs. The first and the last rank
# have one neighbour. In attention a **query** is compared with **keys**, and the result is the mean of the **values**,
# weighted by the outcome.

# %%
from functools import partial

from drawing import draw, draw_collective, draw_curves, draw_group
from lib import Layer, Links, Model, PuzzleError, Trace, goal, predict, retime, simulate
from lib.analysis.figures import end, most_sent
from lib.schedules.given import (
    accumulate,
    by_chunk,
    exchange,
    given,
    joined,
    summed,
    update,
)
from lib.suite.course.solutions import run_of

# A message takes 0.1, and 1.0 for each 131,072 elements.
PRICES = Links(p2p=1.0, latency=0.1, forward=25.6, backward=25.6, update=51.2)
GRID, WINDOW = {"rows": 64, "columns": 64}, {"heads": 1, "kv_heads": 1, "kernel": 7}
LAYERS = [
    # Layer 0: 8 numbers of each point give its query, 32 numbers.
    Layer(inputs=8, outputs=32, **GRID),
    # Layer 1: and its key and value, 32 numbers each.
    Layer(inputs=8, outputs=64, **GRID, of=(0,)),
    # Layer 2: activation 1 asks activation 2.
    Layer("neighborhood_attention", inputs=32, outputs=32, **GRID, **WINDOW, of=(1, 2)),
]

# %% [markdown]
# ## The idea
#
# ### Whose rows?
#
# Every rank has all columns, so only rows matter. Where the window of a row begins and ends:


# %%
def window(row):
    """The rows that a query attends to: the first one, and that after the last."""
    first = min(max(row - 3, 0), 64 - 7)
    return first, first + 7


# %% [markdown]
# 14 rows on four ranks, a line for each row of queries. `#` is a row of keys on the same rank, `o` one on a neighbour.


# %%
def show(sizes):
    """A line for each row of queries, of a small grid: whose rows of keys are in its
    window?"""
    owners = [rank for rank, size in enumerate(sizes) for _ in range(size)]
    for row, mine in enumerate(owners):
        first = min(max(row - 3, 0), len(owners) - 7)
        window = range(first, first + 7)
        marks = ["#", "o", "X", "X"]
        keys = "".join(
            marks[abs(other - mine)] if key in window else "."
            for key, other in enumerate(owners)
        )
        print(f"rank {mine}, row {row:>2}  {keys}")


show([4, 3, 3, 4])

# %% [markdown]
# Row 0 looks at rows 0 to 6, as row 3 does: the windows of the first rows all stay at the edge. In the middle a window
# reaches 3 rows up and 3 rows down, half of the 7 without the row itself.
#
# So a rank fetches 3 rows of keys and values from each side. And of the queries?
#
# ### Fetch it, and give it back
#
# Which rows a rank has, which of them its neighbours need, and which it needs of theirs:


# %%
def my_rows(model, sizes):
    """Where this rank's rows begin and end; the blocks of them that neighbours need, as
    (first row, row after the last); the blocks of theirs that it needs; and the group
    of the ranks that have rows."""
    low = sum(sizes[: model.rank])
    high = low + sizes[model.rank]
    beside = []
    if 3 <= low < high:
        beside.append(((low, low + 3), (low - 3, low)))
    if low < high <= 61:
        beside.append(((high - 3, high), (high, high + 3)))
    group = [rank for rank, size in enumerate(sizes) if size]
    edges, halo = [mine for mine, _ in beside], [other for _, other in beside]
    return low, high, edges, halo, group


# %% [markdown]
# One grid on four ranks with 16 rows each, and what travels. (The code of this run is folded: a part of it is yours to
# write.)


# %% jupyter={"source_hidden": true}
async def there_and_back(model):
    low, high, edges, _, group = my_rows(model, by_chunk(64, model.RANKS))
    x = model.get_activation([0]).cut("rows", low, high)
    queries, own = (
        model.forward(layer, x, model.load_weights(layer)[0]) for layer in (0, 1)
    )
    keys = own
    for rows in await exchange(model, own, edges, 2, group):
        keys = keys.combine(rows)
    result = model.forward(2, queries, keys)
    gradient, _ = model.backward(2, queries, model.loss(result), keys)
    if model.rank == 1:
        shown.update({"queries": queries, "own keys and values": own})
        shown.update({"with the halo": keys, "result": result})
        for first, after in ((13, 16), (16, 19), (19, 29), (29, 32), (32, 35)):
            rows = gradient.cut("rows", first, after)
            gradients[f"rows {first} to {after - 1}"] = rows


shown, gradients = {}, {}
demo = simulate(there_and_back, layers=LAYERS, ranks=4, batches=1, costs=PRICES)
draw_collective(demo, "halo")

# %% [markdown]
# Each arrow brings three rows of keys and values to a neighbour. This is rank 1, with rows 16 to 31. Its keys and values
# have 22 rows with the halo, and that is enough for its 16 rows of queries:

# %%
draw_group(shown)

# %% [markdown]
# Backward gives two gradients. The one of the queries is complete: no other rank has used them. The one of keys and
# values covers all rows that were *used*:

# %%
draw_group(gradients)

# %% [markdown]
# Pale, marked "of a sum", means partial; before it stands which rows of queries have contributed so far. Which rows of
# this gradient does rank 1 keep, which does it send, and what does it wait for?
#
# <details><summary>Answer</summary>
#
# It keeps rows 16 to 31, its own, and sends 13 to 15 and 32 to 34 home to their owners. Of its rows 16 to 18 and 29 to
# 31 it has only a part, and waits for the neighbours' part, to add it. Rows 19 to 28 no other rank has used.
#
# </details>
#
# ### Too few rows
#
# Some parts are too small for a halo of 3 rows. Here the first rank has 3 rows:

# %%
show([3, 4, 4, 4])

# %% [markdown]
# Its windows contain `oooo`, 4 rows of the neighbour, and a halo has 3. Here rank 2 has a single row, and `X` is a row
# of keys on a rank further away:

# %%
show([6, 4, 1, 4])

# %% [markdown]
# With its halo rank 2 has what it needs. But it cannot *give* three rows, and both of its neighbours look past it. So
# how few rows may a rank have, in the middle and at an end?
#
# Refuse such parts: fewer ranks would be about as fast. But *which ranks* refuse? Suppose that each looks only at its
# own rows before the exchange. Rank 2 has one here:


# %%
async def each_for_itself(model, sizes):
    low, high, edges, _, group = my_rows(model, sizes)
    x = model.get_activation([0]).cut("rows", low, high)
    keys = model.forward(1, x, model.load_weights(1)[0])
    if high - low < 3:
        print(f"rank {model.rank}: I have too few rows, so I stop here.\n")
        return  # an error of its own would end the same way
    await exchange(model, keys, edges, 2, group)


try:
    step = partial(each_for_itself, sizes=[30, 18, 1, 15])
    simulate(step, layers=LAYERS, ranks=4, batches=1)
except PuzzleError as error:
    print(error)

# %% [markdown]
# The simulator sees that no rank can continue. A cluster does not: rank 2 stops with an error in its own log file,
# three GPUs wait for a timeout, and the error that *they* report is an exchange that took too long.
#
# ## The puzzle
#
# | ranks | grids | points of a grid | layer 0, queries | layer 1, keys and values | layer 2, attention | a halo of keys and values | of half of that | sum of a weight's gradient | update |
# |---|---|---|---|---|---|---|---|---|---|
# | 4 | 4 | 64 × 64, so 16 rows each | 0.4 | 0.8 | 4.9 | 0.95 | 0.575 | 0.603 and 0.606 | 0.05 and 0.1 |
#
# The times of layers are those of all 4 grids forward on a rank; backward takes the same again. Attention of fewer
# query rows takes less, however many keys it is given.
#
# **Given:** the weights of layers 0 and 1, whole on every rank; this rank's rows of grid b, in `activations[0, b]`; and
# these helpers:
#
# | helper | what it gives |
# |---|---|
# | `my_rows(model, sizes)` | `low, high, edges, halo, group`: your rows are `low` to `high - 1`; neighbours need your blocks `edges`, you need theirs, `halo` |
# | `exchange(model, value, rows, layer, group)` | a halo exchange, to be awaited: it cuts these blocks out of a value, one for each neighbour, and gives a list of theirs |
# | `joined([value, ...])` | these values as one: your rows, and those that have come |
# | `summed(low, high, gradient, edges, arrived)` | the gradient of your rows: the halo is cut off, and what has arrived is added at the edges |
# | `update(model, layer)` | updates a weight, and uses up its gradient |
# | `take_back(model, layer, b)` | backward of a layer for grid b. Layer 2, with the loss: uses up activations 1, 2 and 3, and gives the gradients of 1 and 2. Layers 0 and 1: uses up `grad_activations[layer + 1, b]`, and adds the gradient of the weight to `grad_weights[layer]` |


# %% jupyter={"source_hidden": true}
@given  # a message about what it does shows the line that calls it
def take_back(model, layer, b):
    """Backward of a layer for a grid. Nothing needs the gradient of the data."""
    activations, gradients = model.activations, model.grad_activations
    if layer == 2:
        gradients[3, b] = model.loss(activations.pop((3, b)))
        queries, keys = activations.pop((1, b)), activations.pop((2, b))
        gradient = gradients.pop((3, b))
        gradients[2, b], gradients[1, b] = model.backward(2, queries, gradient, keys)
    else:
        x, gradient = activations[0, b], gradients.pop((layer + 1, b))
        of_weight, _ = model.backward(layer, x, gradient, model.weights[layer])
        accumulate(model, layer, of_weight)


# %% [markdown]
# **To do:** one training step, and a refusal.
#
# - Both linear layers take activation 0. `model.forward(2, queries, keys)` is the attention of activation 1 to
#   activation 2, which holds keys and values.
# - Where a window needs more than three rows of a neighbour, or a rank has fewer than three to lend, **every** rank
#   raises a `ValueError` before it sends anything. `sizes` has the number of rows of each rank; ranks without rows do
#   not count, and a single rank needs no neighbour. The check tries parts of both kinds.
#
# What waits for what, for one grid. Each `!` is an exchange:
#
# ```
# forward
#   layer 1, keys and values ── ! ──┐
#                                   ├── layer 2, attention ── loss
#   layer 0, queries ───────────────┘
#
# backward
#                                   ┌── ! ── layer 1, keys and values
#   loss ── layer 2, attention ─────┤
#                                   └─────── layer 0, queries
# ```
#
# Begin with a loop over the grids that does all of this for one grid after the other, and awaits what it calls. Then pull
# the loop apart. While one grid waits at a `!`, the rank can compute something else: of the same grid, or of others.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts. Park a value in a variable while something else runs, and
#   only the first goal counts. You may keep pending operations in a dict of your own.
# - The same function has to be right on any number of ranks and with any `sizes`, unless it has to refuse them. By
#   `chunk` 12 ranks get 6 rows each, then 4, then none. A rank without rows makes the same calls as all others; they
#   take no time.

# %% [markdown]
# ### Predict first
#
# Take all grids at once, with keys and values in one exchange, and await everything where you call it. How many
# collectives does a rank call, and when is the step over?

# %%
guess = predict("neighborhood_attention", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step with halo exchanges. The second is what you have just predicted. For the third,
# compute something while keys and values are in flight, and while their gradients are. For the fourth, no rank waits for
# a neighbour at all.

# %%
goal("neighborhood_attention")

# %% [markdown]
# <!-- part: hints -->


# %%
async def neighborhood_attention(model: Model, sizes: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 1):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    sizes = sizes or by_chunk(64, model.RANKS)
    low, high, edges, halo, group = my_rows(model, sizes)
    for b in range(model.BATCHES):
        activations[0, b] = model.get_activation([b]).cut("rows", low, high)

    # Refuse parts that are too small. Then forward, loss and backward of this rank's
    # rows; update layers 0 and 1.
    # --- your code (about 27 lines) ---
    parts = [size for size in sizes if size]
    if len(parts) > 1 and (min(parts) < 3 or parts[0] < 4 or parts[-1] < 4):
        raise ValueError(f"some windows reach past the neighbours of a rank: {sizes}")

    grids, coming, sums = range(model.BATCHES), {}, {}
    for b in grids:  # keys and values first, because neighbours wait for them
        activations[2, b] = model.forward(1, activations[0, b], weights[1])
        coming[b] = exchange(model, activations[2, b], edges, 2, group)
    for b in grids:
        activations[1, b] = model.forward(0, activations[0, b], weights[0])
    for b in grids:
        activations[2, b] = joined([activations[2, b], *await coming.pop(b)])
        activations[3, b] = model.forward(2, activations[1, b], activations[2, b])

    for b in grids:
        take_back(model, 2, b)
        coming[b] = exchange(model, grad_activations[2, b], halo, 2, group)
    for b in grids:
        take_back(model, 0, b)
    sums[0] = model.allreduce(grad_weights.pop(0), 0)
    for b in grids:
        grad_activations[2, b] = summed(
            low, high, grad_activations[2, b], edges, await coming.pop(b)
        )
        take_back(model, 1, b)
    sums[1] = model.allreduce(grad_weights.pop(1), 1)
    for layer in (0, 1):
        grad_weights[layer] = await sums.pop(layer)
        update(model, layer)
    # --- end of your code ---

    for layer in (0, 1):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(neighborhood_attention, puzzle="neighborhood_attention")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Queries, keys and values, and attention take 0.4 + 0.8 + 4.9 = 6.1, forward and backward: 12.2. An exchange of keys
# and values is two messages, and on both sides 3 rows of 64 points with 64 numbers, of 4 grids: 2 · 0.1 + 98,304 /
# 131,072 = 0.95, forward and backward 1.9. The sums of the two gradients are six messages each, and hardly any
# elements: 0.603 + 0.606. With the updates, 0.15, that is 12.2 + 1.9 + 1.209 + 0.15 = **15.459**, with 2 halo exchanges
# and 2 all-reduces: 4 collectives. An exchange each for queries, keys and values takes 0.575, six times: 17.009.
#
# While keys and values travel, layer 0 can compute the queries, and its backward fits while their gradients go home.
# That hides 0.4 twice, forward and backward: 15.459 - 0.8 = 14.659.
#
# Grid by grid an exchange takes 0.2 + 0.1875 = 0.3875, and there is always another grid to compute. In backward the last
# exchange begins when attention is over, and layer 0 of all grids, 0.4, is just enough to hide it. The sum for layer 0
# travels while layer 1 goes backward. What remains is the last sum and update: 12.2 + 0.606 + 0.1 = 12.906.
#
# And the loop that does one grid after the other, each exchange awaited, ends at 12.2 + 8 · 0.3875 + 1.209 + 0.15 =
# 16.659.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="neighborhood_attention")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What a machine pays
#
# How slow may the link be? Here is that run on slower links, next to the time it would take with every exchange and
# every sum awaited.

# %%
run, _ = run_of("neighborhood_attention")  # yours, once it is correct
SLOW = (1, 2, 3, 4, 5, 6, 8)


def slower(slow):
    return Links(
        p2p=1.0 * slow, latency=0.1 * slow, forward=25.6, backward=25.6, update=51.2
    )


draw_curves(
    {
        "this run": [(slow, end(retime(run, slower(slow)))) for slow in SLOW],
        "everything awaited": [
            (slow, 12.35 + slow * (2 * 0.95 + 1.2088)) for slow in SLOW
        ],
    },
    across="how much slower the link is (1: a halo exchange takes 0.95)",
    title="When the step is over, by the speed of the link",
)

# %% [markdown]
# Our solution takes the grids one by one, and just hides their exchanges here: 0.3875 behind 0.4. On a slower link the
# last one is exposed, and then more and more: with four times as many messages it ends up no better than one exchange for
# all grids that everybody waits for. Question 3 has a way that hides the halo until the link is about three and a half
# times slower.
#
# ## Other ways to fetch it
#
# Three ways to get the keys and values of 4 grids. The second treats queries, keys and values alike, with an exchange
# for each:


# %%
async def fetch(model, way):
    low, high, edges, _, group = my_rows(model, by_chunk(64, model.RANKS))
    x = model.get_activation(range(model.BATCHES)).cut("rows", low, high)
    weights = [model.load_weights(layer)[0] for layer in (0, 1)]
    queries, keys = (model.forward(layer, x, weights[layer]) for layer in (0, 1))
    start[way] = model.time
    if way == "all-gather":
        await model.allgather(keys, 2)
    elif way == "one by one":
        for part in (queries, *(keys.shard(half, 2, "features") for half in (0, 1))):
            await exchange(model, part, edges, 2, group)
    else:
        await exchange(model, keys, edges, 2, group)


start = {}
print("way          time   elements sent")
for way in ("all-gather", "one by one", "together"):
    step = partial(fetch, way=way)
    run = Trace.of(simulate(step, layers=LAYERS, ranks=4, batches=4, costs=PRICES))
    print(f"{way:<11}{end(run) - start[way]:>6.3f}{int(most_sent(run)):>16,}")

# %% [markdown]
# Each exchange is two messages, and a message costs 0.1 before its first element. One exchange of keys and values
# together takes a third of the messages of three exchanges, and two thirds of the elements.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Neighbourhood attention on a shared grid.** With an odd kernel of *k* rows, h = (k - 1)/2, a row of keys and values
# of all grids taking *p* on the link, and α a message:
#
# ```
# rows of a halo              h on each side, of keys and values; none of queries
# halo exchange               2·(α + h·p)      k and v together; one by one 4·α + 2·h·p, and with q 6·α + 3·h·p
# a neighbour is enough       if each rank has h rows at least, and the first and the last h + 1
# rows without a halo         2·h fewer than a rank has, at an end h fewer
# ```
#
# The third line in words: a rank gives h rows to each neighbour, so it must have them. The very first window reaches to
# row k - 1 = 2·h, and the first rank has its own rows and h more. The other end mirrors this.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *NATTEN* is the library of its inventors [@hassani2023], with the kernels: windows in one, two and three dimensions,
#   with stride, dilation and causal masks, for training and inference [@pypi_natten].
# - *PhysicsNeMo* cuts the grid. Its neighbourhood attention pads queries, keys **and** values, each in an exchange of
#   its own, an all-to-all; then it calls NATTEN on the padded part, and cuts the halo off the result
#   [@physicsnemo_natten_patches]. Why queries too? Then all three have the same shape, and the windows of the rank's
#   own rows come out right by themselves. In the table of costs above it is the line "one by one".
# - **And backward.** What was cut off has a gradient of zeros [@physicsnemo_halo]. So the queries of a halo have a
#   gradient too, and it is sent home.
# - **What it refuses.** Even kernels, and a dilation [@physicsnemo_natten_patches]. A reviewer asked whether these were
#   limits of NATTEN; they were the author's, who had begun with the case in production [@physicsnemo_784]. This code
#   does not check the sizes of all parts. A rank cuts its edge rows out of its part before the exchange
#   [@physicsnemo_halo], so we expect one with too few rows to stop there, and the others to wait. We have read this
#   code, not run it.
# - *On a sphere* the windows are disks. torch-harmonics has a neighbourhood attention for grids cut along both
#   dimensions: a halo along the latitudes, and a ring for keys and values along the longitudes. Queries and the state
#   of the softmax stay where they are [@nvidia_torch_harmonics].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# One head, and no layer after attention. With more heads nothing changes: all of them are cut by rows. Backward takes
# as long as forward, and on a GPU about twice as long. Attention of a few rows takes its share of the time, and on a
# GPU a thin block is less efficient. All grids are processed at once. And every rank has all columns: cut them too, and
# you exchange rows first, then columns *with* the halo that has arrived, so that the corners come along.

# %% [markdown]
# ## Questions to think about
#
# **1.** Why must a window at the edge of the grid not simply shrink, as a convolution's does with zeros around it?
#
# <details><summary>Answer</summary>
#
# It could; some kinds of attention do that. Then h rows would be enough for every rank, the first and the last too. But
# a corner point would have 16 keys where others have 49, and the kernels could not work on blocks of one shape. Zeros
# around the grid would be wrong: a key of zeros has a score of 0, which is not *no* weight. Moving the window keeps the
# number of keys, at the price of one more row for the two ranks at the ends.
#
# </details>
#
# **2.** `4 3 3 4` works. How many ranks can share 721 rows with a kernel of 7, at most? And by `chunk`?
#
# <details><summary>Answer</summary>
#
# The two at the ends need 4 rows, and the others 3: 2 + (721 - 8) // 3 = **239** ranks. By `chunk` all parts except the
# last are equal, so they have at least 4 rows. That would be 181 ranks, but the last of them has 1 row: too few. With 5
# rows it is 145 ranks, the last with 1 again, and with 6 rows 121, the last with 1. With 7 rows it is **103**, all of
# them full, as 721 = 7 · 103. `tensor_split` is better here: **180** ranks, with 4 or 5 rows each.
#
# </details>
#
# **3.** In inference there is often a single grid, and no other one to compute meanwhile. What hides its halo?
#
# <details><summary>Answer</summary>
#
# Most of its own rows. For 10 of 16 rows the whole window is at home. Start the exchange, compute these, and the other 6
# when the halo is there; in backward those 6 first, whose gradients others wait for. It is as fast for four grids, too,
# with a quarter of the messages: `reveal("neighborhood_attention", "inner_rows_first")`, when you have passed. The price
# is three blocks of rows, whose gradients of keys overlap and have to be added.
#
# </details>
#
# **4.** Two attention layers follow each other. Could one exchange serve both?
#
# <details><summary>Answer</summary>
#
# Yes: fetch 6 rows of the *input* on each side. Then compute the first attention for 3 more rows on each side than you
# own. That is one exchange of 8 numbers a point instead of two of 64. The price is 6 extra rows of attention on a rank
# with 16, forward and backward, which here is more than both exchanges. Where messages are slow and parts are thick it
# pays.
#
# </details>
#
# **5.** Every rank knows the sizes of all parts. How, if rows are dealt out by hand?
#
# <details><summary>Answer</summary>
#
# By a rule that all ranks share, or by an all-gather of one number from each rank, once, when the parts are made. The
# same holds for any check: if only one rank can see that something is wrong, such as a file that it cannot read, then
# sum a flag over all ranks before the next collective. A sum of a single number is cheap compared with a night of
# waiting.
#
# </details>
#
# ## Where this leads
#
# Windows, kernels, neighbours: all of it is local. Some layers are not. A Fourier transform looks at a whole line of
# the grid: each rank can transform its own rows alone, but no rank has a whole column. Does every rank need everything
# then?

# %% [markdown]
# <!-- part: links -->
