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
# In December 2024 a user asked torchtitan for shards inside each of two nodes, and copies between them. The log said
# `Applied HSDP to the model`. The loss went down. Only the profiler looked odd: instead of two kinds of groups it
# showed **one, with all 16 ranks** [@torchtitan_711] [@torchtitan_713]. Every weight was cut into 16 shards, and every
# gather went over the network.
#
# A program that crashes is fixed the same day. These three did not crash. They trained, for weeks, in libraries that
# many people use, until a user looked at a number and did not believe it. Now it is your turn. Here is the code as
# it was, in our own words. Find the line.
#
# > **To tell a friend:** with the worst training bugs the loss still goes down. You find them with a number that you
# > worked out by hand.
#
# *Reminder.* With **HSDP** weights are cut into shards along one axis of the mesh and copied along another. With
# **gradient accumulation** the gradients of several batches are added up before the weights are updated; `backward`
# *adds* to `.grad`, and does not reset it in between.

# %%
from drawing import draw_curves, picture_of
from lib import (
    LINKS,
    Mesh,
    NotSolved,
    PuzzleError,
    Trace,
    check,
    check_function,
    goal,
    simulate,
)
from lib.cluster.layouts import Neighbours
from lib.schedules.data_parallel import fully_sharded

# %% [markdown]
# ## The idea
#
# Three bugs. For each: the code, what people saw, and a picture of what it does. Before you read on each time,
# ask yourself which number would reveal it. The code is small enough to run in your head, on the smallest numbers you
# can think of.
#
# ### 1. A mesh with a `cp` axis
#
# The axes are those of puzzle $number_parallel_dims. Ranks along `cp` share a text: each has other words of it, and
# so another gradient. The function returns the axes along which weights are sharded, and those along which there are
# copies. Two copies were asked for, `dp_replicate` 2, and the log confirms them. (The mesh of that user had no `cp`, and was
# fixed the same day. This is its twin, which stayed longer.)


# %%
def axes_of(sizes):
    """The axes along which weights are sharded, and those along which there are
    copies."""
    if sizes["cp"] > 1:
        return ["dp_replicate", "dp_shard", "cp"], []
    return ["dp_shard"], ["dp_replicate"]


def log(sizes):
    return f"Applied {'HSDP' if sizes['dp_replicate'] > 1 else 'FSDP'} to the model"


def groups(sizes, rank, axes):
    """The two groups of a rank that follow from it."""
    mesh, found = Mesh(sizes), axes(sizes)
    match found:
        case [list() | tuple() as shards, list() | tuple() | None as copies]:
            return {
                "shards": sorted(mesh.group(rank, *shards)),
                "copies": sorted(mesh.group(rank, *copies)) if copies else [rank],
            }
    lists = 'return two lists of axes, such as ["dp_shard"], ["dp_replicate"]'
    raise TypeError(f"{axes.__name__} gives {found!r}: {lists}")


sizes = {"dp_replicate": 2, "dp_shard": 2, "cp": 2}
print(log(sizes))
mesh = Mesh(sizes, host_size=4)
title = "As it was: with whom rank 0 shares a weight"
shown = Neighbours(mesh, 0, groups(sizes, 0, axes_of), title=title)
picture_of(shown)

# %% [markdown]
# Our check accepts it: it is a correct step. But look at the time on two hosts of four, beside a mesh of eight ranks
# without `cp`:


# %%
def run(sizes, shards, copies):
    """A step of six layers on eight batches, on hosts of four ranks."""
    mesh = Mesh(sizes, host_size=4)
    step = fully_sharded(shards, copies or None)
    return simulate(step, layers=6, batches=8, mesh=mesh, costs=LINKS)


def trained(sizes, shards, copies):
    """What the check says of it."""
    try:
        found = check(Trace.of(run(sizes, shards, copies)))
    except PuzzleError as error:
        return str(error).splitlines()[0].partition(": ")[2]
    figures = f"time {found.time:g}, memory {found.memory:,.0f} elements"
    return f"correct: {found.correct}; {figures}"


for sizes in (
    {"dp_replicate": 2, "dp_shard": 4, "cp": 1},
    {"dp_replicate": 2, "dp_shard": 2, "cp": 2},
):
    print(f"cp {sizes['cp']}: {trained(sizes, *axes_of(sizes))}")

# %% [markdown]
# ### 2. A loss for the log
#
# A microbatch is a list of numbers here. Its loss is their mean, and so is its gradient: that is all the model we need.
# `backward` adds the gradient to `weight.grad`.


