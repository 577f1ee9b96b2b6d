"""Why a correct run ends later than a goal allows: a table of causes, of which the first that a run has is told."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property, partial
from itertools import chain, groupby, pairwise, permutations, takewhile
from typing import Any

from lib.analysis import figures
from lib.analysis.dependencies import At, causes_of
from lib.analysis.waiting.critical_path import critical_path
from lib.analysis.waiting.gaps import Gap, gaps
from lib.analysis.waiting.why import ready_meanwhile
from lib.checker.faults import Where, maker_of, places, remark
from lib.checker.notes import STAYS, gathered_elsewhere, in_vain, is_given
from lib.cluster.costs import in_units, ticks, units
from lib.errors.source_lines import ORDER, Place
from lib.errors.wording import counted, exact, more, plural, these, with_article
from lib.trace.event import Event, Program, line_of, operation, place_of, spoken
from lib.trace.lifetimes import is_for_update
from lib.trace.retiming import alone, retime
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import BY_INPUT, COMMUNICATION, COMPUTE, MESSAGES, OPERATIONS, UPDATES
from lib.values.values import Activation, Weight, WeightGrad

START_EARLIER = (
    "call a collective before work that can do without its result, and await it after that work:\n"
    "what lies between the call and the await runs at the same time"
)
"""How to spend less time in collectives."""
TAKE_TURNS = (
    "let passes of different microbatches take turns, each up to its next exchange: while what the\n"
    "one has sent is on its way, the other computes. They do? Then run first and alone what another place waits for"
)
"""The same where only given code calls them."""
ISSUE_EARLIER = (
    "put UNSHARD before a pass that can do without it: the all-gather runs beside that pass;\n"
    "and gather no stage again that could have stayed whole"
)
REDUCE_EARLIER = "write REDUCE_GRAD right after the last backward of its stage: then it runs beside the next passes"
"""The same where only the order was said."""
OVER_ALL = "gather weights, and scatter gradients, along the axis whose ranks are in one host"
WHOLE_SUMS = "they bring whole gradients: a reduce-scatter inside the host first leaves a shard of each to travel"
"""What to send less of between hosts."""
BUCKETED = ("allreduce", "allreduce_bucket")
"""Collectives whose values can travel together."""
Fixes = Sequence["Callable[[Late], Iterator[str]]"]
"""What to do about a wait, or about a run: the first that is yielded is told."""
NO_WAITS = ("drain", "never", "stopped", "unknown")
"""Gaps in which a rank waits for nothing that comes."""
LOOKED_AT = 20
"""Waits of a rank for which something is looked for that it could do meanwhile."""


class Late:
    """A run that is `over` time units longer than its limit, and what several causes ask of it: the rank that waits
    longest, for how many ticks, in which line most, and through which gaps there, the longest first. `asks` are what
    its puzzle asks a student to find."""

    def __init__(self, trace: Trace, name: str, limit: float, over: float, asks: Collection[str]) -> None:
        self.trace, self.name, self.limit, self.over, self.asks = trace, name, limit, over, asks
        self.busy = figures.computing(trace)
        waits = [_waits(program) for program in trace.programs]
        # A reader takes so long for the first example of two rows. Later, ranks wait in a sum for one that read late.
        self.first = 2 * ticks(trace.costs.read)
        for gap in gaps(trace) if "read" in asks else ():
            if gap.kind == "collective" or (gap.kind == "reader" and gap.end <= self.first):
                waits[gap.rank][_waits_at(trace.programs[gap.rank], gap)] -= gap.length
        most = max(self.busy)
        # A rank that has much less to do than the busiest one waits for that, and is not the reason.
        totals = [sum(spots.values()) * (10 * own >= 9 * most) for own, spots in zip(self.busy, waits, strict=True)]
        self.waiting = max(totals)
        self.rank = totals.index(self.waiting)
        self.program, self.spots = trace.programs[self.rank], waits[self.rank]
        self.spot = max(self.spots, key=lambda place: self.spots[place], default=None)
        self.is_order = self.spot is not None and self.spot.file == ORDER
        mine = (gap for gap in gaps(trace) if gap.rank == self.rank and gap.kind not in NO_WAITS and gap.before)
        self.waits = sorted(mine, key=lambda gap: -gap.length)

    def told(self, got: str, where: Where, fix: str) -> str:
        """Put a cause into words: what the run does, in which lines, and what to do instead."""
        over = exact(self.over) if self.over >= 0.0001 else f"{self.over:.10g}"
        what = f'for "{self.name}" the run is {over} {plural("time unit", float(over))} too long'
        return remark(what, got=got, where=where, fix=fix)

    def saved(self, calls: Sequence[Event]) -> float:
        """Return how many time units earlier the run would end if such operations took no time."""
        free = {(event.op, event.layer, event.batches, event.group) for event in calls}
        faster = retime(self.trace, self.trace.costs, lambda _, e: (e.op, e.layer, e.batches, e.group) not in free)
        return figures.end(self.trace) - figures.end(faster)

    def with_layers(self, less: int, more: int) -> int:
        """Return when the run would end, in ticks, if one rank computed a layer less and another one more."""
        layers = [max(1, len({e.layer for e in p.events if e.op == "forward"})) for p in self.trace.programs]
        scales = [1 + Fraction((rank == more) - (rank == less), count) for rank, count in enumerate(layers)]
        costs = self.trace.costs
        return figures.makespan(retime(self.trace, costs, lambda rank, e: scales[rank] if e.op in COMPUTE else 1))

    @cached_property
    def gaps(self) -> list[Gap]:
        return [gap for gap in self.waits if self.is_order or _waits_at(self.program, gap) == self.spot]


def over_time(trace: Trace, end: float, name: str, limit: float, asks: Collection[str] = ()) -> str:
    """Say why a run takes longer than the limit of a goal: the first of CAUSES that it has."""
    run = Late(trace, name, limit, float(f"{end - limit:.10g}"), asks)
    return next(told for cause in CAUSES for told in cause(run))


# -- work ---------------------------------------------------------------------------------------------------------


def _done_again(run: Late) -> Iterator[str]:
    """Computations that nobody uses, or that were done several times."""
    again, vain = _work(run.trace)
    if not again:
        return
    if vain:
        got = f"nothing uses what {operation(vain[0][1])} gives" + more(vain, "computation", "; and")
        yield run.told(got, places(vain[:1]), "leave out what nobody needs")
    alone = len({rank for rank, _ in again[0][1]}) == 1
    # What is made again soonest was deleted for the least gain: that of others may be what saves the memory.
    soon = min(_apart(found) for _, found in again)
    again = [one for one in again if _apart(one[1]) == soon or not alone]
    (op, layer, batch), found = again[0]
    got = f"{op} of layer {layer} for batch {batch} was computed {len(found)} times"
    got += f", the last one {in_units(soon)} later" if alone else f", on {these('rank', {rank for rank, _ in found})}"
    fix = "give each rank work that no other rank does: its own batches, or its own part of them, or its own layers"
    fix = "keep what that gave, instead of computing it again" if alone else fix
    halves = "a whole backward does both halves: what is left after the input half is backward_weight"
    fix = fix if len({event.op for _, event in found}) == 1 else halves
    yield run.told(got + more(again, "computation", "; and"), places(found), fix)


def _work(trace: Trace) -> tuple[list[Any], list[tuple[int, Event]]]:
    """Return what was computed several times, as (operation, layer, batch) with who did it, and what nothing uses."""
    done: dict[tuple[str, int | None, int, object], list[tuple[int, Event]]] = defaultdict(list)
    vain: list[tuple[int, Event]] = []
    for program in trace.programs:
        used = {number for event in program.events for number in event.inputs}
        sums = (n for e in program.events if e.op == "allreduce" for n in e.outputs)
        summed = {n for n in sums if isinstance(program.values[n], Activation)}
        for event in program.events:
            if event.op not in COMPUTE or not OPERATIONS[event.op].per_batch:
                continue
            if used.isdisjoint(event.outputs):
                vain.append((program.rank, event))
            if event.length and summed.isdisjoint(event.inputs):  # an activation that is summed is the same everywhere
                gives = event.outputs[-1:] if event.op in BY_INPUT else event.outputs[:1]
                ends = [value.place for value in program.values_of((*event.inputs[-1:], *gives))]
                parts = [zip(place.schema.roles, place.parts, strict=True) for place in ends]
                # Of one layer and batch ranks may do different parts; only the same part twice is work done twice.
                part = tuple([part for pairs in parts for role, part in pairs if role != "batch"])
                op = "" if event.op in BY_INPUT else event.op  # a whole backward does the input half, too
                for batch in event.batches:
                    done[op, event.layer, batch, part].append((program.rank, event))
    return [((f[0][1].op, *key[1:3]), f) for key, f in done.items() if len(f) > 1], vain


def _apart(found: list[tuple[int, Event]]) -> int:
    """Return how long after it was computed something was computed again, in ticks: from start to start."""
    return (found[-1][1].start or 0) - (found[-2][1].start or 0)


def _states_travel(run: Late) -> Iterator[str]:
    calls = ((p, e) for p in run.trace.programs for e in p.events if e.op in COLLECTIVES)
    if moved := [(p.rank, e) for p, e in calls if is_for_update(p, e)]:
        kind = run.trace.programs[moved[0][0]].values_of(moved[0][1].inputs)[0].kind
        got = f"rank {moved[0][0]} brings {with_article(kind)} to {operation(moved[0][1])}{more(moved, 'call')}"
        yield run.told(got, places(moved), STAYS)


def _uneven(run: Late) -> Iterator[str]:
    """One rank that computes longer than a whole run may take; or than another, where no line is the student's."""
    busy, placed = run.busy, run.spot is None and run.waiting > 0
    most, least = busy.index(max(busy)), busy.index(min(busy))
    if busy[most] > (busy[least] if placed else ticks(run.limit)) >= busy[least]:
        fix = "share the work more evenly, before you hide what ranks wait for"
        if placed:  # the busiest need not be in the way, nor the idlest have time: what if a layer moved?
            ends = {pair: run.with_layers(*pair) for pair in permutations(range(run.trace.ranks), 2)}
            best = min(ends, key=lambda pair: (ends[pair], -busy[pair[0]]))
            fix = "to move one layer to another rank makes it no faster: which rank should have another stage?"
            if ends[best] < figures.makespan(run.trace):
                (most, least), fix = best, "give rank {} less to do and rank {} more, or another stage".format(*best)
        longest = max((e for e in run.trace.programs[most].events if e.op in COMPUTE), key=lambda event: event.length)
        got = f"computes for {in_units(busy[most])}, and rank {least} for {in_units(busy[least])}; the longest is "
        got = f"rank {most} {'' if placed else 'alone '}{got}{operation(longest)}"
        yield run.told(got, places([(most, longest)]), fix)


