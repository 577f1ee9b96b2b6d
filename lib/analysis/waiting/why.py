"""why: what a rank waits for at a moment, followed back to what really held it up.

A rank that waits though it has work to do is held up by its own program, which holds work back, mostly to save the
memory for its results. So `why` also says what the rank could compute meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from operator import attrgetter
from typing import NamedTuple

from lib.analysis.dependencies import At, causes_of
from lib.analysis.figures import makespan, samples
from lib.analysis.waiting.chains import Leg, Step, amounts, led_to, legs, written_at
from lib.analysis.waiting.gaps import KINDS, Gap, gaps
from lib.cluster.costs import in_units, ticks, units
from lib.errors.wording import amount, counted, exact
from lib.trace.event import operation
from lib.trace.trace import Answer, ModelLike, Trace, asked
from lib.values.laws import total_elements
from lib.values.operations import COMMUNICATION, COMPUTE
from lib.values.values import Elements

LEGS = 12
"""The most legs of a chain that are told; of a longer chain, those nearest to the gap, and the last."""


class Ready(NamedTuple):
    """An operation whose inputs were available from some tick on: how many elements it makes, how many the rank has in
    the gap, and how many at its peak."""

    at: At
    time: int
    makes: Elements
    holds: Elements
    peak: Elements


@dataclass(frozen=True, repr=False)
class Why(Answer):
    """The answer to why a rank idles at a moment (in ticks). `gap` is where it idles, None if it is `busy` with an
    operation, and `steps` is the chain that led to the gap's end, the last step first."""

    run: Trace
    rank: int
    time: int
    gap: Gap | None
    busy: At | None
    steps: tuple[Step, ...]

    @cached_property
    def legs(self) -> tuple[Leg, ...]:
        """The chain in legs, the last first."""
        late = None if self.gap is None else self.gap.before
        return tuple(legs(self.run, self.steps, late))

    @cached_property
    def ready(self) -> Ready | None:
        """Return what the rank could have computed meanwhile, had its program done that earlier."""
        return None if self.gap is None else ready_meanwhile(self.run, self.gap)

    def told(self) -> list[tuple[str, str]]:
        """Return the legs with their numbers; those left out are counted, without a number."""
        many, file = len(self.legs), self.file
        shown = [(number, leg) for number, leg in enumerate(self.legs, 1) if number < LEGS or number == many]
        said = [(str(number), leg.text(self.run, file)) for number, leg in shown]
        if many > LEGS:
            said.insert(-1, ("", f"... {counted(many - LEGS, 'more step')} ..."))
        return said

    def head(self) -> str:
        """Say what the rank does, from when to when, and where the student wrote it."""
        line = "" if self._here is None else self._line(self._here, "")
        if (gap := self.gap) is None:
            assert self.busy is not None, "a rank that does not idle computes"
            event = self.busy.event
            words = f"{operation(event)}, {exact(units(event.start or 0))} to {exact(units(event.end or 0))}"
            return f"Rank {self.rank} does not idle at {exact(units(self.time))}: it computes {words}{line}."
        when = f"from {exact(units(gap.start))} to {exact(units(gap.end))}"
        return f"Rank {self.rank} idles {when}: it {KINDS[gap.kind].verb[0]} {in_units(gap.length)}{gap.why()}{line}."

    def _line(self, at: At, file: str) -> str:
        where = written_at(self.run, [at], file)
        return f" ({where})" if where else ""

    @property
    def _here(self) -> At | None:
        return self.busy if self.gap is None else self.gap.before

    @property
    def file(self) -> str:
        """The student's file, to be named only once."""
        ats = [at for at in (self._here, *(step.at for step in self.steps)) if at is not None]
        place = next((place for at in ats if (place := self.run.place(at.event)) is not None), None)
        return "" if place is None else place.file

    def lines(self) -> Iterator[str]:
        """Yield the chain, one leg per line."""
        for number, words in self.told():
            yield f"{number}. {words}" if number else words

    def ends(self) -> Iterator[str]:
        """Say where the chain starts, what the gap is made of, and what could be done meanwhile."""
        if self.gap is None:
            return
        if self.steps:
            first = self.legs[-1]
            if first.start:
                yield f"The chain starts with {first.place(self.run)}, before this gap."
            else:
                yield "The chain starts at the beginning of the run."
            parts = amounts(causes_of(self.run), self.steps, self.gap.start, self.gap.end)
            yield f"The gap is as long as what it waits for: {parts}."
        elif self.run.error is not None:
            yield f"The run failed: {self.run.error.partition(chr(10))[0]}"
        if (could := self.ready) is not None:
            yield (
                f"Meanwhile it could do {operation(could.at.event)}: what that needs is there from "
                f"{exact(units(could.time))} on, but its program has it later{self._line(could.at, self.file)}. That "
                f"makes {amount(could.makes)} elements; the rank holds {amount(could.holds)} then, and "
                f"{amount(could.peak)} at its peak."
            )