# %%
class Weight:
    """A weight, for which gradients are added up."""

    def __init__(self):
        self.grad = 0


class Loss:
    """A loss. Divide it, and you divide its gradient."""

    def __init__(self, weight, value):
        self.weight, self.value = weight, value

    def __truediv__(self, number):
        return Loss(self.weight, self.value / number)

    def backward(self):
        self.weight.grad += self.value


def mean_loss(weight, batch):
    return Loss(weight, sum(batch) / len(batch))


# %% [markdown]
# A trainer calls this once for each of `calls` microbatches, adds up the losses that it gets back, for the log, and
# then updates the weights. It wants the mean over all microbatches.


# %%
def training_step(weight, batch, calls):
    loss = mean_loss(weight, batch)
    loss.backward()
    return loss / calls


weight, microbatches = Weight(), [[2, 4], [6, 8]]
losses = [training_step(weight, batch, len(microbatches)) for batch in microbatches]
logged, grad = sum(loss.value for loss in losses), weight.grad
print(
    f"the mean of 2, 4, 6, 8 is 5;   in the log: {logged:g};   in weight.grad: {grad:g}"
)

# %% [markdown]
# ### 3. The gradient that never grew
#
# A pipeline cuts its batch into microbatches itself, and leaves the mean of their gradients in `weight.grad`. A trainer
# calls it several times before an update, to accumulate: after the first call there should be one mean in
# `weight.grad`, after the second the sum of two, and so on.


# %%
def pipeline_step(weight, microbatches):
    for batch in microbatches:
        mean_loss(weight, batch).backward()
    weight.grad /= len(microbatches)


def after_each_call(calls, step):
    """What is in weight.grad after each call."""
    weight, found = Weight(), []
    for microbatches in calls:
        step(weight, microbatches)
        found.append(weight.grad)
    return found


def curve(numbers):
    return list(enumerate([0, *numbers]))


calls = [[[1], [1], [1], [1]]] * 5  # four microbatches each, all with a gradient of 1
print(after_each_call(calls, pipeline_step))
should = curve(range(1, 6))
draw_curves(
    {
        "as it was": curve(after_each_call(calls, pipeline_step)),
        "as it should be": should,
    },
    across="calls",
    up="weight.grad",
    title="Gradients of 1, accumulated",
    lowest=False,
)

# %% [markdown]
# ## The puzzle
#
# Write `find_the_bug(bug, given)`.
#
# **Given:** `bug`, which of the three is run, and on what. For 1 that is the sizes of the mesh and a rank; for 2 a
# list of microbatches; for 3 a list of calls, each a list of microbatches. The last lines run your functions on it and
# are there already.
#
# **To do:** copy the three functions `axes_of`, `training_step` and `pipeline_step` into the gap, and fix them there.
#
# **Rules**
#
# - The three keep their names, their arguments, and the kind of their results.
# - 1: as many copies of a weight as `dp_replicate` says, with and without `cp`; each is sharded along all other axes.
# - 2: the sum of the losses *and* the gradient are the mean over all microbatches.
# - 3: one mean more with every call.

# %% [markdown]
# ### Predict first
#
# In bug 3, with gradients of 1 and four microbatches: after three calls `weight.grad` is 1.3125.
# What will it be after a hundred calls?
#
# <details><summary>Answer</summary>
#
# 4/3, and it does not move any more. Each call adds 4 and divides everything by 4: from g to (g + 4)/4. That stands
# still where g = g/4 + 1, at g = 4/3. It is an average that forgets: a quarter of the previous call is left, a
# sixteenth of the one before. However much you accumulate, you train on the last batch and a little.
#
# </details>

# %% [markdown]
# ### The goal
#
# | bug | given | as it was | as it should be |
# |---|---|---|---|
# | 1 | dp_replicate 2, dp_shard 2, cp 2; rank 0 | shards 0 to 7, no copies | ? |
# | 2 | the microbatches `[2, 4]` and `[6, 8]` | logged 5, gradient 10 | ? |
# | 3 | three calls of four microbatches, each `[1]` | 1, 1.25, 1.3125 | ? |
#
# Work the last column out by hand first: it is the number that would have shown the bug on the first day.
#
# <details><summary>The last column</summary>
#
# 1: shards on ranks 0, 1, 2 and 3, a copy on rank 4. 2: logged 5, gradient 5. 3: 1, 2, 3.
#
# </details>
#
# Your function is tried on these and others: all small meshes, and microbatches of all sizes and numbers. After a
# wrong answer you see the smallest input that it fails on.

