"""Pipelines in the shape of a V: a microbatch passes all ranks, turns round on the last one, and comes back.

Rank r of R has the stages r, on the way down, and 2R - 1 - r, on the way up. So the first rank has the loss: what it
holds for long on the way down it holds shortly on the way up, and all ranks can hold equally many activations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from lib.schedules.pipelines.action import PAIR, Action, Order
from lib.schedules.pipelines.timing import time_order

__all__ = ["dualpipe_v", "v_half", "v_min", "zb_v"]


def zb_v(ranks: int, batches: int) -> Order:
    """No more memory than the first rank of 1F1B, on all ranks, and no gap in the middle where the forward and both
    halves of the backward take equally long (Qi et al. 2023, arXiv 2401.10241, section 6)."""
    full = max(batches, 2 * ranks - 1)  # with fewer some of these are left out
    return tuple(
        _Counted(ranks, rank, batches).do(
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
    )


def dualpipe_v(ranks: int, batches: int) -> Order:
    """In the middle a forward of one way and a backward of the other run as one, so that the messages of the one hide
    behind the computing of the other (DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1, folded into a V)."""
    full = max(batches, 2 * ranks)
    found: list[tuple[Action, ...]] = []
    for rank in range(ranks):
        after, middle = ranks - rank - 1, full - 2 * ranks + rank + 1
        apart = rank == ranks - 1  # nothing is gained by a pair here: its forward is all that its backward waits for
        backwards = [f"{'B' if turn <= rank else 'I'}{1 - turn % 2}" for turn in range(2 * rank + 2)]
        found.append(
            _Counted(ranks, rank, batches).do(
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
    return tuple(found)


class _Counted:
    """A rank whose program says only what is done, and how often: each word takes the next microbatch of its kind.

    F0 is a forward on the way down and F1 on the way up; so are B, I and W. A W alone is of the oldest input half that
    has none yet. Microbatches that there are not are left out.
    """

    def __init__(self, ranks: int, rank: int, batches: int) -> None:
        self.stages = rank, 2 * ranks - 1 - rank
        self.batches = batches
        self.next: Counter[str] = Counter()
        self.halves: list[Action] = []
        """The weight halves that are to be done."""

    def do(self, *phases: tuple[int, str]) -> tuple[Action, ...]:
        words = (word for times, turn in phases for _ in range(times) for word in turn.split())
        return tuple(action for word in words for action in self.action(word))

    def action(self, word: str) -> Iterable[Action]:
        """Return one action, or none."""
        parts = tuple(part for one in word.split("+") if (part := self.part(one)).microbatch < self.batches)
        if len(parts) == 2:
            return (Action(parts[0].stage, PAIR, parts[0].microbatch, parts),)
        return parts

    def part(self, word: str) -> Action:
        kind, way = word[0], word[1:]
        if kind == "W":
            stages = [self.stages[int(way)]] if way else self.stages
            found = next(action for action in self.halves if action.stage in stages)
            self.halves.remove(found)
            return found
        count = word if kind == "F" else f"B{way}"
        found = Action(self.stages[int(way)], kind, self.next[count])
        self.next[count] += 1
        if kind == "I":
            self.halves.append(found._replace(kind="W"))
        return found


# -- blocks that are repeated -----------------------------------------------------------------------------------------

PERIOD: Final = 6
"""A block is all that a rank does for a microbatch: two forwards, two input halves, two weight halves, a slot each."""

Lines = list[list[int]]
"""The slots of what a rank does, for every microbatch: of the forwards down and up, of the input halves up and down,
and of the weight halves, in the order of the input halves, if it is said where they are."""


def v_half(ranks: int, batches: int) -> Order:
    """About half of the activations that 1F1B has (Qi et al. 2024, arXiv 2405.15362): a microbatch is at the next rank
    after two slots on the way that begins at rank 0, forward or backward, and after one on the way back."""
    gap = 3 if ranks % 2 == 0 else 0  # so that no two passes of a rank have the same slot
    turn, back = 3 * ranks - 2, 3 * ranks + gap - 1
    block = [(2 * r, turn - r, back + 2 * r, back + 3 * ranks - 1 - r) for r in range(ranks)]
    return _repeated(block, batches)


def v_min(ranks: int, batches: int) -> Order:
    """About a third of the activations that 1F1B has (Qi et al. 2024, arXiv 2405.15362): a microbatch is at the next
    rank after one slot on all its ways, so that what it made is free as soon as can be."""
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
        row, kind = rows[rank], KINDS_OF_LINES[line]
        for earlier in range(_earliest(ranks, rank, line, microbatch), slot):
            if row[earlier]:
                continue
            row[earlier], row[slot] = kind, ""
            if fits(row):
                ranks[rank][line][microbatch] = earlier
                break
            row[earlier], row[slot] = "", kind


KINDS_OF_LINES: Final = "FFIIW"


def _earliest(ranks: list[Lines], rank: int, line: int, microbatch: int) -> int:
    """Return the slot after what a pass needs: the same on the rank before, what turns round to it here, its input
    half, and the microbatch before."""
    lines = ranks[rank]
    needs = [lines[line][microbatch - 1]] if microbatch else []
    before = rank - 1 if line in (0, 2) else rank + 1
    if line == 4:
        needs.append(sorted(lines[2] + lines[3])[microbatch])
    else:
        needs += [ranks[before][line][microbatch]] if 0 <= before < len(ranks) else []
        needs += [lines[line - 1][microbatch]] if line else []
    return max(needs, default=-1) + 1


def _row(lines: Lines) -> list[str]:
    """Return what a rank does in each slot, or nothing."""
    row = [""] * (1 + max(map(max, lines)))
    for kind, line in zip(KINDS_OF_LINES, lines, strict=False):
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
            for stage, kind, line in zip((down, up, up, down), KINDS_OF_LINES, lines, strict=False)
            for m, slot in enumerate(line)
        ]
        halves = [action for _, action in sorted(passes) if action.kind == "I"]
        slots = lines[4] if len(lines) > 4 else _weight_halves(lines)
        passes += [(slot, action._replace(kind="W")) for slot, action in zip(slots, halves, strict=True)]
        found.append(tuple(action for _, action in sorted(passes)))
    return tuple(found)


def _timed(ranks: list[Lines]) -> list[Lines]:
    """Return the slots in which all but the weight halves are done, if everybody goes on as soon as they can."""
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
