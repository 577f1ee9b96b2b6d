"""The schedules that have a name, as a table, of which a new one is a row; and those in the shape of a V.

In a V a microbatch passes all ranks, turns round on the last one, and comes back: rank r of R has the stages r, on the
way down, and 2R - 1 - r, on the way up. So the first rank has the loss: what it holds for long on the way down it holds
shortly on the way up, and all ranks can hold equally many activations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, Final, Literal, NamedTuple

from lib.errors.wording import counted
from lib.record import table
from lib.schedules.pipelines.action import PAIR, Action, Order
from lib.schedules.pipelines.generators import (
    breadth_first,
    gpipe,
    interleaved,
    interleaved_zero_bubble,
    one_f_one_b,
    zb_h1,
    zb_h2,
)
from lib.schedules.pipelines.timing import peaks, time_order


def zb_v(ranks: int, batches: int) -> Order:
    """Hold no more than the first rank of 1F1B, on all ranks, and leave no gap in the middle where the forward and both
    halves of the backward take equally long (Qi et al. 2023, arXiv 2401.10241, section 6)."""
    full = max(batches, 2 * ranks - 1)  # with fewer some of these are left out
    return _counted(
        batches,
        [
            (
                (2 * (ranks - rank) - 1, "F0"),
                (rank, "F1 F0"),
                (ranks - rank, "F1 I1 W1"),
                (full - ranks, "F0 I0 W0 F1 I1 W1"),
                (rank, "I0 I1"),
                (ranks - rank, "I0 W0"),
                (rank, "W1"),
                (rank, "W0"),
            )
            for rank in range(ranks)
        ],
    )


def dualpipe_v(ranks: int, batches: int) -> Order:
    """Run a forward of one way and a backward of the other as one in the middle, so that the messages of the one hide
    behind the computing of the other (DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1, folded into a V)."""
    full = max(batches, 2 * ranks)
    phases: list[Sequence[tuple[int, str]]] = []
    for rank in range(ranks):
        after, middle = ranks - rank - 1, full - 2 * ranks + rank + 1
        apart = rank == ranks - 1  # nothing is gained by a pair here: its forward is all that its backward waits for
        backwards = [f"{'B' if turn <= rank else 'I'}{1 - turn % 2}" for turn in range(2 * rank + 2)]
        phases.append(
            (
                (2 * after, "F0"),
                (rank + 1, "F0 F1"),
                (after, "I1 W F1"),
                (1, "F0 B1 F1+B0" if apart else "F0+B1 F1+B0"),
                (middle - 1, "F0+B1 F1+B0"),
                (after, "B1 F1+B0"),
                (1, " ".join(backwards)),
                (after, "W I0"),
                (rank + 1, "W"),
            )
        )
    return _counted(batches, phases)


def _counted(batches: int, phases: Sequence[Sequence[tuple[int, str]]]) -> Order:
    """Return what ranks do whose programs say only what is done, and how often: each word takes the next microbatch of
    its kind.

    F0 is a forward on the way down and F1 on the way up; so are B, I and W. A W alone is of the oldest input half that
    has none yet. Microbatches that there are not are left out.
    """
    order: list[tuple[Action, ...]] = []
    for rank, own in enumerate(phases):
        stages = rank, 2 * len(phases) - 1 - rank
        count: Counter[str] = Counter()
        halves: list[Action] = []
        """The weight halves that are to be done."""
        actions: list[Action] = []
        for word in (word for times, turn in own for _ in range(times) for word in turn.split()):
            parts: list[Action] = []
            for kind, way in ((one[0], one[1:]) for one in word.split("+")):
                if kind == "W":
                    found = next(action for action in halves if not way or action.stage == stages[int(way)])
                    halves.remove(found)
                else:
                    line = f"{'F' if kind == 'F' else 'B'}{way}"
                    found = Action(stages[int(way)], kind, count[line])
                    count[line] += 1
                    halves += [found._replace(kind="W")] if kind == "I" else []
                parts += [found] if found.microbatch < batches else []
            if len(parts) == 2:
                parts = [Action(parts[0].stage, PAIR, parts[0].microbatch, tuple(parts))]
            actions += parts
        order.append(tuple(actions))
    return tuple(order)


# -- blocks that are repeated -----------------------------------------------------------------------------------------

Row = dict[int, Action]
"""What a rank does, by slot."""


def v_half(ranks: int, batches: int) -> Order:
    """Hold about half of the activations that 1F1B has (Qi et al. 2024, arXiv 2405.15362): a microbatch is at the next
    rank after two slots on the way that begins at rank 0, forward or backward, and after one on the way back."""
    gap = 3 if ranks % 2 == 0 else 0  # so that no two passes of a rank have the same slot
    turn, back = 3 * ranks - 2, 3 * ranks + gap - 1
    block = [(2 * r, turn - r, back + 2 * r, back + 3 * ranks - 1 - r) for r in range(ranks)]
    return _repeated(block, batches)


def v_min(ranks: int, batches: int) -> Order:
    """Hold about a third of the activations that 1F1B has (Qi et al. 2024, arXiv 2405.15362): a microbatch is at the
    next rank after one slot on all its ways, so that what it made is free as soon as can be."""
    gap = 2 if ranks % 3 == 0 else 0
    back = 2 * ranks + gap
    block = [(r, 2 * ranks - 1 - r, back + r, back + 2 * ranks - 1 - r) for r in range(ranks)]
    return _repeated(block, batches)


def _repeated(block: Sequence[tuple[int, ...]], batches: int) -> Order:
    """Return a block for every microbatch, six slots after the one before: two forwards, two input halves, two weight
    halves, which go into what is free. A block says for each rank the slots of its forwards down and up, and of its
    input halves up and down. At both ends, where blocks are missing, all is squeezed together, as far as that takes no
    more memory.

    First the beginning, until the first rank has the first gradient of its first stage, with the weight halves where
    they are. Then, as soon as it has begun its last microbatch, the end, with weight halves again in what is free.
    """
    rows: list[Row] = []
    for rank, firsts in enumerate(block):
        down, up = rank, 2 * len(block) - 1 - rank
        passes = zip(firsts, ((down, "F"), (up, "F"), (up, "I"), (down, "I")), strict=True)
        rows.append({first + 6 * m: Action(*one, m) for first, one in passes for m in range(batches)})
        rows[rank] |= _weight_halves(rows[rank])
    limit = max(_most(row, max(row), fill=False) for row in rows)
    begun = _slots(rows)[Action(0, "I", 0)]
    _squeeze(rows, lambda slot, rank: slot < begun, lambda row: _most(row, begun - 1, fill=False) <= limit)
    times = zip(_order(rows), time_order(_order(rows)).starts, strict=True)
    rows = [{int(start): one for one, start in zip(*both, strict=True) if one.kind != "W"} for both in times]
    begun, last = (_slots(rows)[one] for one in (Action(0, "I", 0), Action(0, "F", batches - 1)))
    after = max((begun, len(rows)), (last, 0))
    _squeeze(rows, lambda slot, rank: (slot, rank) > after, lambda row: _most(row, max(row), fill=True) <= limit)
    return _order([row | _weight_halves(row) for row in rows])


def _slots(rows: Sequence[Row]) -> dict[Action, int]:
    return {action: slot for row in rows for slot, action in row.items()}


def _order(rows: Sequence[Row]) -> Order:
    return tuple(tuple(row[slot] for slot in sorted(row)) for row in rows)


def _squeeze(rows: Sequence[Row], chosen: Callable[[int, int], bool], fits: Callable[[Row], bool]) -> None:
    """Put what is chosen, by slot and rank, into the first slot that is free, after what it needs, and fits."""
    at, behind = _slots(rows), [-1] * len(rows)  # where the weight half before is, on each rank
    for slot, rank in sorted((slot, rank) for rank, row in enumerate(rows) for slot in row if chosen(slot, rank)):
        row, action = rows[rank], rows[rank][slot]
        stage, kind, microbatch, _ = action
        if kind == "W":
            needs = [behind[rank], at[Action(stage, "I", microbatch)]]
        else:  # the microbatch before, and the pass of the stage before; at the turn to the backward its own forward
            before = Action(stage - 1, "F", microbatch) if kind == "F" else Action(stage + 1, "I", microbatch)
            turned = Action(stage, "F", microbatch) if kind == "I" else before
            needs = [at.get(one, -1) for one in (Action(stage, kind, microbatch - 1), before, turned)]
        for earlier in (one for one in range(max(needs) + 1, slot) if one not in row):
            row[earlier] = row.pop(slot)
            if fits(row):
                at[action] = earlier
                break
            row[slot] = row.pop(earlier)
        if kind == "W":
            behind[rank] = at[action]


def _weight_halves(row: Row) -> Row:
    """Return the weight halves, in slots that are free after the input halves."""
    found: Row = {}
    slot = -1
    for half in sorted(slot for slot, action in row.items() if action.kind == "I"):
        slot = max(half, slot) + 1
        while slot in row:
            slot += 1
        found[slot] = row[half]._replace(kind="W")
    return found


def _most(row: Row, last: int, *, fill: bool) -> int:
    """Return the most activations of a rank up to a slot. `fill`: a weight half is done in each free slot, if there is
    one to do."""
    held = most = halves = 0
    for slot in range(last + 1):
        kind = row[slot].kind if slot in row else ""
        if kind == "F":
            held += 1
            most = max(most, held)
        elif kind == "I":
            halves += 1
        elif kind == "W" or (fill and halves):
            halves -= 1
            held -= 1
    return most


# -- the table --------------------------------------------------------------------------------------------------------

Shape = Literal["loop", "vee"]
"""Where the second stage of a rank comes: after those of all ranks, or the ranks are passed once more on the way back,
so that rank r of R has the stages r and 2R - 1 - r."""
LARGEST: Final = 100_000
"""Ranks times stages of a rank times microbatches, at most, of an order that has a name: it has no values, and takes
three seconds there."""


class Named(NamedTuple):
    """A schedule that has a name. `order(ranks, batches)` asks its `generator` for its order.

    `chunks`: how many stages a rank has, if nothing is said. `halves`: it splits the backward. `paper`: where it is
    from. `torch`: its name in torch.distributed.pipelining.
    """

    generator: Callable[..., Order]
    title: str
    paper: str
    chunks: int = 1
    halves: bool = False
    torch: str | None = None
    shape: Shape = "loop"

    @property
    def name(self) -> str:
        """Return what commands call it."""
        return self.generator.__name__

    @property
    def takes(self) -> set[str]:
        """Return what else its generator can be told: chunks, limit (microbatches of activations a rank may have)."""
        return {"chunks", "limit"} & signature(self.generator).parameters.keys()

    def order(self, ranks: int, batches: int, *, chunks: int | None = None, limit: float | None = None) -> Order:
        """Return its order with so many stages a rank, for ranks that may hold so many microbatches of activations.
        ValueError where it has no such order."""
        asked = {"chunks": chunks, "limit": limit}
        told = {name: asked[name] for name in self.takes if asked[name] is not None}
        stages: Any = told.get("chunks", self.chunks)
        if ranks * stages * batches > LARGEST:
            sizes = f"{counted(ranks, 'rank', ',')}, {counted(batches, 'microbatch', ',')}"
            why = f"{sizes} and {counted(stages, 'stage', ',')} a rank are too many: their product is at most "
            raise ValueError(f"{why}{LARGEST:,}, and here {ranks * stages * batches:,}")
        found = self.generator(ranks, batches, **told)
        if chunks not in (None, stages):
            raise ValueError(f"{self.title} has {counted(stages, 'stage')} a rank; got chunks={chunks}")
        if limit is not None and (most := max(peaks(found))) > limit:
            why = f"limit={limit:g} microbatches of activations are too few: {self.title} needs {most:g} for {ranks} "
            raise ValueError(f"{why}ranks and {counted(batches, 'microbatch')}")
        return found


HUANG: Final = "Huang et al. 2019, arXiv 1811.06965"
NARAYANAN: Final = "Narayanan et al. 2021, arXiv 2104.04473"
LAMY_POIRIER: Final = "Lamy-Poirier 2022, arXiv 2211.05953"
QI_2023: Final = "Qi et al. 2023, arXiv 2401.10241"
DEEPSEEK: Final = "DeepSeek-AI 2024, arXiv 2412.19437"
QI_2024: Final = "Qi et al. 2024, arXiv 2405.15362"

SCHEDULES: Final = table(
    (
        Named(gpipe, "GPipe", HUANG, torch="ScheduleGPipe"),
        Named(one_f_one_b, "1F1B", NARAYANAN, torch="Schedule1F1B"),
        Named(breadth_first, "Breadth-first", LAMY_POIRIER, 2, torch="ScheduleLoopedBFS"),
        Named(interleaved, "Interleaved 1F1B", NARAYANAN, 2, torch="ScheduleInterleaved1F1B"),
        Named(interleaved_zero_bubble, "Interleaved zero bubble", QI_2023, 2, True, "ScheduleInterleavedZeroBubble"),
        Named(zb_h1, "ZB-H1", QI_2023, halves=True),
        Named(zb_h2, "ZB-H2", QI_2023, halves=True),
        Named(zb_v, "ZB-V", QI_2023, 2, True, shape="vee", torch="ScheduleZBVZeroBubble"),
        Named(v_half, "V-half", QI_2024, 2, True, shape="vee"),
        Named(v_min, "V-min", QI_2024, 2, True, shape="vee"),
        Named(dualpipe_v, "DualPipe-V", DEEPSEEK, 2, True, shape="vee", torch="ScheduleDualPipeV"),
    )
)
"""The schedules in the order in which they were found."""
