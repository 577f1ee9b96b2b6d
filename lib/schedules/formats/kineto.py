"""torch.profiler's traces, one JSON file a rank, as a recording.

Where ranges are named as torch's pipeline executor names them (`PP:3F1`) they are actions, and the recording has an
order. A range begins with waiting for its message: computing begins with its first operation. Without
such names there are boxes alone: kernels and collectives on a GPU, else what torch's operations say of themselves.

    recording = read_profile(["rank0.json", "rank1.json.gz"])
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Final, cast

from lib.analysis.recording import COMPUTE, Recording, Span, known
from lib.errors.exceptions import TraceError
from lib.errors.wording import counted, numbered
from lib.schedules.formats.perfetto import MAX_TIME, Slice, Slices, read_slices
from lib.schedules.formats.trace import PREFIX, action_of, as_recording, span_of
from lib.schedules.pipelines.action import KINDS, Action
from lib.values.collectives import COLLECTIVES

MAX_RANKS: Final = 1024
"""Files that are read."""
MOST_RANKS: Final = 16_384
"""Ranks that there may be; of some there are no files."""
MAX_SPANS: Final = 200_000
COMMUNICATION: Final = "communication"
ANNOTATIONS: Final = ("user_annotation", "gpu_user_annotation")
KERNELS: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_PLAIN: Final = re.compile(r"(Forward|Backward) (\d+)")  # torch's ScheduleGPipe, which has one stage a rank
_CALL: Final = re.compile(r"(?:nccl|gloo|ucc|mpi):_?(\w+)")
_KERNEL: Final = re.compile(r"nccl(?:Dev)?Kernel_(\w+?)(?:_|\()")
_MESSAGES: Final = {"send": "pass_to", "recv": "receive", "sendrecv": "receive", "irecv": "receive", "isend": "pass_to"}
AUTOGRAD: Final = "autograd::engine"
OPTIMIZER: Final = "Optimizer.step"


@cache
def our_name(name: str) -> str:
    """Return what we call a communication of torch's: "_reduce_scatter_base_" is the one with the title
    "reduce-scatter"."""
    plain = name.strip("_").removesuffix("_base").replace("_", "").lower()
    return _MESSAGES.get(plain) or _TITLES.get(plain, name)


_TITLES: Final = {row.title.replace("-", ""): row.name for row in COLLECTIVES.values()}


def read_profile(paths: Sequence[str | Path], name: str = "profile", step: int | None = None) -> Recording:
    """Return the recording of some ranks, a file each. `step` is one of those in the files, from 0; the last one is
    taken otherwise. TraceError where a file is anything else, or two are of one rank."""
    if not paths:
        raise TraceError("a profile needs at least one file")
    if len(paths) > MAX_RANKS:
        raise TraceError(f"these are {len(paths)} files, and profiles of up to {MAX_RANKS} ranks are read")
    ranks = [_Rank.of(Path(path), place) for place, path in enumerate(paths)]
    twice = Counter(one.rank for one in ranks)
    if (same := next((rank for rank, count in twice.items() if count > 1), None)) is not None:
        files = " and ".join(one.file for one in ranks if one.rank == same)
        raise TraceError(f"{files} are both of rank {same}: give one file for each rank")
    ranks.sort(key=lambda one: one.rank)
    notes: list[str] = []
    if silent := [one.file for one in ranks if not one.said]:
        notes.append(f"{', '.join(silent[:4])}: no rank is named there, so files are numbered as they were given.")
    notes += _one_step(ranks, step)
    notes += _align(ranks)
    every = [span for one in ranks for span in one.spans]
    if len(every) > MAX_SPANS:
        raise TraceError(f"these ranks did {len(every):,} things, and {MAX_SPANS:,} are read: profile fewer steps")
    if not every:
        raise TraceError(f"nothing was done in {ranks[0].file}: it has no operations, no kernels and no named ranges")
    first = min(span.start for span in every)
    every = [span._replace(start=span.start - first, end=span.end - first) for span in every]
    if not any(span.word for span in every):
        notes.append(f"No range is named as an action ({PREFIX}3F1), so these boxes have no order.")
    if any(span.name.startswith(AUTOGRAD) for span in every):
        notes.append("A box of backward is what autograd did, with what it waited for.")
    return replace(as_recording(name, every, 1 + ranks[-1].rank, None), notes=tuple(filter(None, notes)))


@dataclass
class _Rank:
    """One rank, as a file has it: its spans, in its own clock."""

    file: str
    rank: int
    said: bool
    base: int | None
    spans: list[Span]
    collectives: list[Span] = field(default_factory=list[Span])
    steps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    @classmethod
    def of(cls, path: Path, place: int) -> _Rank:
        slices = read_slices(path)
        world: Any = slices.head.get("distributedInfo")
        told: Any = cast("dict[str, Any]", world).get("rank") if isinstance(world, dict) else None
        said = type(told) is int and 0 <= told < MOST_RANKS
        rank: int = told if said else place
        base: Any = slices.head.get("baseTimeNanoseconds")
        base = base if type(base) is int and 0 <= base < MAX_TIME else None
        spans = sorted(_spans(slices, rank), key=lambda span: span.start)
        found = cls(path.name, rank, said, base, spans)
        found.collectives = [span for span in spans if span.op in COLLECTIVES and span.stream != COMPUTE]
        found.steps = _steps(slices, spans)
        return found

    def shift(self, by: int) -> None:
        self.spans = [span._replace(start=span.start + by, end=span.end + by) for span in self.spans]
        self.collectives = [span._replace(start=span.start + by, end=span.end + by) for span in self.collectives]


# -- what a file says ---------------------------------------------------------------------------------------------


def _spans(slices: Slices, rank: int) -> Iterator[Span]:
    """Yield the spans of one rank: named actions, or else whatever there is; and communication beside them."""
    named = [(one, action) for one in slices.slices if (action := _action(one, rank)) is not None]
    on_gpu = [(one, action) for one, action in named if one.category == "gpu_user_annotation"]
    if on_gpu:
        for one, action in on_gpu:
            yield span_of(action, rank, one.start, one.end, one.name)
    elif named:
        yield from _actions(named, rank, slices)
    if not named:
        yield from _plain(slices.slices, rank)
    first = min((one.start for one, _ in named), default=-(2**62))
    last = max((one.end for one, _ in named), default=2**62)
    # What nccl's kernels say of themselves where there are any, else what the calls do.
    kernels = [
        (one, kernel[1]) for one in slices.slices if one.category == "kernel" and (kernel := _KERNEL.match(one.name))
    ]
    calls = [
        (one, call[1]) for one in slices.slices if one.category == ANNOTATIONS[0] and (call := _CALL.match(one.name))
    ]
    for one, name in kernels or calls:
        if one.end > first and one.start < last:  # not the barrier before a step that was named
            op = our_name(name)
            yield Span(rank, one.start, one.end, op if known(op) else "", one.name, stream=COMMUNICATION)


def _action(one: Slice, rank: int) -> Action | None:
    """Return the action that a range is named after, if it is."""
    if one.category not in ANNOTATIONS:
        return None
    if one.name.startswith(PREFIX):
        return action_of(one.name.removeprefix(PREFIX))
    plain = _PLAIN.fullmatch(one.name)
    return None if plain is None else Action(rank, plain[1][0], int(plain[2]))


def _actions(named: Sequence[tuple[Slice, Action]], rank: int, slices: Slices) -> Iterator[Span]:
    """Yield ranges of the CPU that are actions. What they did before their first operation, longer than any of their
    kind has to, was waiting. What sharded weights would need is left out where nothing was done for it."""
    operations: defaultdict[str, list[Slice]] = defaultdict(list)
    for one in slices.slices:
        if one.category == "cpu_op":
            operations[one.thread].append(one)

    def inside(outer: Slice, begins: str = "") -> int | None:
        """When the first operation in a range begins, of those that are called so."""
        mine = operations[outer.thread]
        after = islice(mine, bisect_left(mine, outer.start, key=lambda one: one.start), None)
        within = takewhile(lambda one: one.start < outer.end, after)
        return next((one.start for one in within if one.name.startswith(begins)), None)

    firsts = [inside(one) for one, _ in named]
    least: dict[str, int] = {}
    for (one, action), first in zip(named, firsts, strict=True):
        if first is not None and action.microbatch >= 0:
            least[action.kind] = min(first - one.start, least.get(action.kind, first - one.start))
    for (one, action), first in zip(named, firsts, strict=True):
        op, start = KINDS[action.kind].operation, one.start
        if action.microbatch < 0 and first is None:
            continue
        if first is not None and action.microbatch >= 0 and op not in ("pass_to", "receive"):
            start = first - least[action.kind]
            if start > one.start:
                yield Span(rank, one.start, start, "wait", f"waits for what {action} needs")
        turn = inside(one, AUTOGRAD) if action.parts else None
        if turn is None:
            yield span_of(action, rank, start, one.end, one.name)
        else:  # a pair is seen as a forward and a backward, as autograd begins
            yield span_of(action.parts[0], rank, start, turn, one.name)
            yield span_of(action.parts[1], rank, turn, one.end, one.name)


def _plain(slices: Sequence[Slice], rank: int) -> Iterator[Span]:
    """Yield what a rank computed where it has no name: kernels of a GPU, or operations of the CPU that are within no
    other one, close ones as one box."""
    outer = [one for one in slices if one.category in KERNELS and not _KERNEL.match(one.name)]
    if not outer:
        over: dict[str, int] = {}
        for one in slices:
            if one.category == "cpu_op" and one.start >= over.get(one.thread, one.start):
                over[one.thread] = one.end
                outer.append(one)
    steps = [one for one in slices if one.category in ANNOTATIONS and one.name.startswith(OPTIMIZER)]
    within = (max((one.end for one in outer), default=0) - min((one.start for one in outer), default=0)) // 2000
    last: Span | None = None
    for one in sorted(outer, key=lambda one: one.start):
        if one.name.startswith("c10d::"):
            continue
        op = "backward" if one.name.startswith(AUTOGRAD) else ""
        if any(step.start <= one.start < step.end for step in steps):
            op = "update"
        if last is not None and last.op == op and one.start - last.end <= within:
            last = last._replace(end=max(last.end, one.end))
            continue
        if last is not None:
            yield last
        last = Span(rank, one.start, one.end, op, one.name)
    if last is not None:
        yield last


# -- several steps, several clocks --------------------------------------------------------------------------------


def _steps(slices: Slices, spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Return when each step of a rank begins, and the next one does. An action that comes again is one of the next
    step."""
    starts: list[int] = []
    counts: Counter[str] = Counter()
    for span in spans:
        if span.word:
            counts[span.word] += 1
            if counts[span.word] > len(starts):
                starts.append(span.start)
    if starts:
        return list(zip(starts, [*starts[1:], 2**62], strict=True))
    marked = [one for one in slices.slices if one.name.startswith("ProfilerStep#")]
    return [(one.start, one.end) for one in marked]