# -- collectives that nothing hides -------------------------------------------------------------------------------


def _bare(run: Late) -> Iterator[str]:
    """Collectives that a rank awaits where it calls them, for longer than any rank waits for others."""
    calls = [(p, [e for e in p.events if e.op in COLLECTIVES and e.blocking]) for p in run.trace.programs]
    bare = [(program, [event for event in mine if event.length and not _lent(event)]) for program, mine in calls]
    program, mine = max(bare, key=lambda one: sum(event.length for event in one[1]))
    length, far = sum(event.length for event in mine), ""
    # What a run begins with has nothing to hide behind.
    if length <= run.waiting or (run.waiting and not any(event.issued for event in mine)):
        return
    between = [event for event in mine if (mesh := run.trace.mesh) and len({*map(mesh.host, event.group)}) > 1]
    if units(sum(event.length for event in between)) >= run.over:
        mine, length, far = between, sum(event.length for event in between), " between hosts"
    lines = places([(program.rank, event) for event in mine])
    vain = [fix for _, fix in in_vain(program, mine)]
    asked = chain(vain, _cut_afterwards(run, program), _between_hosts(run, program), _held_back(program, mine))
    own = COLLECTIVES.keys() & {*run.asks} or not all(map(is_given, mine))
    found = [gap for gap in gaps(run.trace) if gap.rank == program.rank and gap.before and gap.before.event in mine]
    late = chain(*(ask(run, program, found) for ask in (_beside, _called_late, _in_the_way)), _beside(run, None, found))
    earlier = chain(late, [START_EARLIER]) if own else [TAKE_TURNS]
    fix = ISSUE_EARLIER if any(place.file == ORDER for _, place in lines) else next(chain(asked, earlier))
    # The line that the fix names: of the others one may be given, and none has to change first.
    lines = [(rank, place) for rank, place in lines if re.search(rf" line {place.line}\b", fix)] or lines
    got = f"rank {program.rank} spends {in_units(length)} in {counted(len(mine), 'collective')}{far}"
    yield run.told(f"{got}, and computes nothing meanwhile", lines, fix)


