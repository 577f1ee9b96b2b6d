"""rebuild: makes every value and every time of a Trace anew, from nothing but its operations, the rules and its costs.

The values in a Trace are not trusted: they are computed again, and each carries the first dishonest thing in its
history (a `Flaw`), if any. Whether a flaw matters depends on how the value is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, cast

from lib.errors.exceptions import PuzzleError, TraceError
from lib.record import replace
from lib.trace.event import NO_BATCHES, Event, Program, located, place_of
from lib.trace.lifetimes import alike
from lib.trace.order import operations_of, outcome
from lib.trace.retiming import Plan, plan_of
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import DATA, LOADS, OPERATIONS, READS, Operation
from lib.values.placement import Owners, Place
from lib.values.values import Activation, Value, Weight, definite, subject


class Flaw(NamedTuple):
    """Something dishonest in a value's history: what, on which rank, in which event, what would be right, and how to
    mend it. `pretended`: fine in a sandbox."""

    what: str
    rank: int
    event: Event
    instead: str
    fix: str
    pretended: bool = False


LOADED = LOADS | DATA
REPEATS = 3
"""How often each operation of a rank has to come, on average, for following to be less work than the rules."""
_Load = tuple[int, Event]


class Rebuilt(NamedTuple):
    """A run made anew, the flaw of each value by (rank, id), and the final weights by (rank, layer)."""

    run: Trace
    flaws: dict[tuple[int, int], Flaw]
    finals: dict[tuple[int, int], tuple[Event, Weight, Flaw | None]]


class _Follower:
    """A rank that does what an earlier one, its leader, has done: the same operations, on the same layers.

    The rules ask for kinds and layers of values, which are the same for both, and for their places, which may differ:
    each rank has other batches. While each place of the leader's stands for one place here, operations of the leader
    with one `pattern` (one rule, layers of one kind, values in the same places) have one pattern here, too, if they say
    the same here. Then only the first one of a pattern needs the rule. tests/trace/test_followers.py holds it to ranks
    that are worked out alone.
    """

    def __init__(self, shift: int, patterns: list[int], theirs: list[Any]) -> None:
        self.shift, self.patterns, self.theirs = shift, patterns, theirs
        self.places: dict[Place, Place] = {}
        # What operations of a pattern say here, and give: the places of their results (None: those of the leader's, so
        # they are the same values), their batches, the number of their work, and whether they hand in a weight. No
        # NamedTuple, which takes longer to take apart.
        self.given: dict[int, tuple[tuple[int, ...], list[Place] | None, frozenset[int], int, bool]] = {}

    def stands(self, numbers: Sequence[int], values: Sequence[Value]) -> bool:
        """Tell whether values stand for the leader's with these numbers, as all others in their places do."""
        for at, value in enumerate(values):
            its = self.theirs[numbers[at]]
            if its is None or self.places.setdefault(its.place, value.place) is not value.place:
                return False
            if its is not value and (type(its), its.layer, its.updates) != (type(value), value.layer, value.updates):
                return False
        return True


