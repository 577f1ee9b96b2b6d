"""Why a correct run ends later than a goal allows: a table of causes, of which the first that applies is told."""

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
from lib.checker.faults import Where, because, maker_of, places, remark
from lib.checker.notes import gathered_elsewhere, in_vain, is_given
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

BUCKETED = ("allreduce", "allreduce_bucket")
"""Collectives whose values can travel together."""
Fixes = Sequence["Callable[[Late], Iterator[str]]"]
"""What to do about a wait, or about a run: the first that is yielded is told."""
NO_WAITS = ("drain", "never", "stopped", "unknown")
"""Gaps in which a rank waits for nothing that will come."""
LOOKED_AT = 20
"""How many of a rank's waits are searched for work that it could do meanwhile."""


class Late:
    """A run `over` time units longer than its limit, and what several causes need to know: the rank that waits longest,
    for how many ticks, in which line most, and in which gaps there, the longest first. `asks`: what the puzzle asks a
    student to find."""

    def __init__(self, trace: Trace, name: str, limit: float, over: float, asks: Collection[str]) -> None:
        self.trace, self.name, self.limit, self.over, self.asks = trace, name, limit, over, asks
        self.busy = figures.computing(trace)
        waits = [_waits(program) for program in trace.programs]
        # A reader needs this long for the first example of two rows. Later, sums wait for a rank that read late.
        self.first = 2 * ticks(trace.costs.read)
        for gap in gaps(trace) if "read" in asks else ():
            if gap.kind == "collective" or (gap.kind == "reader" and gap.end <= self.first):
                waits[gap.rank][_waits_at(trace.programs[gap.rank], gap)] -= gap.length
        most = max(self.busy)
        # A rank with much less to do than the busiest one waits for that one, and is not the reason.
        totals = [sum(spots.values()) * (10 * own >= 9 * most) for own, spots in zip(self.busy, waits, strict=True)]
        self.waiting = max(totals)
        self.rank = totals.index(self.waiting)
        self.program, self.spots = trace.programs[self.rank], waits[self.rank]
        self.spot = max(self.spots, key=lambda place: self.spots[place], default=None)
        self.is_order = self.spot is not None and self.spot.file == ORDER
        mine = (gap for gap in gaps(trace) if gap.rank == self.rank and gap.kind not in NO_WAITS and gap.before)
        self.waits = sorted(mine, key=lambda gap: -gap.length)

    def told(self, cause: str, where: Where, *cases: str, **parts: object) -> str:
        """Put a cause into words: what the run does, in which lines, and what to do instead."""
        over = exact(self.over) if self.over >= 0.0001 else f"{self.over:.10g}"
        parts |= {"name": self.name, "over": over, "units": plural("time unit", float(over))}
        return remark("late", cause, *cases, where=where, **parts)

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
    """Say why a run takes longer than the limit of a goal: the first of CAUSES that applies."""
    run = Late(trace, name, limit, float(f"{end - limit:.10g}"), asks)
    return next(told for cause in CAUSES for told in cause(run))


# -- work ---------------------------------------------------------------------------------------------------------


def _done_again(run: Late) -> Iterator[str]:
    """Computations that are never used, or were done several times."""
    again, vain = _work(run.trace)
    if not again:
        return
    if vain:
        yield run.told("in_vain", places(vain[:1]), op=operation(vain[0][1]), more=more(vain, "computation", "; and"))
    alone = len({rank for rank, _ in again[0][1]}) == 1
    # What is recomputed soonest was deleted for the least gain; recomputing others may be what saves the memory.
    soon = min(_apart(found) for _, found in again)
    again = [one for one in again if _apart(one[1]) == soon or not alone]
    (op, layer, batch), found = again[0]
    cases = "alone" if alone else "", "in_halves" if len({event.op for _, event in found}) > 1 else ""
    parts = {"op": op, "layer": layer, "batch": batch, "times": len(found), "more": more(again, "computation", "; and")}
    ranks = these("rank", {rank for rank, _ in found})
    yield run.told("again", places(found), *cases, ranks=ranks, later=in_units(soon), **parts)