def _beside(run: Late, program: Program | None, waited: Sequence[Gap]) -> Iterator[str]:
    """Work that a rank could do during one of its calls; of a `program`, what comes next after it and is no update."""
    found = ((gap.before, ready_meanwhile(run.trace, gap)) for gap in waited[:LOOKED_AT])
    ready = [(call, one.at) for call, one in found if call and one]
    if program is not None:
        works = [number for number, event in enumerate(program.events) if event.op in COMPUTE and event.length]
        ready = [(c, at) for c, at in ready if not any(c.number < n < at.number for n in works)]
        ready = [(call, at) for call, at in ready if at.event.op not in UPDATES]
    if ready:
        call, work = min(ready, key=lambda p: (-min(at.event.length for at in p), p[1].number - p[0].number))
        words = " could run beside ".join(f"{operation(at.event)}{line_of(at.event)}" for at in (call, work))
        yield f"{words}:\ncall it before that, and await it after"


def _cut_afterwards(run: Late, program: Program | None = None) -> Iterator[str]:
    """What an all-reduce sums whole, and is cut only after that."""
    events = (program := program or run.program).events
    sums = {number: event for event in events if event.op == "allreduce" for number in event.outputs}
    for cut in (event for event in events if event.op == "scatterreduce" and not sums.keys().isdisjoint(event.inputs)):
        whole = next(sums[number] for number in cut.inputs if number in sums)
        why = f"the all-reduce{line_of(whole)} sums whole gradients, and the reduce-scatter{line_of(cut)} cuts the sum "
        yield f"{why}afterwards:\ncut first, and all-reduce the shard that is left, 1/{len(cut.group)} of it"
    for number, whole in sums.items():
        uses = [event for event in events if number in event.inputs and event.outputs]
        cuts = {"shard"} if "scatterreduce" in run.asks else {"shard", *UPDATES}
        sizes = {(e.op in cuts, program.values_of(e.outputs)[0].elements()) for e in uses}
        if sizes == {(True, program.values_of([number])[0].elements() / len(whole.group))}:
            why = f"of the sum that the all-reduce{line_of(whole)} brings, this rank uses only a shard"
            yield f"{why}:\na reduce-scatter brings no more than that, in half the time"


def _between_hosts(run: Late, program: Program | None = None) -> Iterator[str]:
    """Collectives that bring more over the border between hosts than sums of shards."""
    if (mesh := run.trace.mesh) is None:
        return
    program, found = program or run.program, defaultdict[str, list[Event]](list)
    for event in (event for event in program.events if event.op in COLLECTIVES):
        hosts, sums = {mesh.host(rank) for rank in event.group}, event.op == "allreduce"
        if len(hosts) > 1 and sums and all(value.is_complete() for value in program.values_of(event.inputs)):
            found[WHOLE_SUMS].append(event)
        elif 1 < len(hosts) < len(event.group) and not sums:
            found[OVER_ALL].append(event)
    for fix, calls in found.items():
        mine = (one for one in program.values if isinstance(one, Weight) and one.layer == calls[0].layer)
        told = next(filter(None, (gathered_elsewhere(run.trace, program, one) for one in mine)), None)
        if fix == OVER_ALL and told and told[1] in calls:
            fix = f"each brings more than this rank began with: fewer ranks will do, {told[0].split(': ')[-1]}"
        if units(sum(event.length for event in calls)) >= run.over:
            which = f"{counted(len(calls), 'collective')} go from host to host, {in_units(calls[0].length)} each"
            yield f"{which}, such as {operation(calls[0])}:\n{fix}"


def _held_back(program: Program, calls: list[Event]) -> Iterator[str]:
    """A bucket that waits for its last gradient, with the wait of its first one."""
    call = max(calls, key=lambda event: len(event.inputs))
    made = [event for number in call.inputs if (event := maker_of(program, number)) is not None]
    first = min(made, key=lambda event: (event.start or 0) + event.length, default=None)
    if len(call.inputs) < 2 or first is None or (early := call.issued - (first.start or 0) - first.length) <= 0:
        return
    why = f"{operation(first)} gave the first of its {len(call.inputs)} gradients {in_units(early)} earlier: "
    why += "make several buckets,\nstart the sum of each once it is full"
    yield f"{why}, and await it after the backwards that are left"


def _lent(event: Event) -> bool:
    """Tell whether a given helper awaits this halo exchange, so that no student can hide it."""
    place = place_of(event) if event.op == "halo" and event.blocking and event.length else None
    return place is not None and is_given(event) and "exchange" not in place.text


