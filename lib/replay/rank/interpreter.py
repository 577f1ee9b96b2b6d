"""The interpreter: walks one rank's events with real tensors.

It is a generator that yields a handle whenever the Trace waits: who drives it decides what waiting means. Each
operation on this rank has one method of its name; communication is in `exchange`. Values are freed before the event at
which the Trace frees them, and messages are gone by then. What nobody will use again is overwritten, which is what the
simulator's memory means; what nobody ever uses is not computed.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from lib.replay.layers import layers, optim
from lib.replay.layers.layers import Source
from lib.replay.layers.tensors import join, select
from lib.replay.options import Hook, ReplayOptions
from lib.replay.plan.libraries_plan import Share
from lib.replay.plan.plan import Plan
from lib.replay.rank import exchange
from lib.replay.rank.clocks import Clock
from lib.replay.transports.transport import Handle, Transport
from lib.trace.event import COMMUNICATION, COMPUTE, FREE, TIMED, Event
from lib.values.values import Value

__all__ = ["Interpreter", "Kit"]


@dataclass
class Kit:
    """What all steps of a rank share. `at` is told the number of each event before it begins."""

    rank: int
    plan: Plan
    options: ReplayOptions
    source: Source
    transport: Transport
    device: torch.device
    results: Tensor
    shares: dict[str, Share] = field(default_factory=dict[str, Share])
    hook: Hook | None = None
    at: Callable[[int], None] = field(default=lambda index: None)


class Sample(NamedTuple):
    """Memory of a rank at an event: bytes of its values, and of buffers besides, by communication and where they lie.

    `allocated` are those that the GPU has given out in all.
    """

    index: int
    values: int
    flying: dict[int, dict[int, int]]
    allocated: int


class Interpreter:
    """One step of one rank. With `record` it also notes its memory, and keeps what is compared with the truth."""

    def __init__(self, kit: Kit, clock: Clock, record: bool = False) -> None:
        self.kit = kit
        self.desk = kit.plan.desks[kit.rank]
        self.sizes = kit.plan.sizes
        self.clock = clock
        self.record = record
        self.tensors: dict[int, Tensor] = {}
        self.works: dict[int, exchange.Exchange] = {}
        self.samples: list[Sample] = []
        self.memory: list[tuple[int, int, int, int]] = []
        self.now = -1
        self.moved: dict[int, float] = {}
        self.kernel = layers.autograd if kit.options.backward == "autograd" else layers.backward
        self.rows = kit.plan.trace.batches * self.sizes.length
        self.loaded: dict[int, Tensor] = {}
        for event in self.desk.program.events:
            if event.op in _LOADS:
                self._load(event)

    def run(self) -> Iterator[Handle]:
        """The whole program. Yields what it has to wait for."""
        kit, clock = self.kit, self.clock
        events = self.desk.program.events
        for index, event in enumerate(events):
            kit.at(index)
            yield from self._come_to(index, event.issued)
            self._free(index)
            if self.works:
                self._notice()
            if self.record and event.op in TIMED and event.start is not None:  # else it never takes place
                self.samples.append(self._sample(index))
            clock.begin(index)
            if event.op in COMMUNICATION:
                work = self.works[index] = exchange.issue(self, index, event)
                self.moved[index] = work.bytes
                if event.blocking:
                    yield from self._settle(index)
            elif event.op == "wait":
                yield from self._settle(event.arg[0])
                clock.end(index)
            else:
                _HERE[event.op](self, index, event)
                clock.end(index)
            if kit.hook is not None:
                kit.hook(kit.rank, index, event, self.tensors)
        kit.at(len(events))
        for index, work in list(self.works.items()):
            yield work.handle
            work.handle.wait()
            self._over(index, work)
        self._note()

    def _come_to(self, index: int, now: int) -> Iterator[Handle]:
        """Comes to an event, at its simulated time: by then the messages that the Trace has freed have to be gone."""
        for sent in self.desk.taken.get(index, ()):
            if (work := self.works.get(sent)) is not None:
                yield work.handle
                work.handle.wait()
                self._over(sent, work)
        if now > self.now:
            self._note()
            self.now = now

    # -- communication in the background ------------------------------------------------------------------------

    def _settle(self, index: int) -> Iterator[Handle]:
        """Waits for communication `index`, and takes what it brought. A sender does not wait for its receiver."""
        work = self.works.get(index)
        if work is None:  # a message that arrived long ago
            return
        if work.is_send:
            if not work.noticed:
                self.clock.end(index)
                work.noticed = True
            return
        yield work.handle
        work.handle.wait()
        work.finish()
        self._over(index, work)

    def _notice(self) -> None:
        """Notes which communications in the background are over by now."""
        for index, work in self.works.items():
            if not work.noticed and work.handle.done():
                self.clock.end(index)
                work.noticed = True

    def _over(self, index: int, work: exchange.Exchange) -> None:
        if not work.noticed:
            self.clock.end(index)
        del self.works[index]

    # -- memory ---------------------------------------------------------------------------------------------------

    def value(self, number: int) -> Value:
        """What the Trace says of a value that is used."""
        value = self.desk.program.values[number]
        assert value is not None, "rebuild made every value that is used"
        return value

    def empty(self, numel: int) -> Tensor:
        """A new flat tensor on the rank's device."""
        return torch.empty(numel, dtype=self.kit.source.dtype, device=self.kit.device)

    def mine(self, index: int, number: int) -> Tensor:
        """The tensor of an input, to be overwritten: itself if nobody needs it afterwards, else a copy."""
        tensor = self.tensors[number]
        return tensor if (index, number) in self.desk.owned else tensor.clone()

    def _free(self, index: int) -> None:
        for number in self.desk.frees.get(index, ()):
            self.tensors.pop(number, None)

    def _sample(self, index: int) -> Sample:
        """The memory now."""
        values = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in self.tensors.values()}
        flying: dict[int, dict[int, int]] = {}
        for number, work in self.works.items():
            buffers = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in work.tensors}
            flying[number] = {where: size for where, size in buffers.items() if where not in values}
        allocated = torch.cuda.memory_allocated() if self.kit.device.type == "cuda" else 0
        return Sample(index, sum(values.values()), flying, allocated)

    def _note(self) -> None:
        """Notes the memory of the instant that is over, without the messages that are gone by now.

        A message leaves its sender at the instant of its receive, and what ranks do at the same simulated time they do
        one after the other.
        """
        for index, values, flying, allocated in self.samples:
            left: dict[int, int] = {}
            for number, buffers in flying.items():
                if number in self.works or self.desk.program.events[number].op != "pass_to":
                    left |= buffers
            self.memory.append((index, values, sum(left.values()), allocated))
        self.samples.clear()

    def _keep(self, offset: int, *tensors: Tensor) -> None:
        for tensor in tensors:
            self.kit.results[offset : offset + tensor.numel()].copy_(tensor)
            offset += tensor.numel()

    # -- operations on this rank ----------------------------------------------------------------------------------

    def _load(self, event: Event) -> None:
        """Makes what an operation will load, before the step begins, as a data loader would.

        What is at rest is among the rank's values from then on, the rest when it is asked for.
        """
        source = self.kit.source
        if event.op == "get_activation":
            self.loaded[event.outputs[0]] = source.rows("data", sorted(event.batches)).view(-1)
            return
        weight, state = event.outputs
        ranges, layer = self.sizes.ranges(self.value(weight)), self.value(weight).layer
        for number, kind, width in ((weight, "weight", 1), (state, "state", self.sizes.moments)):
            made = source.slice(kind, layer, ranges, width)
            if number in self.desk.rest:
                self.tensors[number] = made.to(self.kit.device)
            else:
                self.loaded[number] = made

    def load_weights(self, index: int, event: Event) -> None:
        for number in event.outputs:
            if number in self.loaded:
                self.tensors[number] = self.loaded.pop(number).to(self.kit.device)

    get_activation = load_weights

    def _matrix(self, number: int) -> Tensor:
        return self.tensors[number].view(-1, self.sizes.hidden)

    def forward(self, index: int, event: Event) -> None:
        x, weight = map(self._matrix, event.inputs)
        self.tensors[event.outputs[0]] = layers.forward(x, weight).view(-1)

    def loss(self, index: int, event: Event) -> None:
        batches = getattr(self.value(event.inputs[0]), "batches", frozenset[int]())
        target = self.kit.source.rows("target", sorted(batches)).to(self.kit.device)
        grad = layers.loss_gradient(self._matrix(event.inputs[0]), target, self.rows)
        self.tensors[event.outputs[0]] = grad.view(-1)

    def backward(self, index: int, event: Event) -> None:
        x, grad, weight = map(self._matrix, event.inputs)
        need_input = event.outputs[1] in self.desk.used
        by_weight, by_input = self.kernel(x, grad, weight, need_input)
        self.tensors[event.outputs[0]] = by_weight.reshape(-1)
        self.tensors[event.outputs[1]] = self.empty(x.numel()) if by_input is None else by_input.reshape(-1)

    def update(self, index: int, event: Event) -> None:
        grad_id, weight_id, state_id = event.inputs
        ranges, width = self.sizes.ranges(self.value(weight_id)), self.sizes.moments
        held = self.sizes.ranges(self.value(state_id))
        grad = select(self.tensors[grad_id], self.sizes.ranges(self.value(grad_id)), ranges)
        weight = self.mine(index, weight_id)
        if held == ranges:
            state = self.mine(index, state_id)
        else:  # of a larger state only the part that goes one step on is kept
            state = select(self.tensors[state_id], held, ranges, width).clone()
        optim.step(self.kit.options.optimizer, grad, weight, state)
        self.tensors[event.outputs[0]], self.tensors[event.outputs[1]] = weight, state
        if self.record and index in self.desk.judged:
            self._keep(self.desk.judged[index].offset, grad, weight, state)

    def set_final_weight(self, index: int, event: Event) -> None:
        if self.record and index in self.desk.finals:
            self._keep(self.desk.finals[index].offset, self.tensors[event.inputs[0]])

    def add(self, index: int, event: Event) -> None:
        left, right = event.inputs
        if (index, left) not in self.desk.owned and (index, right) in self.desk.owned:
            left, right = right, left
        self.tensors[event.outputs[0]] = self.mine(index, left).add_(self.tensors[right])

    def combine(self, index: int, event: Event) -> None:
        parts = [(self.tensors[number], self.sizes.ranges(self.value(number))) for number in event.inputs]
        self.tensors[event.outputs[0]] = join(parts, self.sizes.width(self.value(event.inputs[0])))

    def shard(self, index: int, event: Event) -> None:
        number, made = event.inputs[0], self.value(event.outputs[0])
        have, want = self.sizes.ranges(self.value(number)), self.sizes.ranges(made)
        self.tensors[event.outputs[0]] = select(self.tensors[number], have, want, self.sizes.width(made)).clone()

    def fake_grad(self, index: int, event: Event) -> None:
        """A zero contribution. (One that pretends to have batches never gets into a final weight: see check.)"""
        self.tensors[event.outputs[0]] = self.empty(self.sizes.numel(self.value(event.outputs[0]))).zero_()

    foreign = fake_grad


_LOADS = frozenset(["load_weights", "get_activation"])
_HERE = {name: getattr(Interpreter, name) for name in COMPUTE | FREE - {"wait"}}