def _work(trace: Trace) -> tuple[list[Any], list[tuple[int, Event]]]:
    """Return what was computed repeatedly, as (operation, layer, batch) with ranks and events, and what is not used."""
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
                # Ranks may do different parts of one layer and batch; only the same part twice is work done twice.
                part = tuple([part for pairs in parts for role, part in pairs if role != "batch"])
                op = "" if event.op in BY_INPUT else event.op  # a whole backward does the input half, too
                for batch in event.batches:
                    done[op, event.layer, batch, part].append((program.rank, event))
    return [((f[0][1].op, *key[1:3]), f) for key, f in done.items() if len(f) > 1], vain


def _apart(found: list[tuple[int, Event]]) -> int:
    """Return how long after it was computed something was computed again, in ticks from start to start."""
    return (found[-1][1].start or 0) - (found[-2][1].start or 0)


def _states_travel(run: Late) -> Iterator[str]:
    calls = ((p, e) for p in run.trace.programs for e in p.events if e.op in COLLECTIVES)
    if moved := [(p.rank, e) for p, e in calls if is_for_update(p, e)]:
        kind = run.trace.programs[moved[0][0]].values_of(moved[0][1].inputs)[0].kind
        parts = {"rank": moved[0][0], "value": with_article(kind), "op": operation(moved[0][1])}
        yield run.told("moved", places(moved), more=more(moved, "call"), fix=because("send_less_updates"), **parts)


def _uneven(run: Late) -> Iterator[str]:
    """A rank that computes longer than a whole run may take; or longer than another, if the student wrote no line."""
    busy, placed = run.busy, run.spot is None and run.waiting > 0
    most, least = busy.index(max(busy)), busy.index(min(busy))
    if busy[most] > (busy[least] if placed else ticks(run.limit)) >= busy[least]:
        cases = ["placed"] if placed else []
        if placed:  # busiest and idlest may be the wrong pair: try moving a layer
            ends = {pair: run.with_layers(*pair) for pair in permutations(range(run.trace.ranks), 2)}
            best = min(ends, key=lambda pair: (ends[pair], -busy[pair[0]]))
            if ends[best] < figures.makespan(run.trace):
                (most, least), cases = best, ["placed", "to_move"]
        longest = max((e for e in run.trace.programs[most].events if e.op in COMPUTE), key=lambda event: event.length)
        parts = {"most": most, "least": least, "long": in_units(busy[most]), "short": in_units(busy[least])}
        yield run.told("uneven", places([(most, longest)]), *cases, longest=operation(longest), **parts)


# -- collectives that nothing hides -------------------------------------------------------------------------------


def _bare(run: Late) -> Iterator[str]:
    """Collectives that a rank awaits where it calls them, for longer than any rank waits for others."""
    calls = [(p, [e for e in p.events if e.op in COLLECTIVES and e.blocking]) for p in run.trace.programs]
    bare = [(program, [event for event in mine if event.length and not _lent(event)]) for program, mine in calls]
    program, mine = max(bare, key=lambda one: sum(event.length for event in one[1]))
    length, far = sum(event.length for event in mine), ""
    # Collectives at the start of a run have nothing to hide behind.
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
    earlier = chain(late, [because("start_earlier")]) if own else [because("take_turns")]
    fix = because("unshard_earlier") if any(place.file == ORDER for _, place in lines) else next(chain(asked, earlier))
    # The line that the fix names: the others need not change first, and may be given code.
    lines = [(rank, place) for rank, place in lines if re.search(rf" line {place.line}\b", fix)] or lines
    parts = {"rank": program.rank, "time": in_units(length), "calls": counted(len(mine), "collective"), "far": far}
    yield run.told("bare", lines, fix=fix, **parts)


def _beside(run: Late, program: Program | None, waited: Sequence[Gap]) -> Iterator[str]:
    """Work that a rank could do during one of its calls; with a `program`, only the next work after it, no update."""
    found = ((gap.before, ready_meanwhile(run.trace, gap)) for gap in waited[:LOOKED_AT])
    ready = [(call, one.at) for call, one in found if call and one]
    if program is not None:
        works = [number for number, event in enumerate(program.events) if event.op in COMPUTE and event.length]
        ready = [(c, at) for c, at in ready if not any(c.number < n < at.number for n in works)]
        ready = [(call, at) for call, at in ready if at.event.op not in UPDATES]
    if ready:
        call, work = min(ready, key=lambda p: (-min(at.event.length for at in p), p[1].number - p[0].number))
        yield because("beside", call=call.event, work=work.event)