# %%
goal("find_the_bug")

# %% [markdown]
# <!-- part: hints -->


# %%
def find_the_bug(bug, given):
    # Copy the three functions into the gap, and fix them.
    # --- your code (about 12 lines) ---
    def axes_of(sizes):
        if sizes["cp"] > 1:
            return ["dp_shard", "cp"], ["dp_replicate"]
        return ["dp_shard"], ["dp_replicate"]

    def training_step(weight, batch, calls):
        loss = mean_loss(weight, batch) / calls
        loss.backward()
        return loss

    def pipeline_step(weight, microbatches):
        for batch in microbatches:
            loss = mean_loss(weight, batch) / len(microbatches)
            loss.backward()

    # --- end of your code ---
    if bug == 1:
        return groups(given[0], given[1], axes_of)
    if bug == 3:
        return after_each_call(given, pipeline_step)
    weight = Weight()
    losses = [training_step(weight, batch, len(given)) for batch in given]
    for loss in losses:
        if not isinstance(loss, Loss):
            raise TypeError(
                f"training_step gives {loss!r}: return the loss, for the log"
            )
    return {"logged": sum(loss.value for loss in losses), "grad": weight.grad}


# %% [markdown]
# How many have you fixed? You can run this before all three are:


# %%
def fixed(bug, given, right):
    """Whether a bug is fixed now."""
    found = find_the_bug(bug, given)
    return f"bug {bug}: {'fixed' if found == right else f'gives {found}'}"


try:
    sizes = {"dp_replicate": 2, "dp_shard": 2, "cp": 2}
    print(fixed(1, [sizes, 0], {"shards": [0, 1, 2, 3], "copies": [0, 4]}))
    print(fixed(2, [[2, 4], [6, 8]], {"logged": 5, "grad": 5}))
    print(fixed(3, [[[1], [1], [1], [1]]] * 3, [1, 2, 3]))
except (NotSolved, TypeError) as error:
    print(error)

# %%
verdict = None
verdict = check_function(find_the_bug, puzzle="find_the_bug")
verdict

# %% [markdown]
# Passed? Then `reveal("find_the_bug")`, in a cell of its own, shows the official solution. (`from lib import reveal`
# first.)

# %% [markdown]
# ### See what it is for
#
# The first bug once more, on two hosts of four ranks: as it was; as it should be; and with a fix that looks good
# and forgets `cp`. That one the simulator rejects.

# %%
if verdict:
    sizes = {"dp_replicate": 2, "dp_shard": 2, "cp": 2}
    along = [axis for axis in sizes if axis != "dp_replicate"]
    print("as it was: ", trained(sizes, *axes_of(sizes)))
    print("fixed:     ", trained(sizes, along, ["dp_replicate"]))
    print("without cp:", trained(sizes, ["dp_shard"], ["dp_replicate"]))

# %% [markdown]
# As it was: three times as long, and *less* memory. If you only look at whether it fits, you are even pleased.
#
# **With real tensors (optional).** Both also run on torch.distributed, with eight processes on this machine, and give
# the same gradients to the last digits. So a test that compares gradients finds nothing. The memory differs, and what
# is sent. It takes a few seconds. Set `REPLAY = True`.