class _Rebuild:
    def __init__(self, run: Trace, timed: bool) -> None:
        self.values: list[list[Value | None]] = [[None] * len(program.values) for program in run.programs]
        # Events of another class could say something else each time they are asked.
        mine = [p.events if {*map(type, p.events)} <= {Event} else [*map(Event.copy, p.events)] for p in run.programs]
        every = [Program(p.rank, events, p.values, p.moves) for p, events in zip(run.programs, mine, strict=True)]
        self.run = replace(run, programs=every)
        self.plan, self.timed = Plan(self.run), timed
        # What the events are about, which is worked out anew: the given ones must not change.
        self.layers = [event.layer for event in self.plan.events]
        self.batches = [event.batches for event in self.plan.events]
        self.stated = [*self.layers], [*self.batches]
        self.flaws: dict[tuple[int, int], Flaw] = {}
        self.finals: dict[tuple[int, int], tuple[int, Weight, Flaw | None]] = {}
        # By rank, each value that was loaded and is not used yet, with its load and the number of loads before it. Left
        # empty for ranks that load everything once, as they cannot reload.
        self.loaded: list[dict[int, _Load]] = [{} for _ in run.programs]
        self.loads = 0
        self.again = [*map(_loads_again, mine)]
        # By leader, the pattern of each of its operations, or 0 if it is not known. Patterns are numbered from 1 on.
        self.patterns: dict[int, list[int]] = {}
        self.numbered: dict[tuple[object, ...], int] = {}
        every = ((rank, self.follower(rank, leader)) for rank, leader in enumerate(alike(self.run)) if leader != rank)
        self.followers = {rank: follower for rank, follower in every if follower is not None}
        # The event that is made anew, for the error that it may end in.
        self.event: Event | None = None
        # Which load owns which part of each tensor in use (by rank, kind and layer): of its columns if these are cut,
        # else of its rows. Each row shard crosses each column shard.
        self.used: dict[tuple[tuple[int, str, int], bool], Owners[_Load]] = {}
        # What a communication sends, by its number, until it takes place; its results until its rank has waited.
        self.sent: dict[int, list[Value]] = {}
        self.results: dict[int, tuple[Sequence[Value], list[Flaw | None]]] = {}

    def follower(self, rank: int, leader: int) -> _Follower | None:
        """Return how a rank follows another that does the same; None if it has to be worked out alone."""
        (first, after), (begin, end) = (self.plan.first[one : one + 2] for one in (rank, leader))
        its = self.layers[begin:end]
        if leader not in self.patterns:
            ops = operations_of(self.run)[leader]
            numbers = [number for event in self.plan.events[begin:end] for number in event.outputs]
            # What is made twice would be read before its time.
            once = not self.again[leader] and len({*numbers}) == len(numbers)
            self.patterns[leader] = [0] * len(ops) if once and len(ops) >= REPEATS * len({*ops}) else []
        if not self.patterns[leader] or not _equal(int, self.layers[first:after], its):
            return None
        return _Follower(first - begin, self.patterns[leader], self.values[leader])

    def inputs(self, rank: int, event: Event) -> list[Value]:
        """Return the values that an event uses. Loaded values count as loaded once they are used."""
        mine, loaded, numbers = self.values[rank], self.loaded[rank], event.inputs
        found: list[Any] = []
        for number in numbers:
            if number >= len(mine) or (value := mine[number]) is None:
                raise TraceError(f"rank {rank} uses value {number} before it exists")
            found.append(value)
        if loaded and not loaded.keys().isdisjoint(numbers):
            for number in numbers:
                if number in loaded:
                    self.use(rank, number)
        return found

    def use(self, rank: int, number: int) -> None:
        """Note that a loaded value is used. Only then does its load count: no part of a tensor may be loaded twice."""
        load, value = self.loaded[rank].pop(number), cast(Value, self.values[rank][number])
        thing, rows, columns = (rank, value.kind, value.layer), value.place.dims[0], value.place.dims[-1]
        # A shard of rows overlaps every shard of columns, so among these it is entered as the whole.
        across = self.used.get((thing, columns.whole))
        owners = self.used.setdefault((thing, not columns.whole), Owners())
        before = owners.add((rows if columns.whole else columns).ranges, load)
        if before is None and across is not None:
            before = across.add(((0, (columns if columns.whole else rows).dim.size),), load)
        if before is not None:
            self.flaws[rank, number] = self.reloaded(rank, value, before, load)

    def reloaded(self, rank: int, value: Value, one: _Load, other: _Load) -> Flaw:
        """Return the flaw where two loads of one thing are used: the second, in program order, is too many."""
        (_, first), (_, second) = sorted((one, other), key=itemgetter(0))
        place = place_of(first)
        before = "" if place is None else f" (the first time in line {place.line})"
        data = isinstance(value, Activation)
        return Flaw(
            f"{definite(subject(value.kind, value.layer))} was loaded a second time{before}",
            rank,
            second,
            "each example read once on a rank"
            if data
            else "one load of each weight, or of each of its shards, on a rank",
            "keep the example until its last use; a slice of what is there already is made with shard"
            if data
            else "load once, keep it, and gather shards where the whole weight is needed",
        )

    def flaw(self, rank: int, event: Event) -> Flaw | None:
        return next((flaw for number in event.inputs if (flaw := self.flaws.get((rank, number))) is not None), None)

    def give(self, rank: int, event: Event, values: Sequence[Value], flaws: Sequence[Flaw | None]) -> None:
        """Set the values and flaws of an event's outputs."""
        outputs, mine = event.outputs, self.values[rank]
        if len(values) != len(outputs):
            raise TraceError(f"rank {rank}: {event.op} has {len(values)} results, the Trace says {len(outputs)}")
        for place, number in enumerate(outputs):
            mine[number] = values[place]
        if flaws:  # empty if no value has one
            found = zip(outputs, flaws, strict=False)
            self.flaws.update({(rank, number): flaw for number, flaw in found if flaw is not None})

    def load(self, rank: int, event: Event) -> None:
        """Note loaded values, which are not used yet."""
        self.loads += 1
        for number in event.outputs:
            self.loaded[rank][number] = self.loads, event

    # -- steps --------------------------------------------------------------------------------------------------

    def do(self, rank: int, first: int, after: int) -> None:
        """Run the events of a rank anew from one up to another, all without communication."""
        shape, plan, timed, flaws, again = self.run.shape, self.plan, self.timed, self.flaws, self.again[rank]
        mine, count, loaded = self.values[rank], len(self.values[rank]), self.loaded[rank]
        layers, batches, begin = self.layers, self.batches, plan.first[rank]
        patterns, follower = self.patterns.get(rank), self.followers.get(rank)
        for number, event in enumerate(plan.events[first:after], first):
            self.event, layer, outputs = event, event.layer, event.outputs
            row = OPERATIONS[event.op]
            # As in `inputs`, and below as in `give`: without their calls a check takes a twentieth less.
            values: list[Any] = []
            for one in event.inputs:
                if one >= count or loaded or (value := mine[one]) is None:
                    values = self.inputs(rank, event)
                    break
                values.append(value)
            # Honest runs have no flaws, and must not pay for looking. A weight that must be as loaded comes last:
            # mostly it was not updated, and nothing has to be asked.
            odd = flaws or row.suspect or (row.as_loaded and values and values[-1].updates)
            flaw = self.flaw_of(row, rank, event, values) if odd else None
            if row.rule is None:  # no rule makes it: the Trace is the only source, and its flaw goes with it
                made = self.run.programs[rank].values_of(outputs)
            else:
                if layer is None and row.about == "call":
                    raise TraceError("an operation that needs a layer has none")
                made = row.make(shape, layer, event.batches, event.arg, values)
            # A second final weight of a layer replaces the first, as in the Model's own dict.
            if row.hands_in:
                self.finals[rank, values[0].layer] = (number, values[0], flaw)
            if flaw is None and len(made) == len(outputs):
                for place, one in enumerate(outputs):
                    mine[one] = made[place]
            else:
                self.give(rank, event, made, [flaw] * len(made))
            if again and row.loads:
                self.load(rank, event)
            # Prices depend on these, so those in the Trace are not trusted either.
            batches[number] = about = made[0].place.batches if made else NO_BATCHES
            if row.about != "call":
                layer = layers[number] = (made if row.about == "output" else values)[0].layer
            if timed:
                plan.do(number, row, layer, about, values)
            if patterns and not odd:
                patterns[number - begin] = self.pattern(row, layer, event.arg, values)
            elif follower is not None:
                self.learn(follower, rank, number, row, made)

    def pattern(self, row: Operation, layer: int | None, arg: tuple[int, ...], values: Sequence[Value]) -> int:
        """Return the number of the pattern of an operation: all that its rule sees, beside the numbers of layers."""
        # A price may depend on the layer, too.
        about = self.run.shape.kinds[layer or 0] if row.about == "call" else layer if row.cost else None
        seen = row, about, arg, *map(type, values), *[value.place for value in values]
        return self.numbered.setdefault(seen, len(self.numbered) + 1)

    def learn(self, follower: _Follower, rank: int, number: int, row: Operation, made: Sequence[Value]) -> None:
        """Note what a pattern gives on a rank that follows, or that it cannot follow any more."""
        event, pattern = self.plan.events[number], follower.patterns[number - self.plan.first[rank]]
        if not follower.stands(event.outputs, made):
            del self.followers[rank]
        elif pattern:
            places = [value.place for value in made]
            shared = places == [follower.theirs[one].place for one in event.outputs]
            given = event.arg, None if shared else places, self.batches[number], self.plan.thing[number]
            follower.given[pattern] = *given, row.hands_in

    def follow(self, rank: int, first: int, after: int) -> None:
        """Run the same events of a rank that follows another; by the rules only those of a pattern that is new here."""
        follower = self.followers[rank]
        given, patterns, theirs, mine = follower.given, follower.patterns, follower.theirs, self.values[rank]
        layers, batches, things, shift = self.layers, self.batches, self.plan.thing, follower.shift
        begin, flaws = self.plan.first[rank], self.flaws
        for number, event in enumerate(self.plan.events[first:after], first):
            known = given.get(patterns[number - begin])
            if known is None or known[0] != event.arg or flaws:  # which only the rules hand on
                self.do(rank, number, number + 1)
                if rank in self.followers:
                    continue
                return self.do(rank, number + 1, after)
            _, places, batches[number], things[number], final = known
            layers[number] = layers[number - shift]
            if places is None:
                for one in event.outputs:
                    mine[one] = theirs[one]
            else:
                for at, one in enumerate(event.outputs):
                    mine[one] = theirs[one].at(places[at])
            if final:
                weight: Any = mine[event.inputs[0]]
                self.finals[rank, weight.layer] = number, weight, None

    def flaw_of(self, row: Operation, rank: int, event: Event, values: Sequence[Value]) -> Flaw | None:
        """Return the first dishonest thing in an operation's results: that of its inputs, or its own, by its row."""
        if (flaw := self.flaw(rank, event)) is not None:
            return flaw
        # A made-up gradient of no batches is a zero.
        if row.made_up is not None and (event.batches or row.says != "batches"):
            what, instead, fix = row.made_up
            return Flaw(what, rank, event, instead, fix, pretended=True)
        # Pipelines with two versions of weights (PipeDream, Narayanan et al. 2019) are not one synchronous step.
        if row.as_loaded and any(type(value) is Weight and value.step for value in values):
            what = f"{row.name} of layer {event.layer} used a weight that was updated before"
            instead = "every forward and backward of this step with the weights as loaded"
            return Flaw(what, rank, event, instead, "update a layer when all its forward and backward passes are done")
        if self.run.costs.refuse(row):
            what = f"its data was taken with {event.op}, for nothing"
            instead = "data that the reader of the rank's process has read"
            return Flaw(what, rank, event, instead, "ask the reader: await model.read(batches)")
        return None

    def issue(self, rank: int, number: int, event: Event) -> None:
        """Set layer and batches of a communication by what it sends: times depend on them, so they are not trusted."""
        if event.op == "receive" or event.op in READS:
            return
        sent = self.sent[number] = self.inputs(rank, event)
        self.batches[number] = sent[0].place.batches if sent else NO_BATCHES
        if event.op == "pass_to":
            self.layers[number] = sent[0].layer if sent else None
            if self.timed:
                self.plan.send(rank, number, event, sent)
        elif COLLECTIVES[event.op].bucket:
            anew = self.plan.events[number] = event.copy()
            anew.layer, anew.arg = sent[0].layer, tuple([value.layer for value in sent])
            self.layers[number] = anew.layer

    def meet(self, event: Event, numbers: Sequence[int]) -> None:
        """Work out a collective that all members have issued: what each brings, and its results by the rules."""
        row, events = COLLECTIVES[event.op], self.plan.events
        members = [(rank, events[number]) for rank, number in zip(event.group, numbers, strict=True)]
        brought = [*map(self.sent.pop, numbers)]
        flaws = [self.flaw(rank, call) for rank, call in members] if self.flaws else []
        first = next((flaw for flaw in flaws if flaw is not None), None)
        for place, (number, made) in enumerate(zip(numbers, outcome(members, brought), strict=True)):
            flaw = first
            if first is not None and row.origins is not None:  # a result has the flaws of its senders
                origins = row.origins(place, len(members), row.said(event.arg))
                flaw = next((flaws[origin] for origin in origins if flaws[origin] is not None), None)
            self.results[number] = made, [] if flaw is None else [flaw] * len(made)
        if self.timed:
            self.plan.meet(numbers, event, brought)

    def message(self, number: int, received: Event, before: int) -> None:
        source, sent = cast(int, received.peer), self.plan.events[before]
        # From the sender's values, not from those that the Trace states for the receiver.
        values = self.sent.pop(before)
        self.layers[number], self.batches[number] = self.layers[before], self.batches[before]
        flaws = [self.flaws.get((source, value)) for value in sent.inputs] if self.flaws else []
        self.results[number] = values, flaws
        self.plan.thing[number] = self.plan.thing[before]

    def read(self, number: int, event: Event) -> None:
        made = OPERATIONS[event.op].make(self.run.shape, event.layer, event.batches, event.arg, ())
        self.layers[number], self.batches[number] = made[0].layer, made[0].place.batches
        self.results[number] = made, []

    def done(self, rank: int, number: int, event: Event, wait: Sequence[int]) -> None:
        # A send has no results; those of all others arrive when the rank has waited, and no earlier.
        if event.op != "pass_to":
            found = self.results.pop(number, None)
            if found is None:
                raise TraceError(f"rank {rank} waits twice for one {event.op}")
            self.give(rank, event, found[0], found[1])
            follower = self.followers.get(rank)
            if follower is not None and not follower.stands(event.outputs, found[0]):
                del self.followers[rank]
            if event.op in READS and self.again[rank]:
                self.load(rank, event)
        for one in wait:
            self.layers[one], self.batches[one] = self.layers[number], NO_BATCHES