def _cut_afterwards(run: Late, program: Program | None = None) -> Iterator[str]:
    """Values that an all-reduce sums whole, though they are cut afterwards."""
    events = (program := program or run.program).events
    sums = {number: event for event in events if event.op == "allreduce" for number in event.outputs}
    for cut in (event for event in events if event.op == "scatterreduce" and not sums.keys().isdisjoint(event.inputs)):
        whole = next(sums[number] for number in cut.inputs if number in sums)
        yield because("cut_first", whole=line_of(whole), cut=line_of(cut), ranks=len(cut.group))
    for number, whole in sums.items():
        uses = [event for event in events if number in event.inputs and event.outputs]
        cuts = {"shard"} if "scatterreduce" in run.asks else {"shard", *UPDATES}
        sizes = {(e.op in cuts, program.values_of(e.outputs)[0].elements()) for e in uses}
        if sizes == {(True, program.values_of([number])[0].elements() / len(whole.group))}:
            yield because("only_a_shard", line=line_of(whole))


def _between_hosts(run: Late, program: Program | None = None) -> Iterator[str]:
    """Collectives that send more between hosts than sums of shards would."""
    if (mesh := run.trace.mesh) is None:
        return
    program, found = program or run.program, defaultdict[str, list[Event]](list)
    for event in (event for event in program.events if event.op in COLLECTIVES):
        hosts, sums = {mesh.host(rank) for rank in event.group}, event.op == "allreduce"
        if len(hosts) > 1 and sums and all(value.is_complete() for value in program.values_of(event.inputs)):
            found["whole_sums"].append(event)
        elif 1 < len(hosts) < len(event.group) and not sums:
            found["over_all"].append(event)
    for why, calls in found.items():
        mine = (one for one in program.values if isinstance(one, Weight) and one.layer == calls[0].layer)
        told = next(filter(None, (gathered_elsewhere(run.trace, program, one) for one in mine)), None)
        fix = because(why)
        if why == "over_all" and told and told[1] in calls:
            fix = because("fewer_ranks", along=told[0].split(": ")[-1])
        if units(sum(event.length for event in calls)) >= run.over:
            parts = {"calls": counted(len(calls), "collective"), "time": in_units(calls[0].length)}
            yield because("between_hosts", op=operation(calls[0]), fix=fix, **parts)


def _held_back(program: Program, calls: list[Event]) -> Iterator[str]:
    """A bucket that waits for its last gradient, with how long its first one waits."""
    call = max(calls, key=lambda event: len(event.inputs))
    made = [event for number in call.inputs if (event := maker_of(program, number)) is not None]
    first = min(made, key=lambda event: (event.start or 0) + event.length, default=None)
    if len(call.inputs) < 2 or first is None or (early := call.issued - (first.start or 0) - first.length) <= 0:
        return
    yield because("held_back", op=operation(first), gradients=len(call.inputs), early=in_units(early))


def _lent(event: Event) -> bool:
    """Tell whether a given helper awaits this halo exchange, so that the student cannot hide it."""
    place = place_of(event) if event.op == "halo" and event.blocking and event.length else None
    return place is not None and is_given(event) and "exchange" not in place.text


def _borrowed(run: Late) -> Iterator[str]:
    """Helpers' halo exchanges that nothing needs, that share a link, or whose rows a rank could read itself."""
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
    yield from _long_exchanges(run, vain, because("exchanged_in_vain"))
    yield from _on_one_link(run, [at for at, *_ in critical_path(run.trace).chain if _lent(at.event)])
    if any(data) and run.saved([*chain(*data)]) + units(1) >= run.over:
        yield from _long_exchanges(run, data, because("data_borrowed"))


