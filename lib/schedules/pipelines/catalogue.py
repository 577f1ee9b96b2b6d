"""The schedules that have a name, as a table: whoever walks all of them, walks this. A new one is a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from lib.errors.wording import counted
from lib.schedules.pipelines import generators, v_shapes
from lib.schedules.pipelines.action import Order
from lib.schedules.pipelines.generators import Passes
from lib.schedules.pipelines.timing import peaks
from lib.values.table import table

__all__ = ["SCHEDULES", "Named", "Shape"]

Shape = Literal["loop", "vee"]
"""Where the second stage of a rank comes: after those of all ranks, or the ranks are passed once more on the way back,
so that rank r of R has the stages r and 2R - 1 - r."""
LARGEST: Final = 100_000
"""Ranks times stages of a rank times microbatches, at most, of an order that has a name: it has no values, and takes
three seconds there."""


class Named(NamedTuple):
    """A schedule that has a name. `make(ranks, batches)` gives its order, and so does `order` where more is asked:
    both ask its `generator`.

    `chunks`: how many stages a rank has, if nothing is said. `halves`: it splits the backward. `takes`: what else its
    generator can be told by name: chunks, limit (microbatches of activations a rank may have), costs.
    `paper`: where it is from. `torch`: its name in torch.distributed.pipelining.
    """

    name: str
    title: str
    generator: Callable[..., Order]
    paper: str
    chunks: int = 1
    shape: Shape = "loop"
    halves: bool = False
    takes: tuple[str, ...] = ()
    torch: str | None = None

    def make(self, ranks: int, batches: int, **told: Any) -> Order:
        """Return its order with so many microbatches, and what else its generator is told. ValueError where it has
        none."""
        stages = told.get("chunks", self.chunks)
        if ranks * stages * batches > LARGEST:
            sizes = f"{counted(ranks, 'rank', ',')}, {counted(batches, 'microbatch', ',')}"
            raise ValueError(
                f"{sizes} and {counted(stages, 'stage', ',')} a rank are too many: their product is at most "
                f"{LARGEST:,}, and here {ranks * stages * batches:,}"
            )
        return self.generator(ranks, batches, **told)

    def order(
        self,
        ranks: int,
        batches: int,
        *,
        chunks: int | None = None,
        limit: float | None = None,
        costs: Passes | None = None,
    ) -> Order:
        """Return its order with so many stages a rank, for ranks that may hold so many microbatches of activations, and
        for passes that take so long, of which most generators need to know nothing. ValueError where it has no such
        order."""
        asked = {"chunks": chunks, "limit": limit, "costs": costs}
        found = self.make(ranks, batches, **{name: asked[name] for name in self.takes if asked[name] is not None})
        if chunks not in (None, self.chunks) and "chunks" not in self.takes:
            raise ValueError(f"{self.title} has {counted(self.chunks, 'stage')} a rank; got chunks={chunks}")
        if limit is not None and (most := max(peaks(found))) > limit:
            raise ValueError(
                f"limit={limit:g} microbatches of activations are too few: {self.title} needs {most:g} for {ranks} "
                f"ranks and {counted(batches, 'microbatch')}"
            )
        return found


HUANG: Final = "Huang et al. 2019, arXiv 1811.06965"
NARAYANAN: Final = "Narayanan et al. 2021, arXiv 2104.04473"
LAMY_POIRIER: Final = "Lamy-Poirier 2022, arXiv 2211.05953"
QI_2023: Final = "Qi et al. 2023, arXiv 2401.10241"
DEEPSEEK: Final = "DeepSeek-AI 2024, arXiv 2412.19437"
QI_2024: Final = "Qi et al. 2024, arXiv 2405.15362"

SCHEDULES: Final = table(
    (
        Named("gpipe", "GPipe", generators.gpipe, HUANG, torch="ScheduleGPipe"),
        Named("one_f_one_b", "1F1B", generators.one_f_one_b, NARAYANAN, takes=("limit",), torch="Schedule1F1B"),
        Named(
            "breadth_first",
            "Breadth-first",
            generators.breadth_first,
            LAMY_POIRIER,
            chunks=2,
            takes=("chunks",),
            torch="ScheduleLoopedBFS",
        ),
        Named(
            "interleaved",
            "Interleaved 1F1B",
            generators.interleaved,
            NARAYANAN,
            chunks=2,
            takes=("chunks", "limit"),
            torch="ScheduleInterleaved1F1B",
        ),
        Named(
            "interleaved_zero_bubble",
            "Interleaved zero bubble",
            generators.interleaved_zero_bubble,
            QI_2023,
            chunks=2,
            halves=True,
            takes=("chunks", "limit"),
            torch="ScheduleInterleavedZeroBubble",
        ),
        Named("zb_h1", "ZB-H1", generators.zb_h1, QI_2023, halves=True, takes=("limit",)),
        Named("zb_h2", "ZB-H2", generators.zb_h2, QI_2023, halves=True, takes=("limit",)),
        Named("zb_1p", "ZB-1p", generators.zb_1p, QI_2023, halves=True, takes=("costs", "limit")),
        Named("zb_2p", "ZB-2p", generators.zb_2p, QI_2023, halves=True, takes=("costs", "limit")),
        Named("zb_v", "ZB-V", v_shapes.zb_v, QI_2023, 2, "vee", halves=True, torch="ScheduleZBVZeroBubble"),
        Named("v_half", "V-half", v_shapes.v_half, QI_2024, 2, "vee", halves=True),
        Named("v_min", "V-min", v_shapes.v_min, QI_2024, 2, "vee", halves=True),
        Named(
            "dualpipe_v",
            "DualPipe-V",
            v_shapes.dualpipe_v,
            DEEPSEEK,
            2,
            "vee",
            halves=True,
            torch="ScheduleDualPipeV",
        ),
    )
)
"""The schedules in the order in which they were found."""