# %%
REPLAY = False
if REPLAY and verdict:
    from lib.replay import replay

    for name, axes in (
        ("as it was", axes_of(sizes)),
        ("fixed", (along, ["dp_replicate"])),
    ):
        print(
            f"--- {name}",
            replay(run(sizes, *axes), hidden=32, length=8).text(),
            sep="\n",
        )

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# Three fixes, none longer than a line:
#
# - **1.** The log line read the configuration, and the model read the mesh. With `cp`, three axes of the mesh had been
#   flattened into one, and the copies became shards. That came with context parallelism, on October 22, 2024, and stayed
#   until December 11. Since then torchtitan has a name for the right pair, `dp_shard_cp`, and shards along that, whether
#   there is a `cp` or not [@torchtitan_720] [@torchtitan_685].
# - **2.** Two lines in the other order. Another library used to divide. When that stopped, only the loss for the log
#   was still divided [@transformers_35207] [@transformers_26312].
# - **3.** Scale what comes in, not what is there. torchtitan told the pipeline not to divide any more, and gave it a
#   loss that is divided already [@torchtitan_1733] [@torchtitan_1732].
#
# What the three have in common: what people look at (the log line, the loss, a single call) was right.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *1. Who found it.* A user with a profiler, `walkup`: one communicator with 16 ranks, where there should have been
#   two kinds [@torchtitan_711] [@torchtitan_713]. In 2026 another trainer had the mirror image: with `cp` and *without*
#   copies it gave PyTorch two axes, which PyTorch takes for HSDP, so that weights were cut along `cp` only
#   [@automodel_2768].
# - *2. Who found it.* Users of transformers 4.47. In the thread a user trains on the same 6 examples in one go and in
#   two, and gets gradient norms of 188 and 377 [@transformers_35207] [@transformers_26312]. Adam hides most of that,
#   since it divides by the size of the gradients; clipping does not.
# - *3. Who found it.* `jdinalt`, who had made the same mistake in his own trainer a week or two earlier, and then
#   looked how torchtitan did it [@torchtitan_1733] [@torchtitan_1732].
# - *And again.* In July 2026: every stage of a DeepSpeed pipeline divided what the stage behind it had divided already.
#   Two stages, 8 microbatches: 1/8 for the last stage, and 1/64 for the first [@deepspeed_8152].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# The code is ours, and shorter than the original: between the two lines of bug 2 there were two libraries, and in
# the thread the logged loss is off as well, for another reason. A mean of means is the mean only if all microbatches
# have equally many tokens, which is a story of its own. And in the simulation ranks along `cp` work on batches of
# their own, not on parts of one text: for the weights that is the same.

# %% [markdown]
# ## Questions to think about
#
# **1.** For each bug: which single number, worked out by hand before the first run, would have shown it?
#
# <details><summary>Answer</summary>
#
# 1: the elements of one weight on one rank, W / 4 instead of W / 8; or the number of process groups. 2: the gradient
# norm with one accumulated microbatch and with two of the same: they have to be equal. 3: the same with one call and
# with two, which has to double. All three are tests of a few lines, and none of them needs to know where the mistake
# is.
#
# </details>
#
# **2.** Adam divides each gradient by the root of its mean square. A gradient that is always twice too large makes the
# same update. Is bug 2 harmless with Adam, then?
#
# <details><summary>Answer</summary>
#
# Nearly, as long as nothing else looks at the gradient. Clipping to a norm of 1 does: what used to be clipped once in
# a while is clipped in every step. The small number in Adam's denominator does, and so do you, if you read the norm
# in the log and lower the learning rate. And with SGD the learning rate is simply multiplied by the number of
# microbatches.
#
# </details>
#
# **3.** Why is bug 3 invisible with one call, or with one microbatch?
#
# <details><summary>Answer</summary>
#
# With one call there is nothing in `weight.grad` yet, so dividing everything is dividing what is new. With one
# microbatch it divides by 1. The tests of the pipeline had the first, the tests of accumulation the second. Features
# are tested alone; these bugs live where two of them meet.
#
# </details>
#
# **4.** In bug 1 the log said HSDP. How would you write that line?
#
# <details><summary>Answer</summary>
#
# From what was built, not from what was asked for: ask the sharded model over how many ranks its first weight is
# sharded, and say "each weight in 4 shards on ranks 0 1 2 3, 2 copies". A line that is computed from the
# configuration can only ever repeat the configuration.
#
# </details>
#
# ## Where this leads
#
# On a real cluster, too: before you trust a run, find one number that you can compute by hand, for one weight, on one
# rank. Then look. The last chapter is made of such numbers: it plans whole runs, before a single GPU is booked,
# beginning with the question of whether they fit.

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from itertools import product
from random import Random

from lib.errors.wording import counted, listed