def _long_exchanges(run: Late, of_ranks: Iterable[Sequence[Event]], fix: str) -> Iterator[str]:
    """A rank's exchanges that take as long as the run is late."""
    for rank, calls in enumerate(of_ranks):
        if calls and units(sum(event.length for event in calls) + 1) >= run.over:
            parts = {"rank": rank, "calls": counted(len(calls), "halo exchange"), "layer": calls[0].layer}
            yield run.told("long_exchanges", places([(rank, event) for event in calls]), fix=fix, **parts)


def _nobody_waits(run: Late) -> Iterator[str]:
    if run.waiting:
        return
    sent = max(([e for e in p.events if e.op in MESSAGES] for p in run.trace.programs), key=len)
    spent, where = sum(event.length for event in sent), places([(run.trace.ranks - 1, event) for event in sent])
    case = "by_messages" if spent >= ticks(run.over) else ""
    yield run.told("nobody_waits", where, case, messages=len(sent), time=in_units(spent))


# -- waits --------------------------------------------------------------------------------------------------------


def _waits(program: Program) -> dict[Place | None, int]:
    """Return how long a rank waited in each line, in ticks."""
    found: dict[Place | None, int] = defaultdict(int)
    for event in program.events:
        if event.op == "wait":
            found[place_of(event)] += event.length
        elif event.op in COMMUNICATION and event.blocking and event.start is not None:
            found[place_of(event)] += event.start - event.issued
    return found


def _waits_at(program: Program, gap: Gap) -> Place | None:
    """Return the line in which a rank waits during a gap."""
    assert gap.before is not None
    waits = (event for event in program.events if event.op == "wait" and event.arg[:1] == (gap.before.number,))
    return place_of(next(waits, gap.before.event))


def _long_wait(run: Late, of_code: Fixes, of_order: Fixes) -> Iterator[str]:
    """The longest wait, with the first fix that applies to it, for code or for an order."""
    for fix in (fix for ask in (of_order if run.is_order else of_code) for fix in ask(run)):
        gap, here, such = run.gaps[0] if run.gaps else None, "", ""
        spot = run.spot if gap is None else _waits_at(run.program, gap)
        if spot is not None and not run.is_order:
            started = gap is not None and gap.before is not None and not gap.before.event.blocking
            here = f", {units(run.spots[spot]):g} of them {'for what starts ' if started else ''}here"
        if gap is not None:
            start, until = (exact(units(time)) for time in (gap.start, gap.end))
            such = f", such as\n{in_units(gap.length)} ({start} to {until}){gap.why()}"
        parts = {"rank": run.rank, "time": in_units(run.waiting), "here": here, "such": such, "fix": fix}
        yield run.told("long_wait", [] if spot is None else [(run.rank, spot)], **parts)


def _called_late(run: Late, program: Program | None = None, waited: Iterable[Gap] | None = None) -> Iterator[str]:
    """Work before a collective that the rank waits for and that does not need it: after the call it would hide that."""
    program = program or run.program
    for gap in tuple(run.gaps if waited is None else waited):  # run.gaps changes on the way
        if gap.before is None or (call := gap.before.event).op not in COLLECTIVES:
            continue
        needed, made, before = set(call.inputs), None, program.events[: gap.before.number]
        again = next((e for e in reversed(before) if (e.op, e.inputs) == (call.op, call.inputs)), call)
        since = takewhile(lambda e, again=again: {*again.outputs}.isdisjoint(e.inputs), reversed(before))
        if again is not call and not any(event.op in COMPUTE and event.length for event in since):
            yield because("keep_it", call=call, again=line_of(again))
        updated = units(sum(event.length for event in before if event.op in UPDATES))
        for event in reversed(before):
            if waited is not None and (made or (event.blocking and not is_given(event))):
                break
            if needed & {*event.outputs}:
                needed |= {*event.inputs}
                made = event if event.op in COMPUTE and made is None else made
            elif event.op in COMPUTE and event.length:
                if made and event.op in UPDATES and updated >= run.over:
                    yield because("update_later", update=event, backward=operation(made), call=call)
                halves = made and (made.op, event.op) == ("backward_input", "backward_weight")
                if made and not (halves and (made.layer, made.batches) == (event.layer, event.batches)):
                    break
                needs = "can do without it" if made is None else "only needs the input half"
                if waited is None:
                    run.gaps.insert(0, gap)
                named = {"title": spoken(call.op), "does": spoken(event.op)}
                yield because("called_late", work=event, call=call, needs=needs, **named)