def _loads_again(events: Sequence[Event]) -> bool:
    """Tell whether a rank may load something twice: a layer, or any data at all, in more than one event."""
    loads = [event for event in events if event.op in LOADED]
    layers = [event.layer for event in loads if event.op in LOADS]
    return len(loads) > len(layers) + 1 or not {*map(type, layers)} <= {int} or len({*layers}) < len(layers)


def rebuild(run: Trace, *, timed: bool = True) -> Rebuilt:
    """Make all values anew, and all times at the costs of the run, as far as it went. PuzzleError (with rank and source
    line) if a rule is broken, TraceError if the Trace is not a program.

    Unless `timed`, times stay what the run says, which is enough to judge whether it is right.
    """
    state = _Rebuild(run, timed)
    plan = state.plan
    events, steps, stuck = plan.events, plan.order.steps, plan.order.stuck
    who = 0
    try:
        for kind, rank, number, others in steps:
            who = rank
            if kind == "do":
                (state.follow if rank in state.followers else state.do)(rank, number, others[0])
                continue
            state.event = event = events[number]
            if kind == "done":
                state.done(rank, number, event, others)
            elif kind == "issue":
                state.issue(rank, number, event)
            elif kind == "pass":
                state.message(number, event, others[0])
            elif kind == "meet":
                who = event.group[0]
                state.meet(event, others)
            else:
                state.read(number, event)
        if stuck is not None:
            raise stuck
    except PuzzleError as error:
        event = state.event
        assert event is not None, "a rule is broken by an event"
        error.rank = who if error.rank is None else error.rank
        # It was raised at the call of the check; the event knows the line where it happened.
        error.where = []
        raise located(error, None, event) from None
    except TraceError:
        if run.error is None:
            raise
    if not all(map(_equal, (int, frozenset), state.stated, (state.layers, state.batches))):
        for number, (event, layer, batches) in enumerate(zip(events, state.layers, state.batches, strict=True)):
            events[number] = event = event.copy()
            event.layer, event.batches = layer, batches
    if timed:
        # The plan was made on the way, from trusted values: later timing need not go through the run again.
        state.run.answers[plan_of] = plan
        times = plan.times(state.run, run.costs, plan.lengths(run.costs.on(run.mesh)))
        if not all(map(_equal, (int, int, int), plan.recorded, times)):  # else events need no copies
            events[:] = map(Event.at, events, *times)
    for program, values, (first, after) in zip(state.run.programs, state.values, pairwise(plan.first), strict=True):
        program.events, program.values = tuple(events[first:after]), tuple(values)  # now they are made
    finals = {where: (events[number], weight, flaw) for where, (number, weight, flaw) in state.finals.items()}
    return Rebuilt(state.run, state.flaws, finals)


def _equal(kind: type, stated: Sequence[object], anew: Sequence[object]) -> bool:
    """Tell whether what events state is what was worked out anew, in plain Python: other classes may say anything."""
    kinds = [*map(type, stated)]  # to count them is faster than a set, and nearly none is None
    return (kinds.count(kind) == len(kinds) or {*kinds} <= {kind, type(None)}) and stated == anew
