"""The result of a replay: was it right, how long did it take, what did it hold and move; beside the simulated figures.

It is assembled from the ranks' reports. The measured Trace has the same events with the times that they really took. A
measured time unit is the median forward of one batch. A collective starts when its last member has called it, a receive
when the message was sent. The Trace shows the one step whose whole time is the median, not a mixture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from lib.analysis.figures import end, samples
from lib.cluster.costs import TICKS
from lib.replay.options import ReplayOptions
from lib.replay.plan import Plan
from lib.trace.event import Event, Program
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES, Size
from lib.values.kinds.kind import USUAL
from lib.values.operations import COMMUNICATION, COMPUTE, MESSAGES, OPERATIONS, READS
from lib.values.values import Elements, Value

Times = tuple[list[int], list[int], int, int]
"""Starts and ends of all events, then of the whole step, in nanoseconds of `time.perf_counter_ns`; -1 for never."""
Report = dict[str, Any]
"""A rank's measurements, as plain data."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """The worst deviation of a replay from ordinary training in one respect, with its rank and layer.

    `relative` is the largest difference divided by the largest entry of the true tensor. `event` is the number of the
    operation on that rank, None where a library computed it.
    """

    what: str
    absolute: float
    relative: float
    rank: int
    layer: int
    event: int | None
    tolerance: float

    @property
    def ok(self) -> bool:
        """Tell whether it is within the tolerance (NaN never is)."""
        return self.relative <= self.tolerance

    def fault(self, who: str = "") -> str:
        """Say what is wrong."""
        where = f"rank {self.rank}, layer {self.layer}" + (f", event {self.event}" if self.event is not None else "")
        what, other = self.what, "that of ordinary training"
        if what == "replicas":
            what, other = "final weight", "another rank's"
        return (
            f"{who}the {what} differs from {other} by {self.relative:.2g} of its largest entry at {where}; "
            f"{self.tolerance:.0e} is allowed"
        )

    def text(self, indent: str = "") -> str:
        """Say how far off it is."""
        return (
            f"{indent}{self.what + ':':<17}off by at most {self.absolute:.1e} absolute, {self.relative:.1e} relative "
            f"(allowed {self.tolerance:.0e}) - {'ok' if self.ok else 'WRONG'}"
        )


Comparison = dict[str, list[Deviation]]
"""The worst deviations in each respect: those of the replay under "", and those of each library beside it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The operations of one kind: how many, and the median time: simulated in time units, measured in seconds."""

    op: str
    count: int
    simulated: float
    measured: float


@dataclass(frozen=True, slots=True)
class RankFigures:
    """Bytes of one rank. `simulated` and `measured` are the peaks of its memory; `by_event` has both at each event.

    `in_flight` is the peak of what only communication under way held: messages sent, freed and not yet received, and
    receive buffers. `sent` is what its operations send, a collective as its row says (a message that is never received
    is simulated, but not sent). `allocator` is the peak of the GPU's allocator, 0 on the CPU; `wire` is what the system
    counted on its sockets in a step (Linux, over TCP). In a step it reads `examples`, which take `bytes` together.
    """

    rank: int
    simulated: float
    measured: int
    in_flight: int
    sent: float
    simulated_sent: float
    allocator: int
    wire: int | None = None
    examples: int = 0
    bytes: int = 0
    by_event: tuple[tuple[int, float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LibraryResult:
    """A library's own training step in the same launch: its numbers, its time, and how often it communicated.

    `counts` and `replay_counts` are operations of all ranks together, of the library and of the replay; `cpu` and
    `replay_cpu` the seconds of the processor that each step took all of them. `by` names the part of the library that
    ran, where `name` does not.
    """

    name: str
    errors: tuple[Deviation, ...]
    seconds: tuple[float, ...]
    counts: dict[str, int]
    replay_counts: dict[str, int]
    cpu: tuple[float, ...]
    replay_cpu: tuple[float, ...]
    by: str = ""

    @property
    def median(self) -> float:
        """Seconds of the median step."""
        return median(self.seconds)


@dataclass(frozen=True)
class ReplayResult:
    """One replay. `simulated` and `measured` are Traces with the same events; `unit` is the seconds of a time unit.

    `errors` has the worst deviation in each respect, `seconds` the time of each measured step, `startup` the seconds
    until all ranks were ready. Under torchrun every process has the result; with its own `rank`, only one prints it.
    """

    simulated: Trace
    measured: Trace
    options: ReplayOptions
    unit: float
    seconds: tuple[float, ...]
    startup: float
    errors: tuple[Deviation, ...]
    spreads: tuple[Spread, ...]
    ranks: tuple[RankFigures, ...]
    libraries: tuple[LibraryResult, ...] = ()
    rank: int = 0

    @property
    def faults(self) -> tuple[str, ...]:
        """Say what is wrong with the numbers; empty where all is well."""
        every = [("", self.errors), *((f"{one.name}: ", one.errors) for one in self.libraries)]
        return tuple(error.fault(who) for who, errors in every for error in errors if not error.ok)

    @property
    def ok(self) -> bool:
        """Tell whether everything that was compared is within its tolerance."""
        return not self.faults

    @property
    def median(self) -> float:
        """Seconds of the median step."""
        return median(self.seconds)

    def ratio(self, library: str) -> float:
        """Return the replay's step time over that of a library: the median over steps run in turns."""
        one = next(one for one in self.libraries if one.name == library)
        return median(mine / theirs for mine, theirs in zip(self.seconds, one.seconds, strict=True))

    def text(self) -> str:
        """Return the tables: simulated beside measured, and how right it is."""
        options, trace = self.options, self.measured
        device = "GPU" if options.on_gpu else "CPU"
        layers = f"weights {options.hidden} x {options.hidden}, batches {options.length} x {options.hidden}"
        if trace.descriptions != USUAL:
            layers = f"{trace.layers} layers as they are described"
        head = (
            f"{trace.ranks} rank{'s' * (trace.ranks > 1)} on {options.transport} ({device}), {options.dtype}, "
            f"{options.optimizer}; {layers}; {len(self.seconds)} step{'s' * (len(self.seconds) > 1)}, "
            f"ready in {self.startup:.2f} s"
        )
        parts = [[head], self._times(), self._bytes(), self._read(), self._verdict()]
        return "\n\n".join("\n".join(part) for part in parts if part)

    def _times(self) -> list[str]:
        rows = [("", "count", "simulated", "measured", "")]
        whole = Spread("whole step", 0, end(self.simulated), self.median)
        for one in (*self.spreads, whole):
            times = f"{one.simulated:.2f}", f"{one.measured / self.unit:.2f}", f"{1e3 * one.measured:.3f} ms"
            rows.append((one.op, str(one.count or ""), *times))
        return [*_table(rows), "in time units; a measured one is the median forward of one batch"]

    def _bytes(self) -> list[str]:
        rows = [("rank", "memory simulated", "measured", "in flight", "sent simulated", "measured", "on the wire")]
        for one in self.ranks:
            memory = f"{one.simulated:,.0f}", f"{one.measured:,}", f"{one.in_flight:,}"
            wire = "" if one.wire is None else f"{one.wire:,}"
            rows.append((f"{one.rank}", *memory, f"{one.simulated_sent:,.0f}", f"{one.sent:,.0f}", wire))
        lines = _table(rows, "ranks")
        note = "; Adam keeps two numbers a weight, so its states take twice the simulated elements"
        lines.append("in bytes, peaks of memory" + (note if self.options.optimizer == "adam" else ""))
        if most := max(one.allocator for one in self.ranks):
            lines.append(f"the allocators of the GPUs gave out up to {most:,} bytes")
        return lines

    def _read(self) -> list[str]:
        """Return a table of the examples read by each rank, where any does."""
        rows = [(f"{one.rank}", f"{one.examples}", f"{one.bytes:,}") for one in self.ranks]
        read = any(one.examples for one in self.ranks)
        return _table([("rank", "examples read", "in bytes"), *rows], "ranks") if read else []

    def _verdict(self) -> list[str]:
        lines = [error.text() for error in self.errors]
        for one in self.libraries:
            by, ratio = f" ({one.by})" if one.by else "", self.ratio(one.name)
            lines.append(
                f"{one.name}{by}: {1e3 * one.median:.3f} ms a step, the replay takes {ratio:.2f} times as long"
            )
            counts = (f"{op} {number} (replay {one.replay_counts.get(op, 0)})" for op, number in one.counts.items())
            lines.append(f"  communications of all ranks: {', '.join(counts)}")
            lines += [error.text("  ") for error in one.errors]
        if not self.errors:
            lines.append("Not compared with ordinary training.")
        elif self.ok:
            lines.append("Correct: the same as ordinary training in one process.")
        else:
            lines += ["WRONG:", *(f"  {fault}" for fault in self.faults)]
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return all figures as plain data; the Traces, which have a file format of their own, only by their ends."""
        return {
            "ok": self.ok,
            "faults": list(self.faults),
            "options": asdict(self.options),
            "unit": self.unit,
            "seconds": list(self.seconds),
            "startup": self.startup,
            "simulated_steps": end(self.simulated),
            "measured_steps": self.median / self.unit,
            "errors": [asdict(error) for error in self.errors],
            "operations": [asdict(one) for one in self.spreads],
            "ranks": [{key: value for key, value in asdict(one).items() if key != "by_event"} for one in self.ranks],
            "libraries": [{**asdict(one), "ratio": self.ratio(one.name)} for one in self.libraries],
        }


def _table(rows: Sequence[Sequence[str]], noun: str = "", most: int = 16) -> list[str]:
    """Return the lines of a table, the first column aligned left, the others right. With a noun it may be cut short."""
    shown = rows[: 1 + most] if noun else rows
    widths = [len(max(column, key=len)) for column in zip(*shown, strict=True)]
    lines: list[str] = []
    for first, *others in shown:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines + [f"and {len(rows) - len(shown)} more {noun}"] * (len(shown) < len(rows))


# -- from reports to figures --------------------------------------------------------------------------------------


def assembled(
    plan: Plan, options: ReplayOptions, reports: Sequence[Report], begun: int, comparison: Comparison
) -> ReplayResult:
    """Assemble the result from reports and comparison. `begun` is when the start of the ranks began, in nanoseconds."""
    steps = [[report["steps"][n] for report in reports] for n in range(len(reports[0]["steps"]))]
    shared, unit = all(report["shared_clock"] for report in reports), _unit(plan, reports)
    whole = [_whole_step(step, shared) for step in steps]
    runs = [_programs(plan, step, shared, unit) for step in steps]
    middle = sorted(range(len(steps)), key=whole.__getitem__)[(len(steps) - 1) // 2]
    return ReplayResult(
        simulated=plan.trace,
        measured=replace(plan.trace, programs=runs[middle]),
        options=options,
        unit=unit / 1e9,
        seconds=tuple(n / 1e9 for n in whole),
        startup=(max(report["ready"] for report in reports) - begun) / 1e9,
        errors=tuple(comparison[""]),
        spreads=tuple(_spreads(plan, runs, unit / 1e9 / TICKS)),
        ranks=tuple(_figures(plan, rank, report) for rank, report in enumerate(reports)),
        libraries=tuple(_library(plan, name, reports, shared, comparison[name]) for name in options.against),
    )


def _library(
    plan: Plan, name: str, reports: Sequence[Report], shared: bool, errors: Sequence[Deviation]
) -> LibraryResult:
    each = [report["libraries"][name] for report in reports]
    mine = Counter(event.op for _, event in plan.trace.events() if event.op in COMMUNICATION)
    theirs = sum((Counter[str](one["counts"]) for one in each), Counter[str]())
    return LibraryResult(
        name,
        tuple(errors),
        seconds=tuple(_whole_step(step, shared) / 1e9 for step in zip(*(one["steps"] for one in each), strict=True)),
        counts=dict(sorted(theirs.items())),
        replay_counts=dict(sorted(mine.items())),
        cpu=_spent(each),
        replay_cpu=_spent(reports),
        by=each[0]["by"],
    )


def _spent(reports: Sequence[Report]) -> tuple[float, ...]:
    """Return the seconds of the processor that each step took all ranks."""
    return tuple(sum(step) / 1e9 for step in zip(*(report["spent"] for report in reports), strict=True))


def _figures(plan: Plan, rank: int, report: Report) -> RankFigures:
    rank_plan, sizes = plan.rank_plans[rank], plan.sizes

    def alive(by_kind: Mapping[str, Elements]) -> float:
        return sum(float(elements * sizes.scales[kind]) for kind, elements in by_kind.items()) * sizes.bytes

    simulated = {sample.index: alive(sample.by_kind) for sample in samples(plan.trace, rank)}
    by_event = tuple((index, simulated[index], values + flying) for index, values, flying in report["memory"])
    program = rank_plan.program
    sends = {at: program.values_of(event.inputs) for at, event in enumerate(program.events) if event.op == "pass_to"}
    read = {batch for event in program.events if event.op in READS for batch in event.batches}

    def sent(size: Size, messages: Iterable[Sequence[Value]]) -> float:
        by_rows = sum(one.sent(rank, size) for one in rank_plan.collectives.values())
        return float((by_rows + sum(map(size, messages))) * sizes.bytes)

    received = [values for at, values in sends.items() if at in rank_plan.messages]
    return RankFigures(
        rank=rank,
        simulated=max(simulated.values(), default=0.0),
        measured=max((measured for _, _, measured in by_event), default=0),
        in_flight=max((flying for _, _, flying in report["memory"]), default=0),
        sent=sent(lambda values: sum(map(sizes.numel, values)), received),
        simulated_sent=sent(sizes.simulated, sends.values()),
        allocator=report["allocator_peak"],
        wire=report["wire"],
        examples=len(read),
        bytes=len(read) * sizes.batch(0) * sizes.bytes,
        by_event=by_event,
    )


def _whole_step(times: Sequence[Times], shared: bool) -> int:
    """Return the nanoseconds of a whole step, from the first rank's start to the last rank's end."""
    if shared:
        return max(end for *_, end in times) - min(start for *_, start, _ in times)
    return max(end - start for *_, start, end in times)


def _unit(plan: Plan, reports: Sequence[Report]) -> float:
    """Return the nanoseconds of the median forward of one batch, scaled by work: part of a weight does part of it."""
    found: list[float] = []
    for rank_plan, report in zip(plan.rank_plans, reports, strict=True):
        for i, event in enumerate(rank_plan.program.events):
            if event.op == "forward":
                inputs = rank_plan.program.values_of(event.inputs)
                work = OPERATIONS["forward"].work(plan.trace.shape, event.layer, len(event.batches), inputs)
                if work:  # none where a row may see none of the keys
                    found += [(ends[i] - starts[i]) / float(work) for starts, ends, _, _ in report["steps"]]
    return max(median(found), 1.0) if found else 1e6


def _programs(plan: Plan, times: Sequence[Times], shared: bool, unit: float) -> list[Program]:
    """Return the programs of all ranks in one step, with measured times counted from its beginning."""
    first, scale = min(begun for _, _, begun, _ in times), TICKS / unit
    zeros = [first if shared else begun for _, _, begun, _ in times]
    starts = [[start - zero for start in started] for (started, *_), zero in zip(times, zeros, strict=True)]
    made: list[Program] = []
    for rank, (rank_plan, (_, ended, _, over), zero) in enumerate(zip(plan.rank_plans, times, zeros, strict=True)):
        events: list[Event] = []
        for index, event in enumerate(rank_plan.program.events):
            # An operation that was neither waited for nor seen to end ended with the step at the latest.
            called, end = starts[rank][index], (over if ended[index] < 0 else ended[index]) - zero
            begun = called
            if (collective := rank_plan.collectives.get(index)) is not None:
                begun = max(starts[other][i] for other, i in zip(collective.members, collective.events, strict=True))
            elif event.op == "receive" and (message := rank_plan.messages.get(index)) is not None:
                begun = max(called, starts[message.source][message.sent])
            start = round(min(begun, end) * scale)
            events.append(event.at(round(called * scale), start, max(0, round(end * scale) - start)))
        made.append(Program(rank, events, rank_plan.program.values, rank_plan.program.moves))
    return made


def _spreads(plan: Plan, runs: Sequence[Sequence[Program]], tick: float) -> list[Spread]:
    """Return medians by operation, over all ranks and steps: computation in the order of its first use, then
    communication. A collective counts from the moment at which its last member came."""
    simulated: dict[str, list[float]] = {}
    measured: dict[str, list[float]] = {}
    for rank, rank_plan in enumerate(plan.rank_plans):
        for index, event in enumerate(rank_plan.program.events):
            simulated.setdefault(event.op, []).append(event.length / TICKS)
            measured.setdefault(event.op, []).extend(run[rank].events[index].length * tick for run in runs)
    return [
        Spread(op, len(simulated[op]), median(simulated[op]), median(measured[op]))
        for kind in (COMPUTE, COLLECTIVES, MESSAGES, READS, ("wait",))
        for op in simulated
        if op in kind
    ]