def _from_the_reader(run: Late) -> Iterator[str]:
    """Examples that a rank waits for longer than it must for its first one."""
    if sum(gap.length for gap in run.gaps if gap.kind == "reader") > run.first:
        yield because("ask_earlier")


def _turned(run: Late) -> Iterator[str]:
    """Work whose exchange a rank waits for, though another pass or part could have started one before that work."""
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
            leaves, could = units(events[number].issued), units(work.start or 0)
            yield because("turned", call=events[number], leaves=leaves, could=could, work=operation(work))


def _one_by_one(run: Late) -> Iterator[str]:
    """Gradients summed one by one, if the latency of each sum is what takes time."""
    # Only Links have a latency; with other costs a bucket saves none.
    latency, program = ticks(getattr(run.trace.costs, "latency", 0)), run.program
    calls = [event for event in program.events if event.op in BUCKETED and len(event.inputs) == 1]
    calls = [e for e in calls if isinstance(program.values[e.inputs[0]], WeightGrad) and not is_given(e)]
    waits = [gap for gap in gaps(run.trace) if gap.rank == run.rank and gap.before and gap.before.event in calls]
    # Told only if latency is most of their time, and waited for: otherwise it is not why the run is late.
    late: list[Event] = []  # sums that are waited for, and sums that hold those up
    for event in reversed(calls):
        waited = any((event.start or 0) < gap.end and gap.start < (event.end or 0) for gap in waits)
        late += [event] if waited or any(one.issued < (one.start or 0) == event.end for one in late) else []
    paid = [latency * COLLECTIVES[event.op].messages(len(event.group)) for event in late]
    saved = sum(paid) - max(paid, default=0)  # a bucket still pays once
    enough = units(min(saved, sum(gap.length for gap in waits))) >= run.over
    if len(late) > 1 and enough and 2 * sum(paid) >= sum(event.length for event in late):
        yield because("one_by_one_sums", calls=len(late), each=in_units(paid[0]), all=in_units(sum(paid)))


def _sent_late(run: Late, anywhere: bool = False) -> Iterator[str]:
    """What a sender did between making a value and passing it to a rank that waits for it: the rank that waits longest,
    in its line, or any rank."""
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
    # The key decides ties: Counter.most_common would take the first that was counted.
    (sender, op, line, there), _ = max(late.items(), key=lambda item: (item[1], item[0]))
    does = "updates" if op == "update" else f"computes another {op}"
    does = f"waits for a {COLLECTIVES[op].title}" if op in COLLECTIVES else does
    yield because("pass_first", rank=sender, does=does, line=line, there=there)


def _in_the_way(run: Late, program: Program | None = None, waited: Sequence[Gap] | None = None) -> Iterator[str]:
    """A communication that goes first between the same ranks, though awaited later. Puts the late one's gap first."""
    events = (program or run.program).events
    awaited = [e.arg[0] if e.op == "wait" else n for n, e in enumerate(events) if e.op == "wait" or e.blocking]
    for gap in tuple(run.gaps if waited is None else waited):  # run.gaps changes on the way
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
            yield because("in_the_way", title=spoken(late.event.op), line=line_of(late.event), first=first.event)


def _goes_back_late(run: Late) -> Iterator[str]:
    """A pipeline in which a rank does as many forwards as the next one before it goes back; or all ranks do."""

    def forwards(events: Iterable[Event]) -> int:
        layers = [event.layer for event in events if event.op == "forward"]
        return layers.count(layers[0]) if layers else 0

    ahead = [forwards(takewhile(lambda event: event.op not in BY_INPUT, p.events)) for p in run.trace.programs]
    last = run.trace.programs[-1]
    turn = next((event for event in last.events if event.op == "loss"), None)
    passes = any(event.op == "pass_to" for event in last.events)
    if turn is not None and passes and len({*ahead}) == 1 and 1 < min(ahead) < forwards(last.events):
        parts = {"batches": these("batch", turn.batches), "time": units(turn.start or 0)}
        yield because("go_back", rank=last.rank, more=min(ahead) - 1, **parts)
    alone = passes and not any(event.op in COLLECTIVES for _, event in run.trace.events())
    for rank in range(run.trace.ranks - 1) if alone and len({*ahead}) > 1 else ():
        if 0 < ahead[rank] == ahead[rank + 1] < forwards(last.events):
            yield because("both_go_back", rank=rank, next=rank + 1, forwards=counted(ahead[rank], "forward"))


