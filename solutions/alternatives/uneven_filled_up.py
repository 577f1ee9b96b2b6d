"""Guess how heavy the heaviest stage is, fill the stages up to that from the first to the last, and guess less next time.

It finds the best partition of any model in a few rounds, and works at every size. Of several that are equally good it takes
the one with the longest stages in front, which is the quickest in 1F1B and needs the most memory.
"""

from lib import stages
from lib.schedules.pipelines.generators import one_f_one_b


@stages(one_f_one_b)
def uneven(layers: list[float], ranks: list[float]) -> list[int]:
    def filled(limit: float) -> list[int]:
        """How many layers each stage has, if none may weigh more than the limit, nor take what others need one of."""
        counts, used = [], 0
        for stage in range(len(ranks)):
            left = len(layers) - used - (len(ranks) - stage - 1)
            count = 1
            while count < left and sum(layers[used : used + count + 1]) <= limit:
                count += 1
            counts.append(count)
            used += count
        return counts

    sums = {sum(layers[i:j]) for i in range(len(layers)) for j in range(i + 1, len(layers) + 1)}
    possible = [limit for limit in sums if limit >= max(layers) and sum(filled(limit)) == len(layers)]
    return filled(min(possible))
