"""Chrome's trace events, in and out: torch.profiler's traces of a pipeline, one JSON file a rank, as a recording; and
Traces as a timeline for https://ui.perfetto.dev and chrome://tracing.

Ranges are named as torch's pipeline executor names them (`PP:3F1`): they are actions, and the recording has an order. A
range begins with waiting for its message: computing begins with its first operation.

    recording = read_profile(["rank0.json", "rank1.json.gz"])

Of the format ("Trace Event Format",
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU) complete events ("X") are read, with
times in microseconds, and written, beside names of processes and threads ("M"). A file comes from outside: it may be
damaged, truncated, huge, packed to be huge, or no such file at all. It is read as data. docs/replay.md says what is in
a written timeline.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from lib.analysis.figures import samples
from lib.analysis.recording import COMPUTE, PER_UNIT, Recording, Span
from lib.cluster.costs import TICKS
from lib.errors.exceptions import NoTraceFile, TraceError
from lib.errors.wording import counted, numbered
from lib.files import ready, write_whole
from lib.schedules.formats.trace import PREFIX, Part, action_of, as_recording, part_of, parts, span_of
from lib.schedules.pipelines.action import KINDS, Action
from lib.trace.order import meetings, messages
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION, OPERATIONS, TIMED

MAX_BYTES: Final = 256 * 2**20
"""Of a file, unpacked."""
MAX_EVENTS: Final = 2_000_000
MAX_TIME: Final = 2**62
"""Nanoseconds: what is later, or takes longer, is damage."""
MAX_NAME: Final = 200
MAX_FILES: Final = 1024
MAX_RANKS: Final = 16_384
"""Ranks that there may be; of some there are no files."""
MAX_SPANS: Final = 200_000
ON_CPU, ON_GPU = "user_annotation", "gpu_user_annotation"
_CALL: Final = re.compile(r"(?:nccl|gloo|ucc|mpi):_?(\w+)")
_KERNEL: Final = re.compile(r"nccl(?:Dev)?Kernel_(\w+?)(?:_|\()")
_MESSAGES: Final = {"send": "pass_to", "recv": "receive", "sendrecv": "receive", "irecv": "receive", "isend": "pass_to"}
_TITLES: Final = {row.title.replace("-", ""): row.name for row in COLLECTIVES.values()}


@cache
def our_name(name: str) -> str:
    """Return what we call a communication of torch's: "_reduce_scatter_base_" is the one with the title
    "reduce-scatter"."""
    plain = name.strip("_").removesuffix("_base").replace("_", "").lower()
    return _MESSAGES.get(plain) or _TITLES.get(plain, name)


def read_profile(paths: Sequence[str | Path], name: str = "profile", step: int | None = None) -> Recording:
    """Return the recording of some ranks, a file each. `step` is one of those in the files, from 0; the last one is
    taken otherwise. TraceError where a file is anything else, or two are of one rank."""
    if not 0 < len(paths) <= MAX_FILES:
        raise TraceError(f"a profile has 1 to {MAX_FILES} files, one for each rank; these are {len(paths)}")
    ranks = sorted((_Rank.of(Path(path), place) for place, path in enumerate(paths)), key=lambda one: one.rank)
    for rank, count in Counter(one.rank for one in ranks).items():
        if count > 1:
            files = " and ".join(one.file for one in ranks if one.rank == rank)
            raise TraceError(f"{files} are both of rank {rank}: give one file for each rank")
    notes: list[str] = []
    if silent := [one.file for one in ranks if not one.said]:
        notes.append(f"{', '.join(silent[:4])}: no rank is named there, so files are numbered as they were given.")
    notes += _one_step(ranks, step)
    if len(ranks) > 1:  # on one clock, as far as their files say it
        said = all(one.base is not None for one in ranks)
        for one in ranks:
            one.shift(cast("int", one.base) if said else -min(span.start for span in one.spans))
        clocks = "each file's own base time" if said else "all ranks are taken to begin at one moment"
        notes += [f"Clocks: {clocks}.", _causal(ranks)]
    every = [span for one in ranks for span in one.spans]
    if len(every) > MAX_SPANS:
        raise TraceError(f"these ranks did {len(every):,} things, and {MAX_SPANS:,} are read: profile fewer steps")
    first = min(span.start for span in every)
    every = [span._replace(start=span.start - first, end=span.end - first) for span in every]
    return replace(as_recording(name, every, 1 + ranks[-1].rank, None), notes=tuple(filter(None, notes)))


@dataclass
class _Rank:
    """One rank, as a file has it: its spans, in its own clock. `said`: the file names the rank."""

    file: str
    rank: int
    said: bool
    base: int | None
    spans: list[Span]

    @classmethod
    def of(cls, path: Path, place: int) -> _Rank:
        slices, head = read_slices(path)
        world: Any = head.get("distributedInfo")
        told: Any = cast("dict[str, Any]", world).get("rank") if isinstance(world, dict) else None
        said = type(told) is int and 0 <= told < MAX_RANKS
        base: Any = head.get("baseTimeNanoseconds")
        base = base if type(base) is int and 0 <= base < MAX_TIME else None
        rank: int = told if said else place
        spans = sorted(_spans(slices, rank), key=lambda span: span.start)
        if not any(span.word for span in spans):
            why = f"no range in {path.name} is named as an action ({PREFIX}3F1): torch's executor names them so"
            raise TraceError(f"{why}, with an order loaded from a file")
        return cls(path.name, rank, said, base, spans)

    def shift(self, by: int) -> None:
        self.spans = [span._replace(start=span.start + by, end=span.end + by) for span in self.spans]


# -- what a file says ---------------------------------------------------------------------------------------------


class Slice(NamedTuple):
    """A named stretch of time of a thread, in nanoseconds."""

    thread: tuple[str, str]
    category: str
    name: str
    start: int
    end: int


def read_slices(path: Path) -> tuple[list[Slice], Mapping[str, Any]]:
    """Return the slices in a file by start, the outer ones first, and what else it says of itself. It may be packed
    (.gz). TraceError where it is anything else."""
    try:
        if path.exists() and not path.is_file():  # who opens a pipe may wait for ever
            raise OSError(0, "it is not a plain file")
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            with gzip.GzipFile(fileobj=file) if packed else file as unpacked:
                data = unpacked.read(MAX_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"{path.name}: it is packed, and damaged: {error}") from None
    except (OSError, ValueError) as error:
        raise NoTraceFile(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        if len(data) > MAX_BYTES:
            raise TraceError(f"it is larger than {MAX_BYTES // 2**20} MiB: profile fewer steps")
        return _decoded(json.loads(data.decode("utf-8", "replace")))
    except (TraceError, ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:MAX_NAME]
        why = reason if isinstance(error, TraceError) else f"it is not a whole JSON file: {reason}"
        raise TraceError(f"{path.name}: {why}") from None


def _decoded(data: Any) -> tuple[list[Slice], Mapping[str, Any]]:
    head = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    events: Any = head.get("traceEvents")
    if not isinstance(events, list):
        raise TraceError("it has no traceEvents: a trace is what torch.profiler's export_chrome_trace writes")
    every = cast("list[Any]", events)
    if len(every) > MAX_EVENTS:
        raise TraceError(f"it has {len(every):,} events, and {MAX_EVENTS:,} are read: profile fewer steps")
    found: list[Slice] = []
    for number, event in enumerate(every):
        if not isinstance(event, dict):
            raise TraceError(f"event {number} is not an object")
        told = cast("dict[str, Any]", event)
        if told.get("ph") == "X":
            pid, tid, category, name = (str(told.get(key, ""))[:MAX_NAME] for key in ("pid", "tid", "cat", "name"))
            start, took = (_time(number, told, key) for key in ("ts", "dur"))
            found.append(Slice((pid, tid), category, name, start, start + max(0, took)))
    return sorted(found, key=lambda one: (one.start, -one.end)), head


def _time(number: int, event: Mapping[str, Any], name: str) -> int:
    """Return a time of an event in nanoseconds."""
    value = event.get(name, 0 if name == "dur" else None)
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) * 1000 >= MAX_TIME:
        raise TraceError(f"event {number} has no time: its {name} is {str(value)[:MAX_NAME]!r}")
    return round(value * 1000)


def _spans(slices: Sequence[Slice], rank: int) -> Iterator[Span]:
    """Yield the spans of one rank: named actions, and communication beside them."""
    named = [
        (one, action)
        for one in slices
        if one.category in (ON_CPU, ON_GPU)
        and one.name.startswith(PREFIX)
        and (action := action_of(one.name.removeprefix(PREFIX))) is not None
    ]
    if on_gpu := [(one, action) for one, action in named if one.category == ON_GPU]:
        yield from (span_of(action, rank, one.start, one.end, one.name) for one, action in on_gpu)
    else:
        yield from _actions(named, rank, slices)
    first, last = min((one.start for one, _ in named), default=0), max((one.end for one, _ in named), default=0)
    # What nccl's kernels say of themselves where there are any, else what the calls do.
    kernels = [(one, _KERNEL.match(one.name)) for one in slices if one.category == "kernel"]
    calls = [(one, _CALL.match(one.name)) for one in slices if one.category == ON_CPU]
    for one, told in kernels if any(told for _, told in kernels) else calls:
        if told is not None and one.end > first and one.start < last:  # not the barrier before a step that was named
            op = our_name(told[1])
            known = op in OPERATIONS or op in COLLECTIVES
            yield Span(rank, one.start, one.end, op if known else "", one.name, stream="communication")


def _actions(named: Sequence[tuple[Slice, Action]], rank: int, slices: Sequence[Slice]) -> Iterator[Span]:
    """Yield ranges of the CPU that are actions. What they did before their first operation, longer than any of their
    kind has to, was waiting. What sharded weights would need is left out where nothing was done for it."""
    operations: defaultdict[tuple[str, str], list[Slice]] = defaultdict(list)
    for one in slices:
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
        turn = inside(one, "autograd::engine") if action.parts else None
        if turn is None:
            yield span_of(action, rank, start, one.end, one.name)
        else:  # a pair is seen as a forward and a backward, as autograd begins
            yield span_of(action.parts[0], rank, start, turn, one.name)
            yield span_of(action.parts[1], rank, turn, one.end, one.name)


# -- several steps, several clocks --------------------------------------------------------------------------------


def _one_step(ranks: Sequence[_Rank], step: int | None) -> list[str]:
    """Leave of each rank what one step did: an action that comes again is one of the next step. A rank that was
    recorded for longer has its steps counted from the end, as the last ones are common."""
    begins: list[list[int]] = []
    for one in ranks:
        seen, starts = Counter[str](), list[int]()
        for span in one.spans:
            seen[span.word] += bool(span.word)
            if seen[span.word] > len(starts):
                starts.append(span.start)
        begins.append(starts)
    count = min(map(len, begins))
    chosen = count - 1 if step is None else step
    if not 0 <= chosen < count:
        raise TraceError(f"there is no step {step}: these files have {counted(count, 'step')}, numbered from 0")
    for one, starts in zip(ranks, begins, strict=True):
        number = chosen + len(starts) - count
        first, last = starts[number] if number else -MAX_TIME, [*starts, MAX_TIME][number + 1]
        one.spans = [span for span in one.spans if first <= span.start < last]
    return [f"Step {chosen} of {count} that were recorded."] if count > 1 else []


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
    who = numbered("rank", [one.rank for one, by in zip(ranks, moved, strict=True) if by]).capitalize()
    return f"{who} moved later, by up to {max(moved) / 1e6:.3g} ms, so that nothing is used before it was made."


# -- out --------------------------------------------------------------------------------------------------------------


def perfetto(unit: float | None = None, **traces: Trace) -> dict[str, Any]:
    """Return the Traces by name. One time unit is a millisecond of the picture, or `unit` seconds of it."""
    scale = (PER_UNIT / 1000 if unit is None else unit * 1e6) / TICKS  # in microseconds: Perfetto knows no time units
    events: list[dict[str, Any]] = []
    before = 0
    for name, trace in traces.items():
        threads: dict[tuple[int, int], int] = {}
        for rank in range(trace.ranks):
            events += _process(trace, rank, f"{name}: rank {rank}", before + rank, scale, threads)
        events += _arrows(trace, before, scale, threads)
        before += trace.ranks
    about = {"writer": "llm-training-puzzles", "microseconds": scale * TICKS}
    return {"otherData": about, "displayTimeUnit": "ms", "traceEvents": events}


def write_perfetto(path: str | Path, traces: Mapping[str, Trace]) -> None:
    """Write the Traces by name into a file."""
    write_whole(ready(path), json.dumps(perfetto(None, **traces)))


def _process(
    trace: Trace, rank: int, title: str, process: int, scale: float, threads: dict[tuple[int, int], int]
) -> Iterator[dict[str, Any]]:
    """Yield the slices of a rank, of what it did and, of an action, of what that is made of; and its memory. `threads`
    takes the thread of each event, by rank and number."""
    events = trace.programs[rank].events
    streams: defaultdict[str, list[int]] = defaultdict(list)
    """For each stream its threads: slices of a thread lie within each other, and not across."""
    free: list[int] = []
    """When each thread is free."""

    def named(what: str, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "pid": process, "name": what, "args": args}

    def slice_of(part: Part, stream: str, name: str, kind: str, **args: Any) -> dict[str, Any]:
        start, end = part.span.start, part.span.end
        thread = next((one for one in streams[stream] if free[one] <= start), len(free))
        if thread == len(free):
            streams[stream].append(thread)
            free.append(end)
        free[thread] = end
        threads[rank, part.first] = thread
        moments = {"ts": start * scale, "dur": (end - start) * scale}
        names = ("stage", "microbatch") if part.span.word else ("layer", "batches")
        about = (("action", part.span.word), (names[0], part.span.stage), (names[1], part.span.label))
        said = {key: value for key, value in (*about, ("source", part.span.place)) if value not in (None, "")}
        what = {"ph": "X", "pid": process, "tid": thread, "name": name, "cat": kind}
        return {**what, **moments, "args": {"event": part.first, **args, **said}}

    yield named("process_name", name=title)
    yield named("process_sort_index", sort_index=process)
    for part in parts(trace, rank):
        first, action = events[part.first], part.action
        if action is None:
            slice_ = slice_of(part, part.span.stream, part.span.name, first.op)
            if first.op in COMMUNICATION and first.blocking:
                slice_["args"]["awaited"] = True
            yield slice_
            continue
        yield slice_of(part, "pipeline", f"{PREFIX}{action}", part.span.op)
        for index in range(part.first, part.last + 1):
            event = events[index]
            if event.start is not None and (event.op in TIMED or event.length):
                inner = part_of(trace, rank, index, index)
                yield slice_of(inner, COMPUTE, inner.span.name, event.op, within=str(action))
    for stream, members in streams.items():
        for place, thread in enumerate(members):
            yield {**named("thread_name", name=f"{stream} ({place + 1})" if place else stream), "tid": thread}
    for sample in samples(trace, rank):
        amounts = {kind: float(elements) for kind, elements in sample.by_kind.items()}
        counter = {"ph": "C", "pid": process, "ts": sample.time * scale, "name": "elements alive"}
        yield {**counter, "args": amounts}


def _arrows(
    trace: Trace, before: int, scale: float, threads: Mapping[tuple[int, int], int]
) -> Iterator[dict[str, Any]]:
    """Yield arrows from each send to its receive, and from member to member of each collective, the first to begin
    first."""
    joined = [("message", [(a, sent), (b, got)]) for a, sent, b, got in messages(trace) if got is not None]
    joined += [("collective", one) for one in meetings(trace) if len(one) > 1]
    for number, (what, ends) in enumerate(joined):
        if any(end not in threads for end in ends):
            continue
        found = [(trace.programs[rank].events[index].start or 0, rank, index) for rank, index in ends]
        for place, (start, rank, index) in enumerate(found if what == "message" else sorted(found)):
            last = place == len(found) - 1
            middle = trace.programs[rank].events[index].length // 2 if last else 0
            kind = {"ph": "f", "bp": "e"} if last else {"ph": "t" if place else "s"}
            home = {"pid": before + rank, "tid": threads[rank, index]}
            about = {"cat": "flow", "id": f"{before}.{number}", "name": what}
            yield {**kind, **about, **home, "ts": (start + middle) * scale}