def _borrowed(run: Late) -> Iterator[str]:
    """Halo exchanges of helpers that nothing needs, that share a link, or whose rows a rank could read."""
    lent = [[event for event in program.events if _lent(event)] for program in run.trace.programs]
    if not any(lent):
        return
    vain, data = list[list[Event]](), list[list[Event]]()
    for program, mine in zip(run.trace.programs, lent, strict=True):
        needed = set[int]()
        for event in reversed(program.events if mine else []):
            needed |= {*event.inputs} if event.length or needed & {*event.outputs} else set()
        vain.append([event for event in mine if needed.isdisjoint(event.outputs)])
        data.append([e for e in mine if type(row := program.values_of(e.inputs)[0]) is Activation and not row.layer])
    yield from _long_exchanges(run, vain, "nothing reads what this brings: leave it out")
    yield from _on_one_link(run, [at for at, *_ in critical_path(run.trace).chain if _lent(at.event)])
    if any(data) and run.saved([*chain(*data)]) + units(1) >= run.over:
        yield from _long_exchanges(run, data, "the data is read, not computed: could a rank read what it borrows?")


def _long_exchanges(run: Late, of_ranks: Iterable[Sequence[Event]], fix: str) -> Iterator[str]:
    """Those of a rank that take as long as the run is too long."""
    for rank, calls in enumerate(of_ranks):
        if calls and units(sum(event.length for event in calls) + 1) >= run.over:
            got = f"rank {rank} waits for {counted(len(calls), 'halo exchange')} of layer {calls[0].layer}"
            yield run.told(got, places([(rank, event) for event in calls]), fix)


def _nobody_waits(run: Late) -> Iterator[str]:
    if run.waiting:
        return
    sent = max(([e for e in p.events if e.op in MESSAGES] for p in run.trace.programs), key=len)
    fix = "let the ranks compute less, or share the work more evenly"
    if (spent := sum(event.length for event in sent)) >= ticks(run.over):
        fix = f"the {len(sent)} messages of a rank take {in_units(spent)}: what all ranks need, one collective brings"
    yield run.told("no rank ever waits", places([(run.trace.ranks - 1, event) for event in sent]), fix)


# -- waits --------------------------------------------------------------------------------------------------------


def _waits(program: Program) -> dict[Place | None, int]:
    """Return how long a rank waited in which line, in ticks."""
    found: dict[Place | None, int] = defaultdict(int)
    for event in program.events:
        if event.op == "wait":
            found[place_of(event)] += event.length
        elif event.op in COMMUNICATION and event.blocking and event.start is not None:
            found[place_of(event)] += event.start - event.issued
    return found


def _waits_at(program: Program, gap: Gap) -> Place | None:
    """The line in which a rank waits through a gap."""
    assert gap.before is not None
    waits = (event for event in program.events if event.op == "wait" and event.arg[:1] == (gap.before.number,))
    return place_of(next(waits, gap.before.event))


def _long_wait(run: Late, of_code: Fixes, of_order: Fixes) -> Iterator[str]:
    """The longest wait, with the first of some fixes that there is for it: of code, or of an order."""
    for fix in (fix for ask in (of_order if run.is_order else of_code) for fix in ask(run)):
        gap, got = run.gaps[0] if run.gaps else None, f"rank {run.rank} waits {in_units(run.waiting)} in all"
        spot = run.spot if gap is None else _waits_at(run.program, gap)
        if spot is not None and not run.is_order:
            started = gap is not None and gap.before is not None and not gap.before.event.blocking
            got += f", {units(run.spots[spot]):g} of them {'for what starts ' if started else ''}here"
        if gap is not None:
            start, until = (exact(units(time)) for time in (gap.start, gap.end))
            got += f", such as\n{in_units(gap.length)} ({start} to {until}){gap.why()}"
        yield run.told(got, [] if spot is None else [(run.rank, spot)], fix)


def _called_late(run: Late, program: Program | None = None, waited: Iterable[Gap] | None = None) -> Iterator[str]:
    """Work before a collective for which the rank waits, which can do without it: after the call it would hide that."""
    program = program or run.program
    for gap in run.gaps if waited is None else waited:
        if gap.before is None or (call := gap.before.event).op not in COLLECTIVES:
            continue
        needed, made, before = set(call.inputs), None, program.events[: gap.before.number]
        title = f"{operation(call)}{line_of(call)}"
        again = next((e for e in reversed(before) if (e.op, e.inputs) == (call.op, call.inputs)), call)
        since = takewhile(lambda e, again=again: {*again.outputs}.isdisjoint(e.inputs), reversed(before))
        if again is not call and not any(event.op in COMPUTE and event.length for event in since):
            why = f"what the {title} brings was there until just before, by the one{line_of(again)}"
            yield f"{why}:\nkeep it, instead of gathering it again"
        updated = units(sum(event.length for event in before if event.op in UPDATES))
        for event in reversed(before):
            if waited is not None and (made or (event.blocking and not is_given(event))):
                break
            if needed & {*event.outputs}:
                needed |= {*event.inputs}
                made = event if event.op in COMPUTE and made is None else made
            elif event.op in COMPUTE and event.length:
                if made and event.op in UPDATES and updated >= run.over:
                    why = f"{operation(event)}{line_of(event)} delays {operation(made)}, and so the {title}"
                    yield f"{why}:\nfirst all backwards, then the updates"
                halves = made and (made.op, event.op) == ("backward_input", "backward_weight")
                if made and not (halves and (made.layer, made.batches) == (event.layer, event.batches)):
                    break
                needs = "can do without it" if made is None else "only needs the input half"
                if waited is None:
                    run.gaps.insert(0, gap)
                why = f"{operation(event)}{line_of(event)} comes before the {title}, which {needs}"
                yield f"{why}:\ncall the {spoken(call.op)} first, and do the {spoken(event.op)} while it travels"


def _from_the_reader(run: Late) -> Iterator[str]:
    """Examples for which a rank waits longer than it has to for its first."""
    if sum(gap.length for gap in run.gaps if gap.kind == "reader") > run.first:
        yield "ask for one example at a time, and for the next one before you compute with this one"


