"""What is alive on a rank, when, and why: the only place that determines how long a value lives.

A value is alive from its birth until it has left the stores *and* been used for the last time. Besides:

- *At rest.* What a rank loads was on it before the step, so a weight or an optimizer state that is used is alive from
  the first moment on, in whatever line it is loaded. Final weights that are handed in, and updated optimizer states,
  are alive to the end.
- *In flight.* A communication that is awaited later needs its input, and owns the memory of its output, until the
  wait; one that is never awaited, to the end. One that works in place has no output of its own, unless something else
  needs its input. A message belongs to its sender until its receive is issued, and to the receiver from then on.

Moments are numbers of events: memory is sampled when a timed operation starts, before its outputs exist, as the
original does. If everything is kept in the stores, the figures are the original's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from marshal import dumps
from operator import attrgetter
from typing import TypeVar

from lib.errors.exceptions import PuzzleError
from lib.record import record, replace
from lib.trace.event import Event, Program
from lib.trace.order import Passage, meetings, messages, operations_of, outcome
from lib.trace.trace import Trace, kept
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION, HANDS_IN, LOADS, OPERATIONS, READS, UPDATES
from lib.values.values import OptState, Value, WeightGrad

D = TypeVar("D")
FOREVER = 1 << 60
"""The number of an event that never comes."""
FOR_NEXT = HANDS_IN | UPDATES
"""The operations that give what the next step begins with."""
_issued = attrgetter("issued")


@record(slots=False)
class Lifetimes:
    """The lifetime of each value of a rank: alive when event k starts if born < k <= last, or if a store holds it.

    `values` are those of the program, and then those that arrived but were never awaited, which have no id there.
    `maker` is the event that made or loaded a value, or -1. A value at rest before the step has born = -1; one that is
    alive to the end has the number of events as its last.
    """

    values: Sequence[Value | None]
    born: list[int]
    last: list[int]
    maker: list[int]

    def alive(self, index: int, held: Set[int]) -> Iterator[int]:
        """Yield the values alive when event number `index` starts, in order of their ids; `held` is `held_at` of it."""
        for number, value in enumerate(self.values):
            if value is not None and (number in held or self.born[number] < index <= self.last[number]):
                yield number


def lifetimes(run: Trace) -> list[Lifetimes]:
    """Return how long the values of all ranks live, in the order of the ranks."""
    uses = uses_of(run)
    every = by_twin(run, lambda rank: _with_stores(run.programs[rank], uses[rank]))
    lives_of = [Lifetimes(p.values, [*a.born], [*a.last], a.maker) for p, a in zip(run.programs, every, strict=True)]
    passages = messages(run)
    for passage in passages:
        last, until = lives_of[passage.source].last, in_flight(run, passage)
        for value in run.programs[passage.source].events[passage.sent].inputs:
            last[value] = max(last[value], until)
    copied = _copied(run, passages)
    for rank, number in copied:
        for value in run.programs[rank].events[number].outputs:
            lives_of[rank].born[value] = number
    for rank, landed in _landed(run, passages, copied).items():  # alive from the call to the end
        lives, calls = lives_of[rank], [number for number, _ in landed]
        last = lives.last + [len(run.programs[rank].events)] * len(landed)
        values = [*lives.values, *(value for _, value in landed)]
        lives_of[rank] = Lifetimes(values, lives.born + calls, last, lives.maker + calls)
    return lives_of


@record(slots=False)
class Uses(Lifetimes):
    """The lifetimes of values by the uses on their own rank: from the event that makes or awaits them to the last that
    uses them. `loaded` are the weights and states that the rank loads, used or not; `talks` the numbers of its waits,
    and of communications that it does not await at once."""

    loaded: list[int]
    talks: list[int]


@kept
def alike(run: Trace) -> list[int]:
    """Return for each rank the first rank that does the same operations, to values of the same numbers. What they say,
    such as which shard they load, may differ."""
    first, found, several = dict[object, int](), list[int](), Counter(operations_of(run))
    for rank, (program, ops) in enumerate(zip(run.programs, operations_of(run), strict=True)):
        if several[ops] > 1:
            every = program.events  # column by column: faster in Python than three fields of each event at once
            used = [e.inputs for e in every], [e.outputs for e in every], [e.blocking for e in every]
            waits = [e.arg for e in every if e.op == "wait"] if "wait" in ops else []
            # By their bytes, as numbers of other classes may say that they equal anything. These have none.
            with suppress(ValueError):
                rank = first.setdefault((ops, dumps((used, waits), 2)), rank)
        found.append(rank)
    return found


@kept
def twins(run: Trace) -> list[int]:
    """Return for each rank the first rank that does the same to values of the same classes, in the same stores."""
    found, others, types = list[int](), dict[object, int](), [[*map(type, program.values)] for program in run.programs]
    for rank, (program, first) in enumerate(zip(run.programs, alike(run), strict=True)):
        # Mostly that is the first one; only the others need hashes, which take longer.
        if first != rank and (program.moves, types[rank]) != (run.programs[first].moves, types[first]):
            first = others.setdefault((first, tuple(program.moves), tuple(types[rank])), rank)
        found.append(first)
    return found


def by_twin(run: Trace, work_out: Callable[[int], D]) -> list[D]:
    """Return for each rank what follows from its operations alone, whatever their values and times: worked out once for
    all twins, which mostly all ranks are; comparing two takes a tenth of that. Do not change the results."""
    found = {rank: work_out(rank) for rank in dict.fromkeys(twins(run))}
    return [found[twin] for twin in twins(run)]


@kept
def uses_of(run: Trace) -> list[Uses]:
    """Return the uses of each rank's values, from which all lifetimes follow: one pass over the events."""
    every = by_twin(run, lambda rank: own_uses(run.programs[rank]))
    return [replace(used, values=program.values) for program, used in zip(run.programs, every, strict=True)]