def _meanwhile(run: Late) -> Iterator[str]:
    """Work that the rank could do in one of its longer waits, in its line or anywhere; puts that wait first."""
    for waits in [run.gaps] if run.is_order else [run.gaps, run.waits]:
        # A shorter wait in which the rank could do something teaches more than a longer idle one.
        long = [gap for gap in waits[:LOOKED_AT] if 2 * gap.length >= waits[0].length]
        ready = ((gap, ready_meanwhile(run.trace, gap)) for gap in long)
        could = [(gap, found.at.event) for gap, found in ready if found is not None]
        # Orders have no word for an update, and a short update is no answer: it only trades places with other work.
        long_enough = run.over if not run.is_order else float("inf")
        could = [one for one in could if one[1].op not in UPDATES or units(one[1].length) >= long_enough]
        if could:
            gap, event = max(could, key=lambda one: min(one[0].length, one[1].length))
            run.gaps.insert(0, gap)
            yield because("meanwhile", rank=run.rank, work=event)


def _together(run: Late) -> Iterator[str]:
    """Batches that go through a pipeline together, so that the next rank begins late."""
    passed = [(p, e) for p in run.trace.programs for e in p.events if e.op == "pass_to" and e.peer is not None]
    if passed and all(len(e.batches) > 1 and len(p.values_of(e.inputs)) == 1 for p, e in passed):
        _, first = min(passed, key=lambda one: (one[1].issued, one[0].rank))
        yield because("together", batches=these("batch", first.batches), peer=first.peer, time=units(first.issued))


def _somehow(run: Late) -> Iterator[str]:
    """Other batches that a rank takes on before it has passed on one; or else that nothing more is known."""
    for program in () if run.is_order else run.trace.programs:
        came: dict[tuple[str, frozenset[int]], int] = {}
        for number, event in enumerate(program.events):
            if event.outputs and (event.op == "receive" or (event.op in COMPUTE and event.length)):
                came.setdefault((program.values_of(event.outputs)[-1].kind, event.batches), number)
            brought = program.values_of(event.inputs)[0].kind if event.op == "pass_to" and event.inputs else ""
            busy = program.events[came.pop((brought, event.batches), number) : number]
            if other := next((one for one in busy if one.length and event.batches.isdisjoint(one.batches)), None):
                others, mine = (f"{these('batch', one.batches)}{line_of(one)}" for one in (other, event))
                yield because("pass_on", rank=program.rank, others=others, mine=mine)
    yield because("somehow")


# -- the critical path --------------------------------------------------------------------------------------------