def _turned(run: Late) -> Iterator[str]:
    """Work for whose exchange the rank waits, though another pass, or part, had one to start before that work."""
    events = run.program.events
    for gap, call in ((gap, gap.before) for gap in run.waits if gap.before is not None):
        work = next((e for e in reversed(events[: call.number]) if e.op in COMPUTE and e.length), None)
        number = next((n for n, e in enumerate(events) if n > call.number and e.op in COLLECTIVES), None)
        if number is None or work is None or call.event.op not in COLLECTIVES or not is_given(call.event):
            continue
        needed, there = {*events[number].inputs}, 0
        for event in (event for event in reversed(events[:number]) if needed & {*event.outputs}):
            needed |= set() if event.length else {*event.inputs}
            there = max(there, event.end or 0) if event.length else there
        if events[number].issued <= gap.start and there <= (work.start or 0):
            run.gaps.insert(0, gap)
            why = f"the {operation(events[number])}{line_of(events[number])} leaves at {units(events[number].issued):g}"
            why += f", and could at {units(work.start or 0):g}, before {operation(work)}"
            yield f"{why}:\nthen this rank has something to compute with during this wait"


def _one_by_one(run: Late) -> Iterator[str]:
    """Gradients that are summed one by one, where the latency of each is what takes time."""
    # Only Links have one; elsewhere it is nothing that a bucket could save.
    latency, program = ticks(getattr(run.trace.costs, "latency", 0)), run.program
    calls = [event for event in program.events if event.op in BUCKETED and len(event.inputs) == 1]
    calls = [e for e in calls if isinstance(program.values[e.inputs[0]], WeightGrad) and not is_given(e)]
    waits = [gap for gap in gaps(run.trace) if gap.rank == run.rank and gap.before and gap.before.event in calls]
    # Told only if latency is most of what they take, and if that is waited for: else it is not why the run is late.
    late: list[Event] = []  # those that are waited for, and those that hold them up
    for event in reversed(calls):
        waited = any((event.start or 0) < gap.end and gap.start < (event.end or 0) for gap in waits)
        late += [event] if waited or any(one.issued < (one.start or 0) == event.end for one in late) else []
    paid = [latency * COLLECTIVES[event.op].messages(len(event.group)) for event in late]
    saved = sum(paid) - max(paid, default=0)  # a bucket still pays once
    enough = units(min(saved, sum(gap.length for gap in waits))) >= run.over
    if len(late) > 1 and enough and 2 * sum(paid) >= sum(event.length for event in late):
        why = f"each of the {len(late)} all-reduces waits {in_units(paid[0])} for its messages to travel, "
        yield f"{why}however small it is:\n{in_units(sum(paid))} in all. Several gradients in one bucket pay that once"


def _sent_late(run: Late, anywhere: bool = False) -> Iterator[str]:
    """What a sender did between making a value and passing it, where a rank waited for that value: the rank that waits
    longest, in its line, or any."""
    causes, late = causes_of(run.trace), Counter[tuple[int, str, int, int]]()
    programs = run.trace.programs if anywhere else [run.program]
    for at in (At(program.rank, *one) for program in programs for one in enumerate(program.events)):
        waited = at.event.op == "receive" and (at.event.start or 0) > at.event.issued
        sent = causes.sent(at) if waited and (anywhere or place_of(at.event) == run.spot) else None
        if sent is None or not sent.event.inputs:
            continue
        there, passed = place_of(sent.event), set(sent.event.inputs)
        before = reversed(run.trace.programs[sent.rank].events[: sent.number])
        for other in takewhile(lambda event, passed=passed: passed.isdisjoint(event.outputs), before):
            busy = other.op in COMPUTE or (other.op in COLLECTIVES and other.blocking)
            if busy and other.length and (line := place_of(other)) is not None:
                late[sent.rank, other.op, line.line, 0 if there is None else there.line] += other.length
    if not late:
        return
    # Ties by the key: Counter.most_common would go by who came first.
    (sender, op, line, there), _ = max(late.items(), key=lambda item: (item[1], item[0]))
    does = "updates" if op == "update" else f"computes another {op}"
    does = f"waits for a {COLLECTIVES[op].title}" if op in COLLECTIVES else does
    yield f"rank {sender} {does} in line {line} before it passes what it has, in line {there}: pass first"


def _in_the_way(run: Late, program: Program | None = None, waited: Sequence[Gap] | None = None) -> Iterator[str]:
    """A communication that goes first between the same ranks, though awaited later. The other gap is put first."""
    events = (program or run.program).events
    awaited = [e.arg[0] if e.op == "wait" else n for n, e in enumerate(events) if e.op == "wait" or e.blocking]
    for gap in run.gaps if waited is None else waited:
        first, late = gap.cause, gap.before
        if gap.kind != "stream" or first is None or late is None or late.number not in awaited:
            continue
        needed, between = set(late.event.inputs), events[first.number : late.number]
        for event in reversed(between):
            needed |= {*event.inputs} if needed & {*event.outputs} and not event.length else set()
        timed = {number for event in between if event.length for number in event.outputs}
        made = [event.end or 0 for event in events[: late.number] if needed & {*event.outputs}]
        there = not needed & timed and max(made, default=0) <= first.event.issued
        if there and first.number in awaited[awaited.index(late.number) :]:
            run.gaps.insert(0, gap)
            call = f"{COLLECTIVES[late.event.op].title}{line_of(late.event)}"
            yield f"call the {call} before the {operation(first.event)}{line_of(first.event)}, which is needed later"


def _goes_back_late(run: Late) -> Iterator[str]:
    """A pipeline in which a rank takes some batches forward, as many as the next, before it goes back; or all do."""

    def forwards(events: Iterable[Event]) -> int:
        layers = [event.layer for event in events if event.op == "forward"]
        return layers.count(layers[0]) if layers else 0

    ahead = [forwards(takewhile(lambda event: event.op not in BY_INPUT, p.events)) for p in run.trace.programs]
    last = run.trace.programs[-1]
    turn = next((event for event in last.events if event.op == "loss"), None)
    passes = any(event.op == "pass_to" for event in last.events)
    if turn is not None and passes and len({*ahead}) == 1 and 1 < min(ahead) < forwards(last.events):
        why = f"rank {last.rank} could go back with {these('batch', turn.batches)} at {units(turn.start or 0):g}, and "
        why += f"first takes {min(ahead) - 1} more forward: all ranks wait for that"
        yield f"{why}.\nA later stage needs fewer batches ahead"
    alone = passes and not any(event.op in COLLECTIVES for _, event in run.trace.events())
    for rank in range(run.trace.ranks - 1) if alone and len({*ahead}) > 1 else ():
        if 0 < ahead[rank] == ahead[rank + 1] < forwards(last.events):
            why = f"ranks {rank} and {rank + 1} both go back after {counted(ahead[rank], 'forward')}"
            yield f"{why}, and so wait for each other:\nwhich of the two needs more batches ahead?"