def own_uses(program: Program) -> Uses:
    """Return the uses of a rank's values."""
    count, over = len(program.values), len(program.events)
    born, last, maker = [-1] * count, [-1] * count, [-1] * count
    loaded, talks, stays = list[int](), list[int](), list[int]()
    for index, event in enumerate(program.events):
        op, outputs = event.op, event.outputs
        for value in event.inputs:
            last[value] = index
        if op == "wait":
            talks.append(index)
            issued = event.arg[0]
            for value in program.events[issued].outputs:
                maker[value], born[value] = issued, index
        # Its outputs are born at the wait, or, with a buffer, at the call: see `own_lifetimes`.
        elif op in COMMUNICATION and not event.blocking:
            talks.append(index)
        else:
            for value in outputs:
                born[value] = maker[value] = index
        if op in LOADS:
            loaded += outputs
        elif op in FOR_NEXT:
            stays += (*handed_in(event), *new_states(event))
    # At rest at the end: the next step begins with what is handed in, and with the new states.
    for value in stays:
        last[value] = over
    return Uses(program.values, born, last, maker, loaded, talks)


def own_lifetimes(program: Program, used: Uses | None = None) -> Lifetimes:
    """Return how long a rank's values live by its own events, communication under way included, which needs its input
    and owns the memory of its output. `used` are the uses of its values, if they are known."""
    used, events = used or own_uses(program), program.events
    born, last = [*used.born], [*used.last]
    under_way: set[int] = set()
    for index in used.talks:
        if events[index].op != "wait":
            under_way.add(index)
            continue
        issued = events[index].arg[0]
        work = events[issued]
        under_way.discard(issued)
        # As in NCCL: the output is allocated before the call, and a result in place needs none.
        early = _has_buffer(work)
        for value in work.outputs:
            born[value] = issued if early else index
            last[value] = max(last[value], index)
        for value in work.inputs:
            last[value] = max(last[value], index)
    for index in under_way:  # never awaited, so its input may never go
        for value in events[index].inputs:
            last[value] = len(events)
    return Lifetimes(program.values, born, last, used.maker)


