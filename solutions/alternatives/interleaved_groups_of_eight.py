"""Take groups of twice as many microbatches as there are ranks, as Llama 3 may.

A group now fills the way round, so it ends with breadth-first, at 60.4; and rank 0 has more stages in flight. Where
the microbatches do not make such groups, it takes those of before.
"""

from lib import schedule


@schedule(messages="posted")
def interleaved(rank, ranks, batches):
    stages = (rank, rank + ranks)
    size = 2 * ranks if batches % (2 * ranks) == 0 else ranks
    groups = [range(start, start + size) for start in range(0, batches, size)]
    forwards = [f"{stage}F{b}" for group in groups for stage in stages for b in group]
    backwards = [f"{stage}B{b}" for group in groups for stage in reversed(stages) for b in group]
    warm_up = size + 2 * (ranks - 1 - rank)
    order = forwards[:warm_up]
    for turn, backward in enumerate(backwards):
        order += forwards[warm_up + turn : warm_up + turn + 1]
        order.append(backward)
    return order