def _meanwhile(run: Late) -> Iterator[str]:
    """Work that the rank could do in one of its longer waits in a line, else anywhere; that wait is put first."""
    for waits in [run.gaps] if run.is_order else [run.gaps, run.waits]:
        # A shorter wait, in which the rank could do something, teaches more than a longer one.
        long = [gap for gap in waits[:LOOKED_AT] if 2 * gap.length >= waits[0].length]
        ready = ((gap, ready_meanwhile(run.trace, gap)) for gap in long)
        could = [(gap, found.at.event) for gap, found in ready if found is not None]
        # An order has no word for an update, and a short one is no answer: it only comes earlier than something else.
        long_enough = run.over if not run.is_order else float("inf")
        could = [one for one in could if one[1].op not in UPDATES or units(one[1].length) >= long_enough]
        if could:
            gap, event = max(could, key=lambda one: min(one[0].length, one[1].length))
            run.gaps.insert(0, gap)
            yield _could(run.rank, event)


def _could(rank: int, event: Event) -> str:
    return f"meanwhile rank {rank} could do {operation(event)}{line_of(event)}: put that before this wait"


def _together(run: Late) -> Iterator[str]:
    """Batches that go through a pipeline together, so that the next rank begins late."""
    passed = [(p, e) for p in run.trace.programs for e in p.events if e.op == "pass_to" and e.peer is not None]
    if passed and all(len(e.batches) > 1 and len(p.values_of(e.inputs)) == 1 for p, e in passed):
        _, first = min(passed, key=lambda one: (one[1].issued, one[0].rank))
        why = f"{these('batch', first.batches)} travel together, so rank {first.peer} begins only after "
        why += f"{units(first.issued):g}: pass each batch on"
        yield f"{why}\nas soon as it is ready, and the ranks work at the same time"


def _somehow(run: Late) -> Iterator[str]:
    """Other batches that a rank takes in before it has passed on one; or that nothing more is known."""
    for program in () if run.is_order else run.trace.programs:
        came: dict[tuple[str, frozenset[int]], int] = {}
        for number, event in enumerate(program.events):
            if event.outputs and (event.op == "receive" or (event.op in COMPUTE and event.length)):
                came.setdefault((program.values_of(event.outputs)[-1].kind, event.batches), number)
            brought = program.values_of(event.inputs)[0].kind if event.op == "pass_to" and event.inputs else ""
            busy = program.events[came.pop((brought, event.batches), number) : number]
            if other := next((one for one in busy if one.length and event.batches.isdisjoint(one.batches)), None):
                why = f"rank {program.rank} goes on to {these('batch', other.batches)}{line_of(other)} before it has "
                why += f"passed on {these('batch', event.batches)}{line_of(event)}"
                yield f"{why}:\ntake each batch through all layers of the stage, and pass it on, before the next"
    yield "let it do other work before it waits, or let the others do earlier what it waits for"


# -- the critical path --------------------------------------------------------------------------------------------


def _on_the_path(run: Late) -> Iterator[str]:
    """Collectives that nothing hides, where without them the run would be short enough."""
    steps = [at for at in critical_path(run.trace).steps if at.event.op in COLLECTIVES and not _lent(at.event)]
    calls = [at.event for at in steps]
    if not calls or units(sum(event.length for event in calls)) < run.over:
        return
    last, *others = [call for call in calls if call.op == "allreduce_bucket"] or calls
    late = units(last.length) >= run.over and not others and not run.is_order
    if late and last.op in BUCKETED and len(last.inputs) > 1:
        why = f"the last bucket{line_of(last)} has {len(last.inputs)} gradients and takes {in_units(last.length)}, and "
        yield f"{why}too little is left to\nhide that behind: let the last bucket be smaller"
    every = [(one.rank, e.layer, e.group) for one in run.trace.programs for e in one.events if e.op == "allgather"]
    ((rank, layer, _), times), *_ = [*Counter(every).most_common(1), ((0, 0, ()), 0)]
    twice = 2 * len({layer for _, layer, _ in every})  # forward and backward, say
    if not run.is_order and times > 2 and calls[0].op == "allgather" and len(every) > twice:
        why = f"rank {rank} gathers layer {layer} {times} times, once for each microbatch, forward and backward"
        yield f"{why}:\ngather a layer once, and take all microbatches through it before its whole weight is deleted"
    for rank, number, call in () if run.is_order else steps:
        before = run.trace.programs[rank].events[max(0, number - 1)]
        if before.op == "receive" and (before.start or 0) > before.issued and call.op == "allgather":
            why = f"rank {rank} waits in receive{line_of(before)}, and then calls {operation(call)}{line_of(call)}"
            yield f"{why}:\ncall that before, while the message is still on its way"
    if run.is_order:  # nothing hides the first one
        named = next((call for call in calls[1:] if call.op == "allgather"), (calls[1:] or calls)[0])
        fix = ISSUE_EARLIER if named.op == "allgather" else REDUCE_EARLIER
    else:  # nor what comes before all work
        began = min((e.start or 0 for e in run.program.events if e.op in COMPUTE and e.length), default=0)
        calls = [call for call in calls if call.issued > began and run.saved([call])]
        named = max(calls, key=lambda event: event.length, default=None)
        run.gaps.sort(key=lambda gap: gap.before is None or gap.before.event is not named)
        fix = "keep some work for that time, or let it travel in two parts, and work with the first meanwhile"
    if named is not None:
        which = f"{counted(len(calls), 'collective')} on the critical path {'takes' if len(calls) == 1 else 'take'} "
        which += f"{in_units(sum(call.length for call in calls))}, such as {operation(named)}{line_of(named)}"
        yield f"{which}:\n{fix}"


