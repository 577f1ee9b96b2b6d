"""All schedules of a pipeline, as constraints for CP-SAT.

The model is the simulator's meaning of the family (see `lib.optima`), in tenths of a step and activations of one batch:

- Each rank's forwards, backwards and updates do not overlap, and neither do its sends and receives where they are
  awaited at once (0.2 each; a receive begins when its message has been sent). With overlap the receives are issued at
  the start, so a message arrives 0.4 after it was sent, takes no time of its rank, and may be taken in any order.
- Memory is sampled when an operation starts. A value is there from the end of what makes it (a received one, with
  overlap, from the await, which is put off to the start of what uses it) until the start of what uses it last; a value
  that is sent, until its send starts (with overlap: until it is over, 0.2 later, when it may be awaited for free).
  So the peak is the height of a cumulative constraint over these intervals.
- A channel has room for one message: who sends a second one does not go on before the first is being received. In
  simulated time this wait is nothing, so a sender may go on earlier than that; what rules a schedule out is only ranks
  that wait in a circle. So bounds are proved without any constraint for it, and every schedule is simulated before it
  is stored. Where the best one deadlocks, `room` keeps senders in simulated time too: that is enough to exclude
  circles, and where the best of these schedules is as good as the bound, nothing was lost.
- Every operation takes the batches in order, 0 first, on every rank, and nothing is lost by it. For take any schedule,
  and on each rank give the operations of a kind (forward of layer 3, say, or its sending) new batches, in order of
  time. What has to come before what is always between two operations of one batch, x before y; so the n-th of all y
  comes after n of the y, hence after n of the x, hence after the n-th x, and by the same margin. Neither memory nor
  time sees a difference: of values that x makes and y uses up there are as many as x are over and y are not begun, and
  a channel gives the n-th receive the n-th message anyway.
"""

from __future__ import annotations

from typing import NamedTuple

from ortools.sat.python import cp_model

from ..optima import Op, Size

__all__ = ["COMPUTE", "MESSAGE", "TENTH", "UPDATE", "WEIGHT", "Pipeline", "Span"]

COMPUTE, UPDATE, MESSAGE = 10, 5, 2
"""Tenths of a step that the operations take: UNIT costs."""
TENTH = 10
WEIGHT = 2
"""A weight, its gradient or its optimizer state, in activations of one batch."""


class Span(NamedTuple):
    """When an operation takes place, in tenths of a step."""

    start: cp_model.IntVar
    end: cp_model.LinearExprT
    interval: cp_model.IntervalVar


Lifetime = tuple[cp_model.LinearExprT, cp_model.LinearExprT]
"""From when, and until when, a value is there."""


