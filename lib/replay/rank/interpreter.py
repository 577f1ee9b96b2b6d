"""The interpreter: walks one rank's events with real tensors, from the rank's start to its report.

It is a generator that yields a handle whenever the Trace waits: its driver decides what waiting means. A rank does the
step once for comparison, then unmeasured, then measured: an operation that waits for others is timed from the call to
the moment at which the rank goes on; one in the background ends when that is noticed, at its wait, or at the first
operation before which it was found to be over.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lib.replay.options import Hook, ReplayOptions
from lib.replay.plan import Plan
from lib.replay.rank.kernels import KERNELS, PREPARED, Call, Started, issue
from lib.replay.rank.transport import Handle, Transport
from lib.replay.result import Report, Times
from lib.replay.training import InitialNumbers, Kept, select
from lib.trace.event import Event
from lib.values.dims import RunSet
from lib.values.operations import COMMUNICATION, TIMED
from lib.values.placement import Place


@dataclass(frozen=True)
class Job:
    """The work of all ranks of a replay, however they were started."""

    plan: Plan
    options: ReplayOptions
    initial: InitialNumbers
    hook: Hook | None = None

    @classmethod
    def of(cls, plan: Plan, options: ReplayOptions, hook: Hook | None = None, share: bool = True) -> Job:
        """Make the job of a plan, whose ranks may `share` initial numbers. ReplayError if a library cannot train it."""
        if options.against:
            from lib.replay.rank.libraries import prepare  # here and not above: it imports much of torch

            prepare(plan, options.against)  # once, not in each forked rank
        return cls(plan, options, InitialNumbers(plan.sizes, getattr(torch, options.dtype), options.seed, share), hook)


@dataclass
class RankContext:
    """The state that all steps of a rank share. `mine` is the plan of this rank, `rows` counts those of all batches.

    `softmaxes` has those that this step has finished, by activation, before their numbers were divided; `targets` has
    those of the outputs of which a loss was taken. `now` is the number of the current event, passed on to `moved`.
    """

    job: Job
    rank: int
    transport: Transport
    device: torch.device
    moved: Callable[[int], None] = lambda index: None
    now: int = -1
    softmaxes: dict[int, list[tuple[RunSet, Tensor]]] = field(default_factory=dict)
    targets: dict[Place, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan, self.options, self.initial = self.job.plan, self.job.options, self.job.initial
        self.mine, self.sizes = self.plan.rank_plans[self.rank], self.plan.sizes
        self.rows = self.plan.trace.batches * self.sizes.output_points

    def now_in(self, index: int) -> None:
        """Note the event that the rank has reached."""
        self.now = index
        self.moved(index)

    def empty(self, numel: int) -> Tensor:
        """Make a new flat tensor on the rank's device."""
        return torch.empty(numel, dtype=self.initial.dtype, device=self.device)


# -- one step -----------------------------------------------------------------------------------------------------


