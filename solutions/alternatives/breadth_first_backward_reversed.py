"""Take the backwards from the last microbatch to the first, as PyTorch's ScheduleLoopedBFS does.

All microbatches are alike, and all are open when the first one goes back, so time and memory are the same.
"""

from lib import schedule


@schedule(messages="posted")
def breadth_first(rank, ranks, batches):
    first, second = rank, rank + ranks
    forwards = [f"{stage}F{b}" for stage in (first, second) for b in range(batches)]
    backwards = [f"{stage}B{b}" for stage in (second, first) for b in reversed(range(batches))]
    return forwards + backwards
