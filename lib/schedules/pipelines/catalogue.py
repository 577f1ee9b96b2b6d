"""The schedules that have a name, as a table, of which a new one is a row; and those in the shape of a V.

In a V a microbatch passes all ranks, turns round on the last one, and comes back: rank r of R has the stages r, on the
way down, and 2R - 1 - r, on the way up. So the first rank has the loss: what it holds for long on the way down it holds
shortly on the way up, and all ranks can hold equally many activations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from lib.errors.wording import counted
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
from lib.values.table import table


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

PERIOD: Final = 6
"""A block is all that a rank does for a microbatch: two forwards, two input halves, two weight halves, a slot each."""

Lines = list[list[int]]
"""The slots of what a rank does, for every microbatch: of the forwards down and up, of the input halves up and down,
and of the weight halves, in the order of the input halves, if it is said where they are."""
LINES: Final = "FFIIW"


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
    """Return a block for every microbatch, six slots after the one before; weight halves in what is free. At both ends,
    where blocks are missing, all is squeezed together, as far as that takes no more memory.

    First the beginning, until the first rank has the first gradient of its first stage, with the weight halves where
    they are. Then, as soon as it has begun its last microbatch, the end, with weight halves again in what is free.
    """
    ranks = [[[first + PERIOD * m for m in range(batches)] for first in firsts] for firsts in block]
    for lines in ranks:
        lines.append(_weight_halves(lines))
    limit = max(_most(_row(lines), fill=False) for lines in ranks)
    begun = ranks[0][3][0]
    _squeeze(ranks, lambda slot, rank: slot < begun, lambda row: _most(row[:begun], fill=False) <= limit)
    ranks = _timed(ranks)
    begun, last = ranks[0][3][0], ranks[0][0][-1]
    _squeeze(ranks, lambda slot, rank: slot > begun and (slot, rank) > (last, 0), lambda row: _most(row) <= limit)
    return _order(ranks)


def _squeeze(ranks: list[Lines], chosen: Callable[[int, int], bool], fits: Callable[[list[str]], bool]) -> None:
    """Put what is chosen, by slot and rank, into the first slot that is free, after what it needs, and fits."""
    rows = [_row(lines) for lines in ranks]
    passes = [
        (slot, r, k, m) for r, lines in enumerate(ranks) for k, line in enumerate(lines) for m, slot in enumerate(line)
    ]
    for slot, rank, line, microbatch in sorted(passes):
        if not chosen(slot, rank):
            continue
        # It needs the microbatch before, and the same on the rank before, what turns round to it here, or its half.
        lines, row = ranks[rank], rows[rank]
        needs = [lines[line][microbatch - 1]] if microbatch else []
        if line == 4:
            needs.append(sorted(lines[2] + lines[3])[microbatch])
        else:
            before = rank - 1 if line in (0, 2) else rank + 1
            needs += [ranks[before][line][microbatch]] if 0 <= before < len(ranks) else []
            needs += [lines[line - 1][microbatch]] if line else []
        for earlier in range(max(needs, default=-1) + 1, slot):
            if row[earlier]:
                continue
            row[earlier], row[slot] = LINES[line], ""
            if fits(row):
                lines[line][microbatch] = earlier
                break
            row[earlier], row[slot] = "", LINES[line]


def _row(lines: Lines) -> list[str]:
    """Return what a rank does in each slot, or nothing."""
    row = [""] * (1 + max(map(max, lines)))
    for kind, line in zip(LINES, lines, strict=False):
        for slot in line:
            row[slot] = kind
    return row


def _weight_halves(lines: Lines) -> list[int]:
    """Return the slots that are free after the input halves, one for each."""
    found: list[int] = []
    row = _row(lines)
    for half in sorted(lines[2] + lines[3]):
        slot = max([half, *found[-1:]]) + 1
        while slot < len(row) and row[slot]:
            slot += 1
        found.append(slot)
    return found


def _most(row: list[str], *, fill: bool = True) -> int:
    """Return the most activations of a rank. `fill`: a weight half is done in each free slot, if there is one to do."""
    held = most = halves = 0
    for kind in row:
        if kind == "F":
            held += 1
            most = max(most, held)
        elif kind == "I":
            halves += 1
        elif kind == "W" or (fill and halves):
            halves -= 1
            held -= 1
    return most


def _order(ranks: list[Lines]) -> Order:
    """Return what all ranks do, by slot."""
    found: list[tuple[Action, ...]] = []
    for rank, lines in enumerate(ranks):
        down, up = rank, 2 * len(ranks) - 1 - rank
        passes = [
            (slot, Action(stage, kind, m))
            for stage, kind, line in zip((down, up, up, down), LINES, lines, strict=False)
            for m, slot in enumerate(line)
        ]
        halves = [action for _, action in sorted(passes) if action.kind == "I"]
        slots = lines[4] if len(lines) > 4 else _weight_halves(lines)
        passes += [(slot, action._replace(kind="W")) for slot, action in zip(slots, halves, strict=True)]
        found.append(tuple(action for _, action in sorted(passes)))
    return tuple(found)


def _timed(ranks: list[Lines]) -> list[Lines]:
    """Return the slots in which all but the weight halves are done, if all go on as soon as they can."""
    order = _order(ranks)
    found: list[Lines] = []
    for actions, starts in zip(order, time_order(order).starts, strict=True):
        lines: Lines = [[], [], [], []]
        for action, start in zip(actions, starts, strict=True):
            up = action.stage >= len(ranks)
            if action.kind != "W":
                lines["FI".index(action.kind) * 2 + (up == (action.kind == "F"))].append(int(start))
        found.append(lines)
    return found


# -- the table --------------------------------------------------------------------------------------------------------

Shape = Literal["loop", "vee"]
"""Where the second stage of a rank comes: after those of all ranks, or the ranks are passed once more on the way back,
so that rank r of R has the stages r and 2R - 1 - r."""
LARGEST: Final = 100_000
"""Ranks times stages of a rank times microbatches, at most, of an order that has a name: it has no values, and takes
three seconds there."""


class Named(NamedTuple):
    """A schedule that has a name. `order(ranks, batches)` asks its `generator` for its order.

    `chunks`: how many stages a rank has, if nothing is said. `halves`: it splits the backward. `takes`: what else its
    generator can be told by name: chunks, limit (microbatches of activations a rank may have).
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

    def order(self, ranks: int, batches: int, *, chunks: int | None = None, limit: float | None = None) -> Order:
        """Return its order with so many stages a rank, for ranks that may hold so many microbatches of activations.
        ValueError where it has no such order."""
        asked = {"chunks": chunks, "limit": limit}
        told = {name: asked[name] for name in self.takes if asked[name] is not None}
        stages: Any = told.get("chunks", self.chunks)
        if ranks * stages * batches > LARGEST:
            sizes = f"{counted(ranks, 'rank', ',')}, {counted(batches, 'microbatch', ',')}"
            raise ValueError(
                f"{sizes} and {counted(stages, 'stage', ',')} a rank are too many: their product is at most "
                f"{LARGEST:,}, and here {ranks * stages * batches:,}"
            )
        found = self.generator(ranks, batches, **told)
        if chunks not in (None, stages):
            raise ValueError(f"{self.title} has {counted(stages, 'stage')} a rank; got chunks={chunks}")
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

