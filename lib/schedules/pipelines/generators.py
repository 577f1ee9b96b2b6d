"""Pipelines as orders: one loop with seven famous names.

Rank r of R has the stages r, r + R, r + 2R and so on. It does some forwards ahead, then forwards and backwards in turn,
then the backwards that are left. How many ahead, how many microbatches take one stage before the rank turns to its
next, and how far the weight halves lag behind are sliders; the famous schedules are places of them.
"""

from __future__ import annotations

from itertools import accumulate, islice, pairwise

from lib.errors.wording import counted
from lib.schedules.pipelines.action import Action, Order


def in_turn(
    ranks: int,
    batches: int,
    *,
    chunks: int = 1,
    group: int | None = None,
    ahead: int | None = 1,
    late: int | None = None,
    limit: float | None = None,
) -> Order:
    """Make the order of the one loop, for all ranks.

    `chunks` stages a rank, of which it takes `group` microbatches or a few more through one before it turns to the next
    (None: as many as there are ranks; with fewer some ranks may wait for one another in a circle). Before its first
    backward a rank is to have all but the last of its stages behind it for a group, and `ahead` microbatches more for
    every rank that comes after it; None: everything. With `late` the backward is split, and the weight halves of rank r
    are `late * r` passes behind the input halves.

    `limit` is how many microbatches of activations a rank may have, of all its stages: then it lags less, and does
    less ahead. ValueError where that is not enough.
    """
    for name, size in (("ranks", ranks), ("batches", batches), ("chunks", chunks)):
        if size < 1:
            raise ValueError(f"a pipeline has at least one of each; got {name}={size}")
    rounds = _rounds(batches, ranks if group is None else group)
    need = (chunks - 1) * len(rounds[0]) + 1
    if limit is not None and limit * chunks < need:
        raise ValueError(
            f"limit={limit:g} microbatches of activations are too few: with {counted(chunks, 'stage')} a rank and "
            f"{counted(len(rounds[0]), 'microbatch')} at a time a rank needs {need / chunks:g}"
        )
    everything = batches * chunks
    found: list[tuple[Action, ...]] = []
    for rank in range(ranks):
        more = everything if ahead is None else ahead * (ranks - 1 - rank)
        lag = (late or 0) * rank
        if limit is not None and more + lag > (room := int(limit * chunks) - need):
            more = -(-more * room // (more + lag))  # each as much less as the other
            lag = room - more
        stages = range(rank, chunks * ranks, ranks)
        forwards = (Action(stage, "F", m) for some in rounds for stage in stages for m in some)
        backward = "B" if late is None else "I"
        backwards = [Action(stage, backward, m) for some in rounds for stage in reversed(stages) for m in some]
        actions = [*islice(forwards, min(need - 1 + more, everything))]
        halves = (action._replace(kind="W") for action in backwards)
        for number, action in enumerate(backwards):
            actions += *islice(forwards, 1), action
            if late is not None and number >= lag:
                actions.append(next(halves))
        found.append((*actions, *(halves if late is not None else ())))
    return tuple(found)


def _rounds(batches: int, group: int) -> list[range]:
    """Return the microbatches that take a stage one after the other before a rank turns to its next, the longest first.

    What is left over is shared out. A short group at the end would be short of work for the ranks in between: some
    would wait for others in a circle (5 ranks, 2 stages each, 7 microbatches).
    """
    if group < 1:
        raise ValueError(f"group is how many microbatches take one stage in a row, so at least 1; got {group}")
    count = max(1, batches // group)
    ends = [0, *accumulate((batches + count - 1 - turn) // count for turn in range(count))]
    return [range(*pair) for pair in pairwise(ends)]


def gpipe(ranks: int, batches: int) -> Order:
    """Do all forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965)."""
    return in_turn(ranks, batches, group=batches, ahead=None)


def breadth_first(ranks: int, batches: int, chunks: int = 2) -> Order:
    """Take all microbatches through a stage before a rank turns to its next, all forwards before the backwards
    (Lamy-Poirier 2022, arXiv 2211.05953): what a stage needs, such as gathered weights, it needs once a direction."""
    return in_turn(ranks, batches, chunks=chunks, group=batches, ahead=None)


def one_f_one_b(ranks: int, batches: int, *, limit: float | None = None) -> Order:
    """Do as many forwards as there are stages from here to the end, then one backward and one forward in turn: a
    rank has no more microbatches open than that (Narayanan et al. 2021, arXiv 2104.04473, section 2.2)."""
    return in_turn(ranks, batches, limit=limit)


def interleaved(ranks: int, batches: int, chunks: int = 2, *, limit: float | None = None) -> Order:
    """Do 1F1B with several stages a rank: the pipeline fills and drains in smaller steps (Narayanan et al. 2021, arXiv
    2104.04473, section 2.2). Two forwards ahead for every rank that follows, so that a message has time to travel."""
    return in_turn(ranks, batches, chunks=chunks, ahead=2, limit=limit)


def interleaved_zero_bubble(ranks: int, batches: int, chunks: int = 2, *, limit: float | None = None) -> Order:
    """Interleave with the backward in halves: what the later ranks have not done ahead they let lie as weight halves,
    until there is nothing else to do."""
    return in_turn(ranks, batches, chunks=chunks, late=1, limit=limit)


def zb_h1(ranks: int, batches: int, *, limit: float | None = None) -> Order:
    """Do 1F1B with the backward in halves: no more memory than its first rank has (Qi et al. 2023, arXiv
    2401.10241)."""
    return in_turn(ranks, batches, late=1, limit=limit)


def zb_h2(ranks: int, batches: int, *, limit: float | None = None) -> Order:
    """Do twice as much ahead, so that no gap is left where the halves take equally long (Qi et al. 2023, arXiv
    2401.10241), for almost twice the memory."""
    return in_turn(ranks, batches, ahead=2, late=2, limit=limit)
