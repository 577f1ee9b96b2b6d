"""One group for everything.

It is never too short, and no time is lost between groups. But all microbatches take their first stage before any takes the
second, so memory grows with each of them.
"""

from lib import schedule


@schedule(messages="posted")
def ragged(rank, ranks, batches):
    stages = (rank, rank + ranks)
    forwards = [f"{stage}F{b}" for stage in stages for b in range(batches)]
    backwards = [f"{stage}B{b}" for stage in reversed(stages) for b in range(batches)]
    warm_up = batches + 2 * (ranks - 1 - rank)
    order = forwards[:warm_up]
    for turn, backward in enumerate(backwards):
        order += forwards[warm_up + turn : warm_up + turn + 1]
        order.append(backward)
    return order