class Pipeline:
    """All schedules of a pipeline that end by `horizon`. `room`: senders wait for room in simulated time."""

    def __init__(self, size: Size, horizon: int, room: bool = False) -> None:
        self.size, self.horizon, self.room = size, horizon, room
        self.model = cp_model.CpModel()
        self.spans: dict[tuple[int, Op], Span] = {}
        self.batches = range(size.batches)
        for rank in range(size.stages):
            self._operations(rank)
        for rank in range(size.stages):
            self._order(rank)
            self.model.add_no_overlap([span.interval for (r, _), span in self.spans.items() if r == rank])
        self._in_turn()
        self.end = self.model.new_int_var(0, horizon, "end")
        self.model.add_max_equality(self.end, [span.end for (_, op), span in self.spans.items() if op.what == "U"])

    # -- operations by rank, place of the layer in its stage, and batch ----------------------------------------------

    def f(self, rank: int, place: int, batch: int) -> Span:
        return self.spans[rank, Op("F", rank * self.size.each + place, batch)]

    def b(self, rank: int, place: int, batch: int) -> Span:
        return self.spans[rank, Op("B", rank * self.size.each + place, batch)]

    def u(self, rank: int, place: int) -> Span:
        return self.spans[rank, Op("U", rank * self.size.each + place, -1)]

    def message(self, what: str, rank: int, batch: int) -> Span:
        return self.spans[rank, Op(what, -1, batch)]

    def _operations(self, rank: int) -> None:
        size = self.size
        layers = range(rank * size.each, (rank + 1) * size.each)
        ops = [(Op("U", layer, -1), UPDATE) for layer in layers]
        ops += [(Op(what, layer, batch), COMPUTE) for layer in layers for batch in self.batches for what in "FB"]
        if not size.overlap:
            kinds = (["ra", "sg"] if rank > 0 else []) + (["sa", "rg"] if rank < size.stages - 1 else [])
            ops += [(Op(what, -1, batch), MESSAGE) for batch in self.batches for what in kinds]
        for op, length in ops:
            start = self.model.new_int_var(0, self.horizon - length, f"{op} on {rank}")
            interval = self.model.new_fixed_size_interval_var(start, length, f"{op} on {rank}")
            self.spans[rank, op] = Span(start, start + length, interval)

    def _order(self, rank: int) -> None:
        """What has to come before what."""
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
            if self.size.overlap:
                add(there.start >= over.end + 2 * MESSAGE)
                add(here.start >= back.end + 2 * MESSAGE)
                continue
            for (made, source), (used, target), what in (
                ((over, rank), (there, rank + 1), "a"),
                ((back, rank + 1), (here, rank), "g"),
            ):
                sent, received = self.message(f"s{what}", source, batch), self.message(f"r{what}", target, batch)
                add(sent.start >= made.end)
                add(received.start >= sent.end)
                add(used.start >= received.end)

    def _in_turn(self) -> None:
        """Batches in order; and room in the channels, if asked for."""
        for (rank, op), span in self.spans.items():
            if 0 <= op.batch < self.size.batches - 1:
                after = op._replace(batch=op.batch + 1)
                self.model.add(span.end <= self.spans[rank, after].start)
                if self.room and op.what[0] == "r":
                    source = rank - 1 if op.what == "ra" else rank + 1
                    sent = self.message(f"s{op.what[1]}", source, after.batch)
                    self.model.add(sent.end >= span.start)

    # -- memory -------------------------------------------------------------------------------------------------------

    def limit_memory(self, peak: cp_model.IntVar | int) -> None:
        """No rank may hold more than `peak` when one of its operations starts."""
        for rank in range(self.size.stages):
            alive = [(start, end, WEIGHT) for start, end in self._per_layer(rank)]
            alive += [(start, end, 1) for batch in self.batches for start, end in self._per_batch(rank, batch)]
            intervals = [
                self.model.new_interval_var(start, self.model.new_int_var(0, self.horizon + 1, ""), end, "")
                for start, end, _ in alive
            ]
            weights = WEIGHT * self.size.each  # before the update the old ones, after it the new ones
            self.model.add_cumulative(intervals, [amount for _, _, amount in alive], peak - weights)

    def limit_memory_to_a_variable(self, least: int = 0) -> cp_model.IntVar:
        """Limits the memory by a variable, which is returned, of at least `least`."""
        peak = self.model.new_int_var(least, (self.size.batches + 2) * (self.size.each + 1) * 4, "peak")
        self.limit_memory(peak)
        return peak

    def _per_layer(self, rank: int) -> list[Lifetime]:
        """When optimizer states and gradients are there. A state may be dropped when it has been updated."""
        found: list[Lifetime] = []
        for place in range(self.size.each):
            over = self.u(rank, place).start + 1
            found += [(0, over), (self.b(rank, place, 0).end, over)]
        return found

    def _per_batch(self, rank: int, batch: int) -> list[Lifetime]:
        """When activations and their gradients are there. One tick more than until the start of the last use."""
        overlap, last, top = self.size.overlap, self.size.stages - 1, self.size.each - 1
        inp = self.f(rank, 0, batch).start if overlap or rank == 0 else self.message("ra", rank, batch).end
        found: list[Lifetime] = [(inp, self.b(rank, 0, batch).start + 1)]
        for place in range(top):
            start = self.b(rank, place, batch).start + 1
            found.append((self.f(rank, place, batch).end, self.b(rank, place + 1, batch).start + 1))
            found.append((self.b(rank, place + 1, batch).end, start))
        made, used = self.f(rank, top, batch).end, self.b(rank, top, batch).start + 1
        before = self.b(rank, 0, batch).end
        if rank == last:  # the output, then its gradient
            found.append((made, used))
        elif overlap:
            found += [(made, made + MESSAGE), (used - 1, used)]
        else:
            found.append((made, self.message("sa", rank, batch).start + 1))
            found.append((self.message("rg", rank, batch).end, used))
        if rank > 0:
            found.append((before, before + MESSAGE if overlap else self.message("sg", rank, batch).start + 1))
        return found

    # -- what only the leanest know ----------------------------------------------------------------------------------

    def lean(self) -> None:
        """What every schedule of the least peak meets (`search.floor`; 2 batches or more, 1 or 2 layers a stage).

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