def _updates_between(run: Late) -> Iterator[str]:
    """Updates that delay the last backward, and with it the last sum: a good part of what the run is too long."""
    back = max((n for n, event in enumerate(run.program.events) if event.op in BY_INPUT), default=0)
    early = [event for event in run.program.events[:back] if event.op in UPDATES]
    if early and not run.is_order and 3 * run.saved(early) >= run.over:
        got = f"rank {run.rank} does {counted(len(early), 'update')} before its last backward"
        fix = "first all backwards, then the updates: the last sum waits for the last backward"
        yield run.told(got, places([(run.rank, event) for event in early]), fix)


def _late_on_the_path(run: Late) -> Iterator[str]:
    """Sums of gradients at the end of the critical path of which one is called late or awaited early, else a rank on it
    that waits for its own messages, or slows them down. They are long enough for a run to be as late as it is."""
    if run.is_order:
        return
    path = critical_path(run.trace).chain
    tail = takewhile(lambda step: step.at.event.op not in BY_INPUT, path)
    sums = [step.at for step in tail if step.at.event.op in (*BUCKETED, "scatterreduce")]
    sent = [at for at, *_, how, _ in path if how == "own" and at.event.op == "pass_to" and at.event.blocking]
    summed, passed = (sum(at.event.length for at in calls) for calls in (sums, sent))
    for at in reversed(sums if units(summed) >= run.over else []):
        waited = [gap for gap in gaps(run.trace) if gap.before is not None and gap.before[:2] == at[:2]]
        ready = (ready_meanwhile(run.trace, gap) for gap in waited)
        found = (one.at.event for one in ready if one is not None)
        updates = sum(event.length for event in run.trace.programs[at.rank].events if event.op in UPDATES)
        could = (_could(at.rank, e) for e in found if e.op not in UPDATES or units(updates) >= run.over)
        for fix in chain(_called_late(run, run.trace.programs[at.rank], waited), could):
            got = f"sums of gradients that nothing hides take {in_units(summed)} at the end of the critical path, "
            got += f"such as {operation(at.event)}"
            yield run.told(got, places([(at.rank, at.event)]), fix)
    if sent and units(passed) >= run.over:
        rank, _, event = sent[-1]
        got = f"rank {rank} waits {in_units(passed)} for its own messages to arrive, on the critical path"
        fix = "keep what pass_to gives, go on, and await it later: the message arrives while this rank computes"
        yield run.told(got, places([(rank, event)]), fix)
    yield from _on_one_link(run, [at for at, *_ in path if at.event.op == "pass_to"])


def _on_one_link(run: Late, waited: Sequence[At]) -> Iterator[str]:
    """Messages, or halo exchanges of helpers, that take longer because a collective travels beside them."""
    slow: list[tuple[At, Event, int]] = []
    for at in waited:
        program, event = run.trace.programs[at.rank], at.event
        others = (e for e in program.events if e.op in COLLECTIVES and e.op != event.op and e.issued < (event.end or 0))
        beside = next((e for e in others if (e.end or 0) > (event.start or 0) and not is_given(e)), None)
        if beside is not None and (lost := event.length - alone(run.trace).get(at[:2], event.length)) > 0:
            slow.append((at, beside, lost))
    if slow and units(sum(longer for *_, longer in slow) + 1) >= run.over:
        (rank, _, event), beside, _ = slow[0]
        title = f"the {COLLECTIVES[beside.op].title}{line_of(beside)}"
        what, it = (operation(event), "exchange") if event.op == "halo" else (f"the message of rank {rank}", "message")
        got = f"{what}{line_of(event)} and {title} share a link, and both take longer"
        yield run.told(got, places([(rank, event)]), f"await the {it} before you call {title}")


# -- orders of a pipeline -----------------------------------------------------------------------------------------


def _words(program: Program) -> list[str]:
    """The words of a rank's order, each once, as it comes to them."""
    return list(dict.fromkeys(place.text for event in program.events if (place := place_of(event)) is not None))


def _whole_backward(run: Late) -> Iterator[str]:
    """Both halves of a backward in one, where the puzzle asks to part them."""
    whole = next((word for program in run.trace.programs for word in _words(program) if "B" in word), None)
    if whole is not None and "backward_weight" in run.asks:
        stage, _, batch = whole.partition("B")
        why = f"{whole} is both halves of a backward in one, and the stage before waits until both are done. Write "
        why += f"them\napart, {stage}I{batch} and {stage}W{batch}"
        yield f"{why}: only the input half, I, is waited for, and W can fill a wait"


def _other_way_first(run: Late) -> Iterator[str]:
    """A forward on the way to what a rank waits for, that another forward of its rank came before, though it could have
    begun by then. The gap is put first."""
    causes = causes_of(run.trace)
    for gap in run.gaps[:LOOKED_AT]:
        at = None if gap.before is None else causes.sent(gap.before)
        for _ in run.trace.programs:  # each is passed at most once
            events = () if at is None else run.trace.programs[at.rank].events[: at.number]
            done = [event for event in events if event.op in COMPUTE and event.length]
            number = next((n for n, event in enumerate(done) if at and place_of(event) == place_of(at.event)), 0)
            if at is None or not number or not done[number].op == done[number - 1].op == "forward":
                break
            early, late = done[number - 1 : number + 1]
            came = next((n for n, event in enumerate(events) if late.inputs[0] in event.outputs), None)
            sent = None if came is None else causes.sent(At(at.rank, came, events[came]))
            there = None if came is None else (events[came] if sent is None else sent.event).end
            if there is not None and there <= (early.start or 0):
                first, then = (place.text if (place := place_of(event)) else event.op for event in (early, late))
                run.gaps.insert(0, gap)
                why = f"on rank {at.rank}, {first} comes before {then}, which could begin by then"
                yield f"{why}, and for which rank {run.rank} waits:\ntake {then} first"
            at = sent