def _one_step(ranks: Sequence[_Rank], step: int | None) -> list[str]:
    """Leave of each rank what one step did. A rank that was recorded for longer has its steps counted from the end, as
    the last ones are common."""
    count = min(len(one.steps) for one in ranks)
    if step is not None and not 0 <= step < count and (step or count):
        said = f"have {counted(count, 'step')}, numbered from 0" if count else "do not say where steps begin"
        raise TraceError(f"there is no step {step}: these files {said}")
    if count == 0:
        return []
    chosen = count - 1 if step is None else step
    for one in ranks:
        number = chosen + len(one.steps) - count
        first, last = one.steps[number]
        one.spans = [span for span in one.spans if (number == 0 or first <= span.start) and span.start < last]
        one.collectives = [span for span in one.collectives if first <= span.start < last] or one.collectives
    return [f"Step {chosen} of {count} that were recorded."] if count > 1 else []


def _align(ranks: Sequence[_Rank]) -> list[str]:
    if len(ranks) == 1:
        return []
    bases = [one.base for one in ranks]
    if all(base is not None for base in bases):
        for one in ranks:
            one.shift(cast("int", one.base))
        said = "Clocks: each file's own base time."
    elif all(one.collectives for one in ranks) and len({one.collectives[0].op for one in ranks}) == 1:
        said = f"Clocks: the end of the first {ranks[0].collectives[0].name} of all ranks is taken as one moment."
        for one in ranks:
            one.shift(-one.collectives[0].end)
    else:
        for one in ranks:
            one.shift(-min((span.start for span in one.spans), default=0))
        said = "Clocks: all ranks are taken to begin at one moment."
    return [said, _causal(ranks)]