def _with_stores(program: Program, used: Uses) -> Lifetimes:
    """Return a rank's own lifetimes, with loaded values alive before the step, and others until they are stored."""
    lives = own_lifetimes(program, used)
    for value in used.loaded:
        if used.last[value] >= 0:
            lives.born[value] = -1
    for position, _, value, change in program.moves:
        if change > 0 and position - 1 > lives.born[value]:
            lives.last[value] = max(lives.last[value], position - 1)
    return lives


def is_for_update(program: Program, event: Event) -> bool:
    """Tell whether a collective carries what only the update of a shard needs: its optimizer state, or gradient."""
    updates = [program.values_of(one.outputs)[0].is_complete() for one in program.events if one.op in UPDATES]
    kinds = OptState if event.op != "allgather" or all(updates) else OptState | WeightGrad
    return event.op in COLLECTIVES and any(isinstance(value, kinds) for value in program.values_of(event.inputs))


def handed_in(event: Event) -> Sequence[int]:
    """Return what an event hands in, for the next training step to begin with."""
    return event.inputs if event.op in HANDS_IN else ()


def new_states(event: Event) -> Sequence[int]:
    """Return the optimizer states that an event has updated."""
    if event.op not in UPDATES:
        return ()
    kinds = OPERATIONS[event.op].gives
    return [number for number, kind in zip(event.outputs, kinds, strict=False) if kind is OptState]


def _has_buffer(work: Event) -> bool:
    """Tell whether the result of a communication has memory of its own from the call on."""
    return work.op == "receive" or work.op in READS or (work.op in COLLECTIVES and not _in_place(work))


def in_flight(run: Trace, passage: Passage, bisect: Callable[..., int] = bisect_left) -> int:
    """Return the last event of the sender that begins before a message's receive is issued: until then it is the
    sender's. The send itself if the receive came first; past the end if it is never received."""
    events = run.programs[passage.source].events
    if passage.received is None:
        return len(events)
    issued = run.programs[passage.target].events[passage.received].issued
    # Numbers of events mean nothing on another rank; moments do.
    return bisect(events, issued, lo=passage.sent + 1, key=_issued) - 1


def given_up(run: Trace, passage: Passage) -> int:
    """Return the last event of the sender that is issued before a message is given up, or at that very moment: from the
    next one on, what was sent is gone for certain."""
    return FOREVER if passage.received is None else in_flight(run, passage, bisect_right)


def uses(program: Program, gone: Mapping[int, int]) -> dict[int, list[tuple[int, int]]]:
    """Return by value each event that uses it, and the last event during which it does. `gone`: `given_up` of sends."""
    waited = {event.arg[0]: number for number, event in enumerate(program.events) if event.op == "wait"}
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for index, event in enumerate(program.events):
        until = index
        if event.op == "pass_to":
            until = gone.get(index, FOREVER)
        if event.op in COMMUNICATION and not event.blocking:
            until = max(until, waited.get(index, FOREVER))  # a send awaited later still reads its input
        elif event.op in HANDS_IN:
            until = FOREVER
        for value in event.inputs:
            found[value].append((index, until))
    return found


def _copied(run: Trace, passages: Sequence[Passage]) -> set[tuple[int, int]]:
    """Return the collectives in the background, by rank and event, that cannot work in place, because something else
    needs their input: they have a buffer of their own."""
    found: set[tuple[int, int]] = set()
    gone: dict[int, dict[int, int]] | None = None
    for program, own in zip(run.programs, uses_of(run), strict=True):
        calls = [number for number in own.talks if _in_place(program.events[number])]
        if not calls:
            continue
        if gone is None:
            gone = defaultdict(dict)
            for passage in passages:
                gone[passage.source][passage.sent] = given_up(run, passage)
        used, stored = uses(program, gone[program.rank]), left_stores(program)
        for number in calls:
            for value in program.events[number].inputs:
                # Until then the collective needs its input; any other use from here on would find it changed.
                until = next(end for index, end in used[value] if index == number)
                others = any(end >= number for index, end in used[value] if index != number)
                if others or stored.get(value, 0) > until + 1:
                    found.add((program.rank, number))
    return found