def _weight_half_first(run: Late, several: bool = False) -> Iterator[str]:
    """A weight half that the last rank does before its last input half: all ranks before it wait for that one. With
    `several` stages a rank, only what comes after the last forward is in the way."""
    program = run.trace.programs[-1]
    words = _words(program)
    behind = max((number for number, word in enumerate(words) if several and "F" in word), default=0)
    halves = [word for word in words[behind:] if re.search("[IW]", word)]
    inputs = [number for number, word in enumerate(halves) if "I" in word]
    stages = {halves[number].partition("I")[0] for number in inputs}
    if not stages or (len(stages) > 1) is not several or run.trace.ranks == 1:
        return
    if before := [word for word in halves[: inputs[-1]] if "W" in word]:
        why = f"on rank {program.rank}, {before[-1]} comes before {halves[inputs[-1]]}, for which all other ranks wait"
        yield f"{why}.\nNo rank waits for a weight half: on the later ranks let it lag further behind"
    # Else the first rank may leave weight halves for the end, though its last gradient comes last.
    left = list(takewhile(lambda word: "W" in word, reversed(_words(run.trace.programs[0]))))
    if len(left) > 1 and not several:
        why = f"rank 0 leaves {len(left)} weight halves for the end, and it gets its last gradient last of all"
        yield f"{why}: do them earlier\nthere, where it waits. Later ranks have time for them at the end"


def _short_group(run: Late) -> Iterator[str]:
    """A last group of microbatches that is shorter than the round through all ranks."""
    groups: dict[str, list[int]] = defaultdict(list)
    for stage, words in groupby(word.partition("F")[0] for word in _words(run.program) if "F" in word):
        groups[stage].append(len([*words]))
    first, *others = groups.values()
    if others == [first] * len(others) and first[-1] < run.trace.ranks <= min(first[:-1], default=0):
        why = f"the last group has {counted(first[-1], 'microbatch')}, and there are {run.trace.ranks} ranks"
        yield f"{why}: all wait until it has come round.\nLet no group have fewer microbatches than there are ranks"


def _down_too_early(run: Late) -> Iterator[str]:
    """An input half on the way down of a V that waits for its gradient, before what could come up and go back."""
    words = _words(run.program)
    for place in (_waits_at(run.program, gap) for gap in run.gaps[:LOOKED_AT]):
        waits = re.fullmatch(r"(\d+)I\d+", "" if place is None else place.text)
        up = f"{2 * run.trace.ranks - 1 - int(waits[1])}F" if waits else "-"
        after = next((word for word in words[words.index(waits[0]) :] if word.startswith(up)), None) if waits else None
        if waits and after:
            why = f"{waits[0]} waits for a gradient that comes down through all ranks, and {after} comes only after it"
            yield f"{why}:\nuntil the first gradient is there, take microbatches up, and back at once"


def _one_stage_each(run: Late) -> Iterator[str]:
    """One long stage a rank, whose messages do not keep anyone waiting."""
    ranks = run.trace.ranks
    stages = {word.rstrip("0123456789") for program in run.trace.programs for word in _words(program)}
    single = sum(stage[-1:] == "F" for stage in stages) <= ranks and run.trace.layers >= 2 * ranks
    if single and not any(event.blocking for _, event in run.trace.events() if event.op == "receive"):
        why = "each rank has one stage here, and nothing else to do meanwhile. With two short stages on each,\n"
        yield f"{why}the next rank begins sooner: {ranks}F0 is the forward of microbatch 0 on rank 0's second stage"


def _neighbours(run: Late) -> Iterator[str]:
    """Stages of every rank that follow each other, as one long stage."""
    passes = [re.findall(r"\b(\d+)[FBIW]\d", " ".join(_words(program))) for program in run.trace.programs]
    found = [sorted({*map(int, stages)}) for stages in passes]
    if run.trace.ranks > 1 and all(len(mine) > 1 and mine[-1] - mine[0] == len(mine) - 1 for mine in found):
        why = f"{these('stage', found[0])} of rank 0 follow each other: together they are one long stage, and rank 1 "
        why += "gets\nnothing before both are done"
        yield f"{why}. Let the stages go round: stage {run.trace.ranks} is on rank 0 again"


def _round_at_once(run: Late) -> Iterator[str]:
    """A microbatch that a rank takes through two of its stages in a row."""
    for before, word in pairwise(_words(run.program)):
        both = re.fullmatch(r"(\d+)([FBI])(\d+) (\d+)\2\3", f"{before} {word}")
        if both is not None and abs(int(both[1]) - int(both[4])) > 1:
            first, _, batch, second = both.groups()
            why = f"{before} and {word} follow each other on rank {run.rank}: between stages {first} and {second} "
            why += f"microbatch {batch} goes\nthrough the other ranks, and this one waits"
            yield f"{why}. Take others through stage {first} meanwhile"


OF_THE_WAIT: Fixes = (
    *(_from_the_reader, _cut_afterwards, _between_hosts, _called_late, _one_by_one, _sent_late, _in_the_way, _turned),
)
IN_GENERAL: Fixes = (_goes_back_late, _meanwhile, _on_the_path, _together, partial(_sent_late, anywhere=True), _somehow)
OF_ORDERS: Fixes = (
    *(_whole_backward, _weight_half_first, _other_way_first, _short_group, _meanwhile, _on_the_path, _one_stage_each),
    *(_neighbours, _round_at_once, _down_too_early, partial(_weight_half_first, several=True), _somehow),
)
CAUSES = (
    *(_done_again, _states_travel, _uneven, _bare, _borrowed, _nobody_waits),
    *(partial(_long_wait, of_code=OF_THE_WAIT, of_order=OF_ORDERS), _late_on_the_path, _updates_between),
    partial(_long_wait, of_code=IN_GENERAL, of_order=()),
)
"""From work that nobody needs to waits: of a run the first is told that it has. The last one always tells."""