def _on_the_path(run: Late) -> Iterator[str]:
    """Collectives that nothing hides, if the run would be short enough without them."""
    steps = [at for at in critical_path(run.trace).steps if at.event.op in COLLECTIVES and not _lent(at.event)]
    calls = [at.event for at in steps]
    if not calls or units(sum(event.length for event in calls)) < run.over:
        return
    last, *others = [call for call in calls if call.op == "allreduce_bucket"] or calls
    late = units(last.length) >= run.over and not others and not run.is_order
    if late and last.op in BUCKETED and len(last.inputs) > 1:
        yield because("last_bucket", line=line_of(last), gradients=len(last.inputs), time=in_units(last.length))
    every = [(one.rank, e.layer, e.group) for one in run.trace.programs for e in one.events if e.op == "allgather"]
    ((rank, layer, _), times), *_ = [*Counter(every).most_common(1), ((0, 0, ()), 0)]
    twice = 2 * len({layer for _, layer, _ in every})  # forward and backward, say
    if not run.is_order and times > 2 and calls[0].op == "allgather" and len(every) > twice:
        yield because("gather_once", rank=rank, layer=layer, times=times)
    for rank, number, call in () if run.is_order else steps:
        before = run.trace.programs[rank].events[max(0, number - 1)]
        if before.op == "receive" and (before.start or 0) > before.issued and call.op == "allgather":
            yield because("call_before", rank=rank, line=line_of(before), call=call)
    if run.is_order:  # nothing hides the first one
        named = next((call for call in calls[1:] if call.op == "allgather"), (calls[1:] or calls)[0])
        fix = "unshard_earlier" if named.op == "allgather" else "reduce_earlier"
    else:  # nor what comes before all work
        began = min((e.start or 0 for e in run.program.events if e.op in COMPUTE and e.length), default=0)
        calls = [call for call in calls if call.issued > began and run.saved([call])]
        named = max(calls, key=lambda event: event.length, default=None)
        run.gaps.sort(key=lambda gap: gap.before is None or gap.before.event is not named)
        fix = "keep_some_work"
    if named is not None:
        which = {"calls": counted(len(calls), "collective"), "take": "takes" if len(calls) == 1 else "take"}
        time = in_units(sum(call.length for call in calls))
        yield because("on_the_path", time=time, call=named, fix=because(fix), **which)


def _updates_between(run: Late) -> Iterator[str]:
    """Updates that delay the last backward, and with it the last sum, by a good part of the run's lateness."""
    back = max((n for n, event in enumerate(run.program.events) if event.op in BY_INPUT), default=0)
    early = [event for event in run.program.events[:back] if event.op in UPDATES]
    if early and not run.is_order and 3 * run.saved(early) >= run.over:
        where = places([(run.rank, event) for event in early])
        yield run.told("updates_between", where, rank=run.rank, updates=counted(len(early), "update"))


def _late_on_the_path(run: Late) -> Iterator[str]:
    """Gradient sums at the end of the critical path, one of them called late or awaited early; else a rank on the path
    that waits for its own messages, or slows them down. They take long enough to explain how late the run is."""
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
        works = (event for event in found if event.op not in UPDATES or units(updates) >= run.over)
        could = (because("meanwhile", rank=at.rank, work=work) for work in works)
        for fix in chain(_called_late(run, run.trace.programs[at.rank], waited), could):
            parts = {"time": in_units(summed), "op": operation(at.event), "fix": fix}
            yield run.told("sums_at_the_end", places([(at.rank, at.event)]), **parts)
    if sent and units(passed) >= run.over:
        rank, _, event = sent[-1]
        yield run.told("own_messages", places([(rank, event)]), rank=rank, time=in_units(passed))
    yield from _on_one_link(run, [at for at, *_ in path if at.event.op == "pass_to"])


def _on_one_link(run: Late, waited: Sequence[At]) -> Iterator[str]:
    """Messages, or helpers' halo exchanges, that take longer because a collective shares their link."""
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
        parts = {"rank": rank, "halo": operation(event), "line": line_of(event), "title": title}
        yield run.told("on_one_link", places([(rank, event)]), "of_halos" if event.op == "halo" else "", **parts)


# -- orders of a pipeline -----------------------------------------------------------------------------------------


def _words(program: Program) -> list[str]:
    """Return the words of a rank's order, each once, as they come."""
    return list(dict.fromkeys(place.text for event in program.events if (place := place_of(event)) is not None))


def _whole_backward(run: Late) -> Iterator[str]:
    """A backward with both halves in one, where the puzzle asks for them apart."""
    whole = next((word for program in run.trace.programs for word in _words(program) if "B" in word), None)
    if whole is not None and "backward_weight" in run.asks:
        stage, _, batch = whole.partition("B")
        yield because("write_halves", whole=whole, stage=stage, batch=batch)


def _other_way_first(run: Late) -> Iterator[str]:
    """A forward on the way to what a rank waits for, done after another forward of its rank though it could have begun
    by then. Puts the gap first."""
    causes = causes_of(run.trace)
    for gap in run.gaps[:LOOKED_AT]:
        at = None if gap.before is None else causes.sent(gap.before)
        for _ in run.trace.programs:  # the way passes each at most once
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
                yield because("other_way_first", rank=at.rank, first=first, then=then, waiting=run.rank)
            at = sent


