"""The best orders of small pipelines: at the memory of a known schedule, how much earlier another order ends.

`tools.solver` found them (see `orders` there for what is in its model), and stored them in best_orders.json.
A pass over all stages of a rank takes 1, forward, input half or weight half, and messages take no time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

__all__ = ["BestOrder", "best_orders", "from_record", "to_record"]


@dataclass(frozen=True, slots=True)
class BestOrder:
    """The best order that is known with the stages of a schedule, its backward split or not, and its memory.

    `schedule` is the name of the schedule, which ends at `known`. `orders`, the words of each rank, end at `end`. No
    order ends before `bound` whose ranks have at most `peak` microbatches of activations.
    """

    schedule: str
    ranks: int
    batches: int
    peak: float
    known: float
    end: float
    bound: float
    proof: str
    orders: tuple[str, ...]

    @property
    def optimal(self) -> bool:
        """Whether the end is proved to be the least."""
        return self.end == self.bound


@cache
def best_orders() -> tuple[BestOrder, ...]:
    """All that are stored. The file is read when first asked for."""
    import json
    from importlib.resources import files

    records = json.loads((files("lib.analysis.bounds") / "best_orders.json").read_text("utf-8"))["orders"]
    return tuple(map(from_record, records))


def from_record(record: dict[str, Any]) -> BestOrder:
    """One from its form in best_orders.json."""
    fields: dict[str, Any] = {**record, "orders": tuple(record["orders"])}
    return BestOrder(**fields)


def to_record(order: BestOrder) -> dict[str, Any]:
    """Its form in best_orders.json."""
    return {**asdict(order), "orders": list(order.orders)}
