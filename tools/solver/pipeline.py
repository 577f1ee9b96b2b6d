"""All schedules of a pipeline, as constraints for CP-SAT.

The model is the simulator's meaning of the family (see `lib.analysis.bounds.optima` and `lib.trace.lifetimes`), in
tenths of a time unit and activations of one batch. Every schedule that can be run is in it, with its times and with no
more memory than it has; so what is proved of all that is in it holds for all that can be run. That something as good
can be run is seen by simulating what the solver finds, before it is stored.

- *Time.* The forwards, backwards and updates of a rank do not overlap. Where messages are awaited at once, neither do
  its sends and receives: 0.2 each; a receive takes its rank from its call on, also as long as there is nothing to
  receive, and nothing else keeps a rank waiting. With overlap a send and the call of a receive take no time, but are
  made between two operations; a message is there 0.4 after it was sent and 0.2 after its receive was issued, whichever
  is later.
- *At rest.* Weights and optimizer states are there all the time: what an update gives takes the place of what it got.
- *Besides.* Memory is sampled when an operation or a call begins. A value is there from the end of what makes it, or
  the call of its receive, until the start of what uses it last. One that is sent is there until its send starts (with
  overlap: is over, when it may be awaited for free), and until its receive has been issued. So the peak is the height
  of a cumulative constraint over these intervals, if each begins at a moment that is sampled. Awaited at once, it does:
  the next call comes at once.
- *When a receive is issued* is a choice, with overlap: what is early costs the receiver, what is late the sender. It is
  enough to allow it between operations, for only at their starts is memory sampled. Awaited at once, a receive is
  issued when what came before it is over.
- *Idling.* With overlap a rank of the model may idle before any operation. One that runs idles only where it waits for
  a message, so there may be more in the model than can be run; not less. What dies on a sender while it idles, for its
  receive is issued elsewhere, is not seen together with what was made just before, if nothing is called between. So
  with overlap the outcome of an operation or a call is born at any moment until its rank does something else.
- *A loose model* takes less to be solved: messages in flight cost nothing there. A value that is sent is its sender's
  only until it was sent, and with overlap what is received is there from its use on, as if receives were free. Nothing
  has more memory in it than in the full model. So its bounds hold there, which then only has to reach them.
- A channel has room for one message: who sends a second one does not go on before the first is being received. In
  simulated time this wait is nothing, so a sender may go on earlier than that; what rules a schedule out is only ranks
  that wait in a circle. So bounds are proved without any constraint for it. Where the best schedule deadlocks, `room`
  keeps senders in simulated time too: that is enough to exclude circles, and where the best of these schedules is as
  good as the bound, nothing was lost. With overlap a send is awaited when its receive has been issued, for until then
  its value is there anyway; so no rank waits for room.
- Every operation takes the batches in order, 0 first, on every rank, and nothing is lost by it. For take any schedule,
  and on each rank give the operations of a kind (forward of layer 3, say, or its sending) new batches, in order of
  time. What has to come before what is always between two operations of one batch, x before y; so the n-th of all y
  comes after n of the y, hence after n of the x, hence after the n-th x, and by the same margin. Neither memory nor
  time sees a difference: of values that begin with x and end with y there are as many as x are over and y are not
  begun, and a channel gives the n-th receive the n-th message anyway.
"""

from __future__ import annotations

from typing import NamedTuple

from ortools.sat.python import cp_model

from lib.analysis.bounds.optima import Size
from lib.schedules.pipelines.action import KINDS, Action

__all__ = ["COMPUTE", "MESSAGE", "TENTH", "UPDATE", "WEIGHT", "Pipeline", "Span", "message"]

COMPUTE, UPDATE, MESSAGE = 10, 5, 2
"""Tenths of a time unit that the operations take: UNIT costs."""
TENTH = 10
WEIGHT = 2
"""A weight, its gradient or its optimizer state, in activations of one batch."""


class Span(NamedTuple):
    """When an operation is issued, starts and ends, in tenths of a time unit, and when what it makes is born.

    From the one to the other its rank does nothing else, which is the interval.
    """

    issued: cp_model.IntVar
    start: cp_model.IntVar
    end: cp_model.LinearExprT
    born: cp_model.LinearExprT
    interval: cp_model.IntervalVar


def message(size: Size, kind: str, rank: int, batch: int) -> Action:
    """Return a message of a rank. Here each layer is a stage, so it is of the rank's last layer or of its first one."""
    return Action((rank + 1) * size.each - 1 if KINDS[kind].towards > 0 else rank * size.each, kind, batch)


Lifetime = tuple[cp_model.LinearExprT, cp_model.LinearExprT]
"""From when, and until when, a value is there."""