class Clock:
    """A clock for one step of one rank, which marks the start and the end of each event: with the monotonic clock that
    all processes of a machine share, or on a GPU with events in its stream, which tell when work was really done.
    `spent` are the nanoseconds of the processor that the step took this process."""

    def __init__(self, events: int, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self.starts, self.ends = list[Any]([None] * events), list[Any]([None] * events)

    def mark(self) -> Any:
        """Return a mark of this moment."""
        if not self.on_gpu:
            return time.perf_counter_ns()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        return mark

    def start(self) -> None:
        """Begin the step."""
        if self.on_gpu:
            torch.cuda.synchronize()  # the device is idle, so that the first event happens now
        self.spent = -time.process_time_ns()
        self.begun, self.base = time.perf_counter_ns(), self.mark()

    def stop(self) -> Times:
        """End the step, once the device is done, and return all times."""
        if self.on_gpu:
            torch.cuda.synchronize()
        over = time.perf_counter_ns()
        self.spent += time.process_time_ns()
        return [*map(self._time, self.starts)], [*map(self._time, self.ends)], self.begun, over

    def _time(self, mark: Any) -> int:
        if mark is None:
            return -1
        return self.begun + round(self.base.elapsed_time(mark) * 1e6) if self.on_gpu else mark


class Interpreter:
    """One step of one rank. With `record` it also notes its memory, and keeps the numbers to compare."""

    def __init__(self, context: RankContext, record: bool = False) -> None:
        self.context, self.plan, self.record = context, context.mine, record
        events = self.plan.program.events
        self.clock = Clock(len(events), context.device.type == "cuda")
        self.tensors: dict[int, Tensor] = {}
        self.prepared: dict[int, Tensor] = {}
        self.under_way: dict[int, Started] = {}
        self.samples: list[tuple[int, int, dict[int, dict[int, int]]]] = []
        self.memory: list[tuple[int, int, int]] = []
        self.kept: list[Kept] = []
        self.now = -1
        context.softmaxes.clear()
        # Loaded values are made before the step. Those at rest count from then on, the others from their use.
        for index, event in enumerate(events):
            if event.op in PREPARED:
                self.prepared.update(zip(event.outputs, PREPARED[event.op](self._call(index, event), ()), strict=True))
        for number in self.plan.at_rest & self.prepared.keys():
            self.tensors[number] = self.prepared.pop(number).to(context.device)

    def run(self) -> Iterator[Handle]:
        """Run the whole program. Yields the handles that it has to wait for."""
        context, clock, hook = self.context, self.clock, self.context.job.hook
        events = self.plan.program.events
        for index, event in enumerate(events):
            context.now_in(index)
            # Messages that the Trace has freed by the simulated time of an event have to be gone.
            yield from self._until_over(self.plan.gone_before.get(index, ()))
            if event.issued > self.now:
                self._note()
                self.now = event.issued
            for number in self.plan.frees.get(index, ()):
                self.tensors.pop(number, None)
            for number, work in self.under_way.items():
                if not work.noticed and work.handle.is_completed():
                    self._notice(number, work)
            if self.record and event.op in TIMED and event.start is not None:  # else it never takes place
                self._sample(index)
            clock.starts[index] = clock.mark()
            if event.op in COMMUNICATION:
                self.under_way[index] = issue(self._call(index, event))
                if event.blocking:
                    yield from self._settle(index)
            elif event.op == "wait":
                yield from self._settle(event.arg[0])
                clock.ends[index] = clock.mark()
            else:
                self._do(index, event)
                clock.ends[index] = clock.mark()
            if hook is not None:
                hook(context.rank, index, event, self.tensors)
        context.now_in(len(events))
        yield from self._until_over([*self.under_way])
        self._note()

    def _settle(self, index: int) -> Iterator[Handle]:
        """Wait for communication `index`, and take what it brought. A sender does not wait for its receiver."""
        work = self.under_way.get(index)
        if work is None:  # a message that arrived earlier
            return
        if work.is_send:
            self._notice(index, work)
            return
        yield from _wait(work.handle)
        tensors = work.buffers if work.outputs is None else work.outputs()
        # Outputs that are never waited for have no ids.
        self.tensors.update(zip(self.plan.program.events[index].outputs, tensors, strict=False))
        self._over(index, work)

    def _until_over(self, numbers: Iterable[int]) -> Iterator[Handle]:
        for number in numbers:
            if (work := self.under_way.get(number)) is not None:
                yield from _wait(work.handle)
                self._over(number, work)

    def _over(self, index: int, work: Started) -> None:
        self._notice(index, work)
        del self.under_way[index]

    def _notice(self, index: int, work: Started) -> None:
        if not work.noticed:
            self.clock.ends[index] = self.clock.mark()
            work.noticed = True

    def _sample(self, index: int) -> None:
        """Sample the memory at an event: bytes of values, and of further buffers, by communication and by address."""
        values = _storages(self.tensors.values())
        flying = {
            number: {where: size for where, size in _storages(work.buffers).items() if where not in values}
            for number, work in self.under_way.items()
        }
        self.samples.append((index, sum(values.values()), flying))

    def _note(self) -> None:
        """Note the memory of the instant just over, without the messages that are gone by now.

        A message leaves its sender at the instant of its receive, and ranks do one after the other what they do at the
        same simulated time.
        """
        events = self.plan.program.events
        for index, values, flying in self.samples:
            left: dict[int, int] = {}
            for number, buffers in flying.items():
                left |= buffers if number in self.under_way or events[number].op != "pass_to" else {}
            self.memory.append((index, values, sum(left.values())))
        self.samples.clear()

    def _call(self, index: int, event: Event) -> Call:
        return Call(self.context, self.plan, index, event, self.tensors)

    def _do(self, index: int, event: Event) -> None:
        if event.op in PREPARED:
            for number in self.prepared.keys() & event.outputs:
                self.tensors[number] = self.prepared.pop(number).to(self.context.device)
            return
        inputs = [self.tensors[number] for number in event.inputs]
        self.tensors.update(zip(event.outputs, KERNELS[event.op](self._call(index, event), inputs), strict=False))
        compared, sizes = self.plan.compared.get(index), self.context.sizes
        if self.record and self.context.options.verify and compared is not None:
            layer, elements, values = compared
            for what, number in values.items():  # only the used part of a larger gradient
                value = self.plan.value(number)
                part = select(self.tensors[number], sizes.elements(value), elements, sizes.width(value))
                self.kept.append(Kept(what, layer, elements, index, part.to("cpu", copy=True)))


def _storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Return the bytes of the memory of some tensors, by its address."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def _wait(handle: Handle) -> Iterator[Handle]:
    yield handle
    handle.wait()


# -- all steps of a rank ------------------------------------------------------------------------------------------


def steps(context: RankContext, report: Report) -> Iterator[Handle]:
    """Do all steps of a rank, as a generator of the handles that it waits for. Fills `report`.

    Libraries to compare with take turns with the replay, step by step, so that both meet the same load on the machine.
    """
    barrier, options = context.transport.barrier, context.options
    yield from _wait(barrier())
    report["ready"] = time.perf_counter_ns()
    report["shared_clock"] = context.transport.shared_clock
    yield from _recorded_step(context, report)
    libraries: list[Any] = []
    report |= {"libraries": {}, "steps": [], "spent": []}
    if options.against:
        from lib.replay.rank.libraries import KINDS

        libraries = [KINDS[name](name, context) for name in options.against]
        for one in libraries:
            counts, report["kept"][one.name] = one.prove()
            report["libraries"][one.name] = {"counts": counts, "by": one.by, "steps": [], "spent": []}
    for number in range(options.warmup + options.steps):
        turns = [*libraries, None]  # None is the replay; every other round is reversed
        for library in turns if number % 2 == 0 else reversed(turns):
            turn = Interpreter(context) if library is None else library
            yield from _wait(barrier())
            turn.clock.start()
            yield from turn.run()
            times, of = turn.clock.stop(), report if library is None else report["libraries"][library.name]
            if number >= options.warmup:
                of["steps"].append(times)
                of["spent"].append(turn.clock.spent)
            del turn  # before the next one is made
    yield from _wait(barrier())


def _recorded_step(context: RankContext, report: Report) -> Iterator[Handle]:
    """Do the step whose numbers are kept for comparison, noting what it holds and sends."""
    on_gpu = context.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    interpreter = Interpreter(context, record=True)
    before = context.transport.bytes_sent()
    yield from interpreter.run()
    if on_gpu:
        torch.cuda.synchronize()
    after = context.transport.bytes_sent()
    report["wire"] = None if before is None or after is None else after - before
    report["memory"], report["kept"] = interpreter.memory, {"": interpreter.kept}
    report["allocator_peak"] = torch.cuda.max_memory_allocated() if on_gpu else 0