def why(models: Trace | Sequence[ModelLike], rank: int, time: float) -> Why | None:
    """Say why a rank idles at a moment: what it waits for, what that waited for, and so on, back to what held it all
    up.

    Takes the Models that simulate returned, or a Trace, and a time in time units. If the rank is busy, says with what.
    None, with a message, if there is no run. ValueError if the run has no such rank, or no such moment.

    >>> async def slow_pair(model):
    ...     model.forward(0, model.get_activation([model.rank]), model.load_weights(0)[0])
    ...     await model.allreduce(model.fake_grad(0, [model.rank]), 0)
    >>> run = simulate(slow_pair, ranks=2, layers=1, batches=2, costs=Uneven(ranks=(1, 2)))
    >>> print(str(why(run, rank=0, time=1.5)).splitlines()[0])
    Rank 0 idles from 1 to 2: it waits 1 time unit in all-reduce of layer 0 for rank 1, which comes last ...
    """
    run = asked(models, "why")
    if run is None:
        return None
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < run.ranks:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"rank= is one of the ranks of this run, 0 to {run.ranks - 1}; got {rank!r}")
    whole = makespan(run)
    if not isinstance(time, int | float) or isinstance(time, bool) or not isfinite(time):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"time= is a moment of this run in time units, such as 2.5; got {time!r}")
    if not 0 <= ticks(time) <= whole:
        raise ValueError(f"this run goes from 0 to {exact(units(whole))}; got time={time!r}")
    if not whole:
        raise ValueError("nothing takes time in this run, so nobody waits")
    moment = min(ticks(time), whole - 1)  # the end counts as part of what ends there
    causes = causes_of(run)
    for gap in gaps(run):
        if gap.rank == rank and gap.start <= moment < gap.end:
            return Why(run, rank, moment, gap, None, led_to(causes, gap))
    # Every moment of a rank is in one computation or in one gap.
    busy = next(span for span in causes.spans[rank] if span.start <= moment < span.end)
    return Why(run, rank, moment, None, causes.at(rank, busy.at), ())


def ready_meanwhile(run: Trace, gap: Gap) -> Ready | None:
    """Return the first operation after a gap that could have been computed in it; None if there is none."""
    if gap.before is None or gap.kind in ("unknown", "never", "stopped"):
        return None
    program, causes = run.programs[gap.rank], causes_of(run)
    # The event in which the rank waits; for a communication issued earlier, its wait.
    spans = causes.spans[gap.rank]
    first = spans[bisect_right(spans, gap.start, key=attrgetter("start")) - 1].at
    # A message from the same sender cannot be received before the one that this rank waits for.
    channel = gap.before.event.peer if gap.before.event.op == "receive" else None
    maker, found = run.lifetimes()[gap.rank].maker, dict[int, int | None]()

    def there(number: int) -> int | None:
        """Return when all outputs of an event could be there; None if not before the gap is over."""
        if number not in found:
            found[number] = None  # in the meantime: in a file, something may need itself
            event, early = program.events[number], number < first
            if event.op in COMMUNICATION:
                sent = causes.sent(At(gap.rank, number, event))
                if number <= first or (sent is not None and sent.rank != channel):
                    found[number] = event.end if sent is None or early else sent.event.end
            elif early:
                found[number] = gap.start if event.end is None else event.end
            elif not event.length:
                found[number] = needed(number)
        return found[number]

    def needed(number: int) -> int | None:
        times = [there(maker[value]) for value in program.events[number].inputs if maker[value] >= 0]
        known = [time for time in times if time is not None and time < gap.end]
        return max(known, default=0) if len(known) == len(times) else None

    for number in range(first + 1, len(program.events)):
        event = program.events[number]
        if event.op in COMPUTE and event.length and (time := needed(number)) is not None:
            curve = samples(run, gap.rank)
            holds = [sample.total for sample in curve if sample.time <= gap.start]
            makes, peak = total_elements(program.values_of(event.outputs)), max(sample.total for sample in curve)
            return Ready(At(gap.rank, number, event), max(time, gap.start), makes, holds[-1] if holds else 0, peak)
    return None
