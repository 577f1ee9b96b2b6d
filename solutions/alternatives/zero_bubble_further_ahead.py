"""ZB-H2: one more forward ahead for each rank that follows, and twice the lag.

What was left of the bubble, before the first gradient is back, is filled with forwards. It ends at 56.2, and seven
microbatches are in flight on every rank.
"""

from lib import schedule


@schedule(messages="posted")
def zero_bubble(rank, ranks, batches):
    ahead = min(batches, 2 * (ranks - rank) - 1)
    lag = 2 * rank
    order = [f"F{b}" for b in range(ahead)]
    for b in range(batches):
        order.append(f"I{b}")
        if b >= lag:
            order.append(f"W{b - lag}")
        if b + ahead < batches:
            order.append(f"F{b + ahead}")
    order += [f"W{b}" for b in range(max(0, batches - lag), batches)]
    return order
