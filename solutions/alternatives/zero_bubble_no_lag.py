"""Split the backward, and do each weight half right behind its input half.

Three quarters of what there is to win, and no more memory than 1F1B holds: the gradient of the input leaves each rank
before the weight half begins.
"""

from lib import schedule


@schedule(messages="posted")
def zero_bubble(rank, ranks, batches):
    ahead = min(batches, ranks - rank)
    order = [f"F{b}" for b in range(ahead)]
    for b in range(batches):
        order += [f"I{b}", f"W{b}"]
        if b + ahead < batches:
            order.append(f"F{b + ahead}")
    return order