def _causal(ranks: Sequence[_Rank]) -> str:
    """Move clocks later by as little as it takes for nothing to be used before it was made. Say which were moved."""
    made = {span.word: (place, span) for place, one in enumerate(ranks) for span in one.spans if span.word}
    gaps: dict[tuple[int, int], int] = {}
    for word, (place, span) in made.items():
        action = action_of(word)
        step = 0 if action is None else {"F": 1, "B": -1, "I": -1}.get(action.kind, 0)
        for kind in "F" if step == 1 else "BI" if step else "":  # of what may use what it makes
            after = "" if action is None else str(Action(action.stage + step, kind, action.microbatch))
            if after in made and made[after][0] != place:
                other, user = made[after]
                late = span.end - user.end
                gaps[place, other] = max(late, gaps.get((place, other), late))
    moved = [0] * len(ranks)
    for _ in ranks:
        for (one, other), late in gaps.items():
            moved[other] = max(moved[other], moved[one] + late)
    if not any(moved):
        return ""
    if any(moved[other] < moved[one] + late for (one, other), late in gaps.items()):
        return "These clocks contradict each other: something is used before it was made, whichever of them is moved."
    for one, by in zip(ranks, moved, strict=True):
        one.shift(by)
    which = [one.rank for one, by in zip(ranks, moved, strict=True) if by]
    most = max(moved) / 1e6
    who = numbered("rank", which).capitalize()
    return f"{who} moved later, by up to {most:.3g} ms, so that nothing is used before it was made."