STAGES: Final = ("chunks",)
BOTH: Final = ("chunks", "limit")

SCHEDULES: Final = table(
    (
        Named("gpipe", "GPipe", gpipe, HUANG, torch="ScheduleGPipe"),
        Named("one_f_one_b", "1F1B", one_f_one_b, NARAYANAN, takes=("limit",), torch="Schedule1F1B"),
        Named(
            "breadth_first", "Breadth-first", breadth_first, LAMY_POIRIER, 2, takes=STAGES, torch="ScheduleLoopedBFS"
        ),
        Named(
            "interleaved", "Interleaved 1F1B", interleaved, NARAYANAN, 2, takes=BOTH, torch="ScheduleInterleaved1F1B"
        ),
        Named(
            name="interleaved_zero_bubble",
            title="Interleaved zero bubble",
            generator=interleaved_zero_bubble,
            paper=QI_2023,
            chunks=2,
            halves=True,
            takes=BOTH,
            torch="ScheduleInterleavedZeroBubble",
        ),
        Named("zb_h1", "ZB-H1", zb_h1, QI_2023, halves=True, takes=("limit",)),
        Named("zb_h2", "ZB-H2", zb_h2, QI_2023, halves=True, takes=("limit",)),
        Named("zb_v", "ZB-V", zb_v, QI_2023, 2, "vee", halves=True, torch="ScheduleZBVZeroBubble"),
        Named("v_half", "V-half", v_half, QI_2024, 2, "vee", halves=True),
        Named("v_min", "V-min", v_min, QI_2024, 2, "vee", halves=True),
        Named("dualpipe_v", "DualPipe-V", dualpipe_v, DEEPSEEK, 2, "vee", halves=True, torch="ScheduleDualPipeV"),
    )
)
"""The schedules in the order in which they were found."""
