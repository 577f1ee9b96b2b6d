"""One forward ahead for each rank that follows, as in 1F1B.

It is enough where messages take no time, and saves three open stages on rank 0. Where they take some, each gradient comes
too late for the turn in which it is wanted.
"""

from lib import schedule


@schedule(messages="posted")
def interleaved(rank, ranks, batches):
    stages = (rank, rank + ranks)
    groups = [range(start, start + ranks) for start in range(0, batches, ranks)]
    forwards = [f"{stage}F{b}" for group in groups for stage in stages for b in group]
    backwards = [f"{stage}B{b}" for group in groups for stage in reversed(stages) for b in group]
    warm_up = ranks + ranks - 1 - rank
    order = forwards[:warm_up]
    for turn, backward in enumerate(backwards):
        order += forwards[warm_up + turn : warm_up + turn + 1]
        order.append(backward)
    return order
