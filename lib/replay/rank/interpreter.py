"""The interpreter: walks one rank's events with real tensors.

It is a generator that yields a handle whenever the Trace waits: who drives it decides what waiting means. What each
operation does is in `kernels`, communication in `communication`. Values are freed before the event at which the Trace
frees them, and messages are gone by then.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from lib.replay.layers.ranges import select
from lib.replay.plan.plan import Compared
from lib.replay.rank.communication import Started, bytes_sent, issue
from lib.replay.rank.context import Call, RankContext
from lib.replay.rank.kernels import KERNELS, PREPARED
from lib.replay.rank.transport import Handle
from lib.trace.event import Event
from lib.values.operations import COMMUNICATION, TIMED

if TYPE_CHECKING:
    from lib.replay.rank.steps import Clock, Ranges

__all__ = ["Interpreter"]


class Sample(NamedTuple):
    """Memory of a rank at an event: bytes of its values, and of buffers besides, by communication and where they lie.

    `allocated` are those that the GPU has given out in all.
    """

    index: int
    values: int
    flying: dict[int, dict[int, int]]
    allocated: int


class Interpreter:
    """One step of one rank. With `record` it also notes its memory, and keeps what is to be compared; with `ranges` a
    profiler is told what it does."""

    def __init__(self, context: RankContext, clock: Clock, record: bool = False, ranges: Ranges | None = None) -> None:
        self.context = context
        self.plan = context.mine
        self.clock = clock
        self.record = record
        self.ranges = ranges
        self.tensors: dict[int, Tensor] = {}
        self.prepared: dict[int, Tensor] = {}
        self.under_way: dict[int, Started] = {}
        self.samples: list[Sample] = []
        self.memory: list[tuple[int, int, int, int]] = []
        self.now = -1
        self.sent = 0.0
        context.step += 1
        context.softmaxes.clear()
        for index, event in enumerate(self.plan.program.events):
            if event.op in PREPARED:
                self._prepare(index, event)

    def run(self) -> Iterator[Handle]:
        """The whole program. Yields what it has to wait for."""
        context, clock, hook, ranges = self.context, self.clock, self.context.job.hook, self.ranges
        events = self.plan.program.events
        for index, event in enumerate(events):
            context.now_in(index)
            yield from self._come_to(index, event.issued)
            self._free(index)
            if self.under_way:
                self._notice()
            if self.record and event.op in TIMED and event.start is not None:  # else it never takes place
                self.samples.append(self._sample(index))
            if ranges is not None:
                ranges.begin(index)
            clock.begin(index)
            if event.op in COMMUNICATION:
                call = self._call(index, event)
                if self.record:
                    self.sent += bytes_sent(call)
                self.under_way[index] = issue(call)
                if event.blocking:
                    yield from self._settle(index)
            elif event.op == "wait":
                yield from self._settle(event.arg[0])
                clock.end(index)
            else:
                self._do(index, event)
                clock.end(index)
            if ranges is not None:
                ranges.end(index)
            if hook is not None:
                hook(context.rank, index, event, self.tensors)
        context.now_in(len(events))
        for index, work in list(self.under_way.items()):
            yield work.handle
            work.handle.wait()
            self._over(index, work)
        self._note()

    def _come_to(self, index: int, now: int) -> Iterator[Handle]:
        """Comes to an event, at its simulated time: by then the messages that the Trace has freed have to be gone."""
        for sent in self.plan.gone_before.get(index, ()):
            if (work := self.under_way.get(sent)) is not None:
                yield work.handle
                work.handle.wait()
                self._over(sent, work)
        if now > self.now:
            self._note()
            self.now = now

    # -- communication in the background ------------------------------------------------------------------------

    def _settle(self, index: int) -> Iterator[Handle]:
        """Waits for communication `index`, and takes what it brought. A sender does not wait for its receiver."""
        work = self.under_way.get(index)
        if work is None:  # a message that arrived long ago
            return
        if work.is_send:
            if not work.noticed:
                self.clock.end(index)
                work.noticed = True
            return
        yield work.handle
        work.handle.wait()
        self._give(self.plan.program.events[index], work.buffers if work.outputs is None else work.outputs())
        self._over(index, work)

    def _notice(self) -> None:
        """Notes which communications in the background are over by now."""
        for index, work in self.under_way.items():
            if not work.noticed and work.handle.done():
                self.clock.end(index)
                work.noticed = True

    def _over(self, index: int, work: Started) -> None:
        if not work.noticed:
            self.clock.end(index)
        del self.under_way[index]

    # -- memory ---------------------------------------------------------------------------------------------------

    def _free(self, index: int) -> None:
        for number in self.plan.frees.get(index, ()):
            self.tensors.pop(number, None)

    def _sample(self, index: int) -> Sample:
        """The memory now."""
        values = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in self.tensors.values()}
        flying: dict[int, dict[int, int]] = {}
        for number, work in self.under_way.items():
            buffers = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in work.buffers}
            flying[number] = {where: size for where, size in buffers.items() if where not in values}
        allocated = torch.cuda.memory_allocated() if self.context.device.type == "cuda" else 0
        return Sample(index, sum(values.values()), flying, allocated)

    def _note(self) -> None:
        """Notes the memory of the instant that is over, without the messages that are gone by now.

        A message leaves its sender at the instant of its receive, and what ranks do at the same simulated time they do
        one after the other.
        """
        for index, values, flying, allocated in self.samples:
            left: dict[int, int] = {}
            for number, buffers in flying.items():
                if number in self.under_way or self.plan.program.events[number].op != "pass_to":
                    left |= buffers
            self.memory.append((index, values, sum(left.values()), allocated))
        self.samples.clear()

    # -- operations on this rank ----------------------------------------------------------------------------------

    def _call(self, index: int, event: Event) -> Call:
        return Call(self.context, self.plan, index, event, self.tensors)

    def _prepare(self, index: int, event: Event) -> None:
        """Makes what an operation will load, before the step begins. What is at rest is among the rank's values from
        then on, the rest when it is asked for."""
        for number, made in zip(event.outputs, PREPARED[event.op](self._call(index, event), ()), strict=True):
            if number in self.plan.at_rest:
                self.tensors[number] = made.to(self.context.device)
            else:
                self.prepared[number] = made

    def _do(self, index: int, event: Event) -> None:
        if event.op in PREPARED:
            for number in event.outputs:
                if number in self.prepared:
                    self.tensors[number] = self.prepared.pop(number).to(self.context.device)
            return
        inputs = [self.tensors[number] for number in event.inputs]
        self._give(event, KERNELS[event.op](self._call(index, event), inputs))
        if self.record:
            for compared in (self.plan.updates.get(index), self.plan.final_weights.get(index)):
                if compared is not None:
                    self._keep(compared)

    def _give(self, event: Event, tensors: Sequence[Tensor]) -> None:
        """Outputs that nobody ever waits for have no ids."""
        self.tensors.update(zip(event.outputs, tensors, strict=False))

    def _keep(self, compared: Compared) -> None:
        """Keeps what is compared with ordinary training: of a larger gradient the part that was used."""
        offset, sizes = compared.offset, self.context.sizes
        for number in compared.values:
            value = self.plan.value(number)
            tensor = select(self.tensors[number], sizes.ranges(value), compared.ranges, sizes.width(value))
            self.context.results[offset : offset + tensor.numel()].copy_(tensor)
            offset += tensor.numel()