def _in_place(event: Event) -> bool:
    return event.op in COLLECTIVES and COLLECTIVES[event.op].in_place


Stay = tuple[int, int]
"""A stay in the stores: the event before which it begins, and the one before which it ends, or FOREVER."""


@kept
def stays_of(run: Trace) -> list[dict[int, list[Stay]]]:
    """Return the stays of each rank's values."""
    return by_twin(run, lambda rank: stays(run.programs[rank]))


def stays(program: Program) -> dict[int, list[Stay]]:
    """Return by value the stays in any of a rank's stores."""
    found: dict[int, list[Stay]] = {}
    held: dict[int, int] = {}
    for position, _, value, change in program.moves:
        before = held.get(value, 0)
        now = held[value] = before + change
        # Only from none to one: a value may be under several keys, and stays until the last of them goes.
        if before <= 0 < now:
            found.setdefault(value, []).append((position, FOREVER))
        elif now <= 0 < before:
            found[value][-1] = found[value][-1][0], position
    return found


def left_stores(program: Program) -> dict[int, int]:
    """Return the event before which each value leaves the stores for the last time."""
    return {value: mine[-1][1] for value, mine in stays(program).items()}


def held_at(stays: Mapping[int, Sequence[Stay]], index: int) -> set[int]:
    """Return the values that any store holds when event number `index` starts."""
    return {value for value, mine in stays.items() for begin, end in mine if begin <= index < end}


def _landed(
    run: Trace, passages: Sequence[Passage], copied: Set[tuple[int, int]]
) -> dict[int, list[tuple[int, Value]]]:
    """Return the values that arrived on each rank in communications that are never awaited, each with its event."""
    dropped = {program.rank: set(never) for program, never in zip(run.programs, never_awaited(run), strict=True)}
    found: dict[int, list[tuple[int, Value]]] = defaultdict(list)
    if not any(dropped.values()):
        return found
    for passage in passages:
        if passage.received is not None and passage.received in dropped[passage.target]:
            program = run.programs[passage.source]
            for value in program.values_of(program.events[passage.sent].inputs):
                found[passage.target].append((passage.received, value.at(value.place)))
    # Broken rules are reported by the check.
    for rank, numbers in dropped.items():
        for number in sorted(numbers):
            event = run.programs[rank].events[number]
            with suppress(PuzzleError):
                if event.op in READS:
                    made = OPERATIONS[event.op].make(run.shape, event.layer, event.batches, event.arg, ())
                    found[rank].extend((number, value) for value in made)
    for members in meetings(run):
        if any(number in dropped[rank] for rank, number in members):
            calls = [(rank, run.programs[rank].events[number]) for rank, number in members]
            with suppress(PuzzleError):
                results = outcome(calls, [run.programs[rank].values_of(event.inputs) for rank, event in calls])
                for (rank, number), (_, event), result in zip(members, calls, results, strict=True):
                    if number in dropped[rank] and ((rank, number) in copied or _has_buffer(event)):
                        found[rank].extend((number, value) for value in result)
    return {rank: sorted(landed, key=lambda item: item[0]) for rank, landed in sorted(found.items())}


@kept
def never_awaited(run: Trace) -> list[list[int]]:
    """Return the communications of each rank that took place but were never awaited."""
    found: list[list[int]] = []
    for program, uses in zip(run.programs, uses_of(run), strict=True):
        talks = [(number, program.events[number]) for number in uses.talks]
        waited = {event.arg[0] for _, event in talks if event.op == "wait"}
        found.append([n for n, e in talks if e.op != "wait" and e.start is not None and n not in waited])
    return found