def find_the_bug_inputs():
    for sizes in product((1, 2, 3), (1, 2, 3), (1, 2, 4)):
        named = dict(zip(("dp_replicate", "dp_shard", "cp"), sizes, strict=True))
        ranks = sizes[0] * sizes[1] * sizes[2]
        yield from ((1, [named, rank]) for rank in {0, ranks // 2, ranks - 1})
    random = Random(0)

    def batches(count, each):
        return [[random.randint(-9, 9) for _ in range(each)] for _ in range(count)]

    for count in range(1, 5):
        for each in (1, 2, 3):
            yield 2, batches(count, each)
            yield from (
                (3, [batches(count, each) for _ in range(calls)]) for calls in (1, 2, 3)
            )
    for _ in range(60):
        yield 2, batches(random.randint(1, 8), random.randint(1, 5))
        yield 3, [batches(random.randint(1, 4), 2) for _ in range(random.randint(1, 5))]


def close(mine, right):
    return isinstance(mine, int | float) and abs(mine - right) < 1e-9


def find_the_bug_accepts(answer, bug, given):
    """False, or what is wrong: there is one right answer."""
    expected = find_the_bug(bug, given)
    if bug == 3:
        if not isinstance(answer, list) or len(answer) != len(expected):
            return False
        call = next(
            (
                call
                for call, right in enumerate(expected)
                if not close(answer[call], right)
            ),
            None,
        )
        if call is None:
            return True
        count = len(given[call])
        of = f"its {counted(count, 'microbatch')}"
        if close(answer[call], count * expected[call]):
            return (
                f"bug 3, call {call + 1}: that is the sum over {of}, and not the mean"
            )
        if call and close(
            answer[call],
            (expected[call - 1] + sum(sum(b) / len(b) for b in given[call])) / count,
        ):
            return f"bug 3, call {call + 1}: what was there from the calls before was divided by {count} again"
        return f"bug 3, call {call + 1} adds the mean of {of} to {expected[call - 1] if call else 0:g}"
    if not isinstance(answer, dict) or set(answer) != set(expected):
        return False
    if bug == 2:
        calls = len(given)
        mean = f"the mean of the {counted(calls, 'microbatch')} is {expected['grad']:g}"
        again = 0
        for batch in given:
            again = (again + sum(batch) / len(batch)) / calls
        for key, name in (
            ("logged", "the losses in the log add up to"),
            ("grad", "the gradient is"),
        ):
            if not close(answer[key], expected[key]):
                more = (
                    f", {calls} times too much"
                    if close(answer[key], calls * expected[key])
                    else ": each call divided what was there before, too, as in bug 3"
                    if key == "grad" and close(answer[key], again)
                    else ": did backward run?"
                    if key == "grad" and answer[key] == 0
                    else ""
                )
                said = (
                    f"{answer[key]:g}"
                    if isinstance(answer[key], int | float)
                    else repr(answer[key])
                )
                return f"bug 2: {mean}, and {name} {said}{more}"
        return True
    sizes, rank = given
    for key, right in expected.items():
        mine = answer[key]
        if not isinstance(mine, list):
            return False
        if mine != list(right):
            if key == "shards" and len(mine) > len(right):
                others = listed([one for one in mine if one not in right])
                return (
                    f"bug 1: of the {sizes['dp_replicate']} copies of a weight that of rank {rank} is cut among "
                    f"{listed(right)}; {others} {'belongs' if len(mine) == len(right) + 1 else 'belong'} to another"
                )
            if key == "shards":
                return (
                    f"bug 1: gradients differ along cp, too, so a weight is cut along dp_shard and cp: for rank {rank} "
                    f"among {listed(right)}"
                )
            return f"bug 1: the copies of what rank {rank} has are on {listed(right)}, along dp_replicate"
    return True


def find_the_bug_picture(answer, expected, bug, given):
    if bug == 1:
        sizes, rank = given
        mine = expected if answer is None else answer
        mesh, wrong = Mesh(sizes), set()
        for name in ("shards", "copies"):
            wrong |= set(mine[name]) ^ set(expected[name])
        title = f"Bug 1: the two groups of rank {rank}"
        return Neighbours(
            mesh,
            rank,
            mine,
            sorted(wrong),
            title if answer is None else f"{title}, as you have them",
        )
    if bug == 2:
        numbers, across = {}, "microbatches"
        of_log = answer is not None and close(answer["grad"], expected["grad"])
        for name, found in (("yours", answer), ("as it should be", expected)):
            if found is not None:
                end = found["logged" if of_log else "grad"]
                numbers[name] = [(0, 0), (len(given), end)]
        if of_log:
            title = "Bug 2: the sum of the losses in the log"
            return draw_curves(numbers, across, "loss in the log", title, lowest=False)
    else:
        across = "calls"
        numbers = {} if answer is None else {"yours": curve(answer)}
        numbers["as it should be"] = curve(expected)
    return draw_curves(
        numbers,
        across,
        "weight.grad",
        f"Bug {bug}: what is in weight.grad",
        lowest=False,
    )