def _weight_half_first(run: Late, several: bool = False) -> Iterator[str]:
    """A weight half that the last rank does before its last input half, for which all earlier ranks wait. With
    `several` stages per rank, only halves after the last forward are in the way."""
    program = run.trace.programs[-1]
    words = _words(program)
    behind = max((number for number, word in enumerate(words) if several and "F" in word), default=0)
    halves = [word for word in words[behind:] if re.search("[IW]", word)]
    inputs = [number for number, word in enumerate(halves) if "I" in word]
    stages = {halves[number].partition("I")[0] for number in inputs}
    if not stages or (len(stages) > 1) is not several or run.trace.ranks == 1:
        return
    if before := [word for word in halves[: inputs[-1]] if "W" in word]:
        yield because("weight_half_first", rank=program.rank, before=before[-1], last=halves[inputs[-1]])
    # Or the first rank leaves weight halves for the end, though its last gradient comes last.
    left = list(takewhile(lambda word: "W" in word, reversed(_words(run.trace.programs[0]))))
    if len(left) > 1 and not several:
        yield because("left_for_the_end", halves=len(left))


def _short_group(run: Late) -> Iterator[str]:
    """A last group of microbatches that is shorter than a round through all ranks."""
    groups: dict[str, list[int]] = defaultdict(list)
    for stage, words in groupby(word.partition("F")[0] for word in _words(run.program) if "F" in word):
        groups[stage].append(len([*words]))
    first, *others = groups.values()
    if others == [first] * len(others) and first[-1] < run.trace.ranks <= min(first[:-1], default=0):
        yield because("short_group", batches=counted(first[-1], "microbatch"), ranks=run.trace.ranks)


def _down_too_early(run: Late) -> Iterator[str]:
    """An input half on the way down a V that waits for its gradient, ahead of work that could come up and go back."""
    words = _words(run.program)
    for place in (_waits_at(run.program, gap) for gap in run.gaps[:LOOKED_AT]):
        waits = re.fullmatch(r"(\d+)I\d+", "" if place is None else place.text)
        up = f"{2 * run.trace.ranks - 1 - int(waits[1])}F" if waits else "-"
        after = next((word for word in words[words.index(waits[0]) :] if word.startswith(up)), None) if waits else None
        if waits and after:
            yield because("down_too_early", half=waits[0], after=after)


def _one_stage_each(run: Late) -> Iterator[str]:
    """One long stage per rank, with no blocking receive."""
    ranks = run.trace.ranks
    stages = {word.rstrip("0123456789") for program in run.trace.programs for word in _words(program)}
    single = sum(stage[-1:] == "F" for stage in stages) <= ranks and run.trace.layers >= 2 * ranks
    if single and not any(event.blocking for _, event in run.trace.events() if event.op == "receive"):
        yield because("one_stage_each", second=ranks)


def _neighbours(run: Late) -> Iterator[str]:
    """Ranks whose stages follow each other, which makes each one long stage."""
    passes = [re.findall(r"\b(\d+)[FBIW]\d", " ".join(_words(program))) for program in run.trace.programs]
    found = [sorted({*map(int, stages)}) for stages in passes]
    if run.trace.ranks > 1 and all(len(mine) > 1 and mine[-1] - mine[0] == len(mine) - 1 for mine in found):
        yield because("neighbours", stages=these("stage", found[0]), second=run.trace.ranks)


def _round_at_once(run: Late) -> Iterator[str]:
    """A microbatch that a rank takes through two of its stages in a row."""
    for before, word in pairwise(_words(run.program)):
        both = re.fullmatch(r"(\d+)([FBI])(\d+) (\d+)\2\3", f"{before} {word}")
        if both is not None and abs(int(both[1]) - int(both[4])) > 1:
            first, _, batch, second = both.groups()
            parts = {"before": before, "word": word, "first": first, "second": second, "batch": batch}
            yield because("round_at_once", rank=run.rank, **parts)


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
"""From needless work to waits: the first cause that applies to a run is told. The last one always does."""
