"""Gather both stages at the beginning, and keep them to the end.

It sends least, two all-gathers for each rank, and takes as long as our reference. But a layer more is whole all the time.
"""

from lib import schedule


@schedule(messages="posted")
def breadth_first_fsdp(rank, ranks, batches):
    first, second = rank, rank + ranks
    order = [f"{first}UNSHARD", f"{second}UNSHARD"]
    order += [f"{stage}F{b}" for stage in (first, second) for b in range(batches)]
    for stage in (second, first):
        order += [f"{stage}B{b}" for b in range(batches)]
        order += [f"{stage}RESHARD", f"{stage}REDUCE_GRAD"]
    return order