class Pipeline:
    """All schedules of a pipeline that end by `horizon`. `loose`: messages in flight cost no memory, on either side.
    `room`: senders wait for room in simulated time.
    """

    def __init__(self, size: Size, horizon: int, *, loose: bool = False, room: bool = False) -> None:
        self.size, self.horizon, self.loose, self.room = size, horizon, loose, room
        self.model = cp_model.CpModel()
        self.spans: dict[Action, Span] = {}
        self.batches = range(size.batches)
        for rank in range(size.stages):
            self._operations(rank)
        for rank in range(size.stages):
            self._order(rank)
            self.model.add_no_overlap([span.interval for span in self._of(rank)])
            if not size.overlap and not loose:
                self._no_idling(rank)
        self._in_turn()
        self.end = self.model.new_int_var(0, horizon, "end")
        self.model.add_max_equality(
            self.end, [span.end for action, span in self.spans.items() if action.kind == "UPDATE"]
        )

    def _of(self, rank: int) -> list[Span]:
        return [span for action, span in self.spans.items() if action.stage // self.size.each == rank]

    # -- operations by rank, place of the layer in its stage, and batch ----------------------------------------------

    def f(self, rank: int, place: int, batch: int) -> Span:
        return self.spans[Action(rank * self.size.each + place, "F", batch)]

    def b(self, rank: int, place: int, batch: int) -> Span:
        return self.spans[Action(rank * self.size.each + place, "B", batch)]

    def u(self, rank: int, place: int) -> Span:
        return self.spans[Action(rank * self.size.each + place, "UPDATE")]

    def sent(self, what: str, rank: int, batch: int) -> Span:
        return self.spans[message(self.size, f"SEND_{what}", rank, batch)]

    def received(self, what: str, rank: int, batch: int) -> Span:
        """Return the receive; with overlap, its call."""
        return self.spans[message(self.size, f"RECV_{what}", rank, batch)]

    def _operations(self, rank: int) -> None:
        size = self.size
        layers = range(rank * size.each, (rank + 1) * size.each)
        actions = [(Action(layer, "UPDATE"), UPDATE) for layer in layers]
        actions += [
            (Action(layer, kind, batch), COMPUTE) for layer in layers for batch in self.batches for kind in "FB"
        ]
        kinds = [kind for kind, row in KINDS.items() if row.towards and 0 <= rank + row.towards < size.stages]
        if size.overlap and self.loose:
            kinds = []
        length = 0 if size.overlap else MESSAGE  # with overlap only the call takes place at a time of its own
        actions += [(message(size, kind, rank, batch), length) for batch in self.batches for kind in kinds]
        for action, length in actions:
            receive = action.kind.startswith("RECV") and not size.overlap
            self.spans[action] = self._span(str(action), length, receive)

    def _span(self, name: str, length: int, receive: bool) -> Span:
        """Return an operation of some length. Of a receive, it is the time from when there is something to receive."""
        model, last = self.model, self.horizon - length
        start = model.new_int_var(0, last, name)
        end = start + length
        if self.loose or not (self.size.overlap or receive):
            return Span(start, start, end, end, model.new_fixed_size_interval_var(start, length, name))
        taken = model.new_int_var(length, self.horizon, f"time of {name}")
        if self.size.overlap:
            born = model.new_int_var(length, self.horizon, f"birth from {name}")
            return Span(start, start, end, born, model.new_interval_var(start, taken, born, name))
        issued = model.new_int_var(0, last, f"call of {name}")
        return Span(issued, start, end, end, model.new_interval_var(issued, taken, end, name))

    def _no_idling(self, rank: int) -> None:
        """Something is always under way on a rank until all is over."""
        mine = self._of(rank)
        total = cp_model.LinearExpr.sum  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        over = self.model.new_int_var(0, self.horizon, f"end of {rank}")
        self.model.add_max_equality(over, [span.end for span in mine])
        self.model.add(over + total([span.issued for span in mine]) == total([span.end for span in mine]))

    def _order(self, rank: int) -> None:
        """Demand what has to come before what."""
        add, last, top = self.model.add, self.size.stages - 1, self.size.each - 1
        for batch in self.batches:
            for place in range(top):
                add(self.f(rank, place + 1, batch).start >= self.f(rank, place, batch).end)
                add(self.b(rank, place, batch).start >= self.b(rank, place + 1, batch).end)
            for place in range(top + 1):
                add(self.u(rank, place).start >= self.b(rank, place, batch).end)
            add(self.b(rank, top, batch).start >= self.f(rank, top, batch).end)
            if rank == last:
                continue
            over, back = self.f(rank, top, batch), self.b(rank + 1, 0, batch)
            there, here = self.f(rank + 1, 0, batch), self.b(rank, top, batch)
            for (made, source), (used, target), what in (
                ((over, rank), (there, rank + 1), "F"),
                ((back, rank + 1), (here, rank), "B"),
            ):
                if self.size.overlap and self.loose:
                    add(used.start >= made.end + 2 * MESSAGE)
                    continue
                sent, received = self.sent(what, source, batch), self.received(what, target, batch)
                add(sent.start >= made.end)
                if self.size.overlap:
                    add(used.start >= sent.start + 2 * MESSAGE)
                    add(used.start >= received.issued + MESSAGE)
                    continue
                self.model.add_max_equality(received.start, [sent.end, received.issued])
                add(used.start >= received.end)

    def _in_turn(self) -> None:
        """Batches in order; and room in the channels, if asked for."""
        for action, span in self.spans.items():
            if 0 <= action.microbatch < self.size.batches - 1:
                after = action._replace(microbatch=action.microbatch + 1)
                self.model.add(span.end <= self.spans[after].start)
                if self.room and action.kind.startswith("RECV") and not self.size.overlap:
                    source = action.stage // self.size.each + KINDS[action.kind].towards
                    sent = self.sent(action.kind[-1], source, after.microbatch)
                    self.model.add(sent.end >= span.start)

    # -- memory -------------------------------------------------------------------------------------------------------

    def limit_memory(self, peak: cp_model.IntVar | int) -> None:
        """Let no rank hold more than `peak` when one of its operations starts."""
        for rank in range(self.size.stages):
            alive = [(start, end, WEIGHT) for start, end in self._gradients(rank)]
            alive += [(start, end, 1) for batch in self.batches for start, end in self._per_batch(rank, batch)]
            intervals = [
                self.model.new_interval_var(start, self.model.new_int_var(0, self.horizon + 1, ""), end, "")
                for start, end, _ in alive
            ]
            rest = 2 * WEIGHT * self.size.each
            self.model.add_cumulative(intervals, [amount for _, _, amount in alive], peak - rest)

    def limit_memory_to_a_variable(self, least: int = 0) -> cp_model.IntVar:
        """Limits the memory by a variable, which is returned, of at least `least`."""
        peak = self.model.new_int_var(least, (self.size.batches + 2) * (self.size.each + 1) * 4, "peak")
        self.limit_memory(peak)
        return peak

    def _gradients(self, rank: int) -> list[Lifetime]:
        """Return when the gradients of weights are there. One tick more than until the start of the last use."""
        layers = range(self.size.each)
        return [(self.b(rank, place, 0).born, self.u(rank, place).start + 1) for place in layers]

    def _per_batch(self, rank: int, batch: int) -> list[Lifetime]:
        """Return when activations and their gradients are there. One tick more than until the start of the last use."""
        last, top = self.size.stages - 1, self.size.each - 1
        first, lowest = self.f(rank, 0, batch), self.b(rank, 0, batch)
        given = first.start if rank == 0 else self._arrival("F", rank, batch, first)
        found: list[Lifetime] = [(given, lowest.start + 1)]
        for place in range(top):
            start = self.b(rank, place, batch).start + 1
            found.append((self.f(rank, place, batch).born, self.b(rank, place + 1, batch).start + 1))
            found.append((self.b(rank, place + 1, batch).born, start))
        output, used = self.f(rank, top, batch), self.b(rank, top, batch)
        if rank == last:  # the output, then its gradient
            found.append((output.born, used.start + 1))
        else:
            found.append((output.born, self._handed_over("F", rank, rank + 1, batch, output)))
            found.append((self._arrival("B", rank, batch, used), used.start + 1))
        if rank > 0:
            found.append((lowest.born, self._handed_over("B", rank, rank - 1, batch, lowest)))
        return found

    def _arrival(self, what: str, rank: int, batch: int, use: Span) -> cp_model.LinearExprT:
        """Return from when a value that is received is there."""
        return use.start if self.size.overlap and self.loose else self.received(what, rank, batch).born

    def _handed_over(self, what: str, source: int, target: int, batch: int, made: Span) -> cp_model.LinearExprT:
        """Until when a value that is sent is there."""
        if self.loose:
            return made.end + MESSAGE if self.size.overlap else self.sent(what, source, batch).start + 1
        sent, received = self.sent(what, source, batch), self.received(what, target, batch)
        until = self.model.new_int_var(0, self.horizon + 1, "")  # at least: nothing is gained by more
        self.model.add(until >= sent.start + (MESSAGE if self.size.overlap else 1))
        self.model.add(until >= received.issued)
        return until

    # -- what only the leanest know ----------------------------------------------------------------------------------

    def lean(self) -> None:
        """Demand what every schedule of the least peak meets (`search.floor`; 2 batches or more, 1 or 2 layers a
        stage).

        It only saves the solver work: on every rank batch b >= 2 begins when batch b - 1 is through. For take a rank,
        and say that a batch is begun from its first forward and through from its last backward.

        If batch b - 1 begins its backward after batch 0 is through, gradients of all layers are there, and with its own
        values the memory is full: so b is not begun then. Nor between the two backwards (of 2 layers): two values of
        each batch would be there, where 3 have room. Else both backwards of batch 0 are not over when b - 1 begins its
        own. With 2 layers that may be batch 1, but not batch 2: it would find the gradient of a weight, worth 2, and 2
        values of each batch before, and needs 3, which makes 9, where 7 have room. When batch 1 does, 7 are there, and
        so batch 2 is not begun; nor can it begin before both are through, for 2 values of each of three batches and a
        gradient make 8, and when batch 0 is through only 3 have room.
        """
        for rank in range(self.size.stages):
            for batch in self.batches[2:]:
                self.model.add(self.f(rank, 0, batch).start >= self.b(rank, 0, batch - 1).end)
