"""Put the slow rank in front, and leave everybody as many layers as before.

No layer has to move to another stage, only stages to other ranks: that can be done by starting the ranks in another order. The
first stage can be late without keeping the others waiting for as long.
"""

from lib import stages
from lib.schedules.pipelines.generators import one_f_one_b


@stages(one_f_one_b)
def straggler(layers: list[float], ranks: list[float]) -> list[tuple[int, int]]:
    slowest_first = sorted(range(len(ranks)), key=lambda rank: -ranks[rank])
    return [(rank, len(layers) // len(ranks)) for rank in slowest_first]
