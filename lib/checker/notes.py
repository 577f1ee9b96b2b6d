"""Why a correct run is not within a goal, or no goal counts for it: where memory and time go."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence, Set
from itertools import pairwise, takewhile
from math import inf
from typing import Any

from lib.analysis import figures
from lib.analysis.dependencies import At, causes_of
from lib.analysis.event_words import operation
from lib.analysis.memory import guests
from lib.analysis.waiting.critical_path import critical_path
from lib.analysis.waiting.gaps import Gap, gaps
from lib.analysis.waiting.why import ready_meanwhile
from lib.checker.faults import SHOWN, maker_of, more, places, remark
from lib.cluster.costs import in_units, ticks, units
from lib.errors import fixes
from lib.errors.exceptions import PuzzleError
from lib.errors.source_lines import ORDER, Place
from lib.errors.wording import amount, counted, exact, plural, these
from lib.puzzles.goals import Goal
from lib.trace.event import STORE, Event, Program, line_of, place_of
from lib.trace.lifetimes import held_at, stays_of
from lib.trace.order import messages
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.dims import RunSet
from lib.values.laws import total_elements
from lib.values.operations import BY_INPUT, BY_WEIGHT, COMMUNICATION, COMPUTE, LOADS, OPERATIONS, READS, UPDATES
from lib.values.placement import Place as ValuePlace
from lib.values.placement import held_together
from lib.values.rules import backward_weight
from lib.values.values import Activation, ActivationGrad, Elements, OptState, Value, WeightGrad, describe

LESS = {
    "weight": "gather a weight just before its use, delete it right after, and gather it again for backward",
    "optimizer state": "load only the shard of the optimizer state that this rank updates",
    "weight gradient": "update a layer as soon as its gradient is complete, and delete the gradient;\n"
    "while it waits for other batches, a rank that updates a shard needs no more than that shard of it",
    "activation": "run backward of a batch before the forward of others, or delete what backward does not need",
    "activation gradient": "delete the gradient of an activation as soon as the backward that takes it is done",
}
"""How to hold fewer values of a kind at once."""
FORGET = (
    "delete more of them after their forward, and run forward again when backward needs them;\n"
    "what is kept until then, and what is brought back at a time, count together"
)
"""The same of activations that are all of the same batches, as no backward of another batch would free any."""
ONE_BY_ONE = "take one batch at a time, forward and all the way back, so that only its activations are there"
WAITING = "sums of gradients wait for the batches that are still to come: take more batches through a layer together"
LOAD_LESS = (
    "the weights and optimizer states that are loaded are too much already: let each rank load only a part of them,\n"
    "a shard of each, or some of the layers"
)
"""Where nothing else that a rank may do is enough."""
START_EARLIER = (
    "call a collective before work that can do without its result, and await it after that work:\n"
    "what lies between the call and the await runs at the same time"
)
"""How to spend less time in collectives."""
GO_ON = "keep what pass_to gives, go on, and await it later: the message arrives while this rank computes"
"""How not to wait for a message that others receive."""
STAYS = "the optimizer state of a shard stays on the rank that updates the shard: no other rank needs it"
WAIT_LESS = "let it do other work before it waits, or let the others do earlier what it waits for"
"""How to wait less, where nothing more is known."""
OVER_ALL = "gather weights, and scatter gradients, along the axis whose ranks are in one host"
WHOLE_SUMS = "they bring whole gradients: a reduce-scatter inside the host first leaves a shard of each to travel"
"""What to send less of between hosts."""
BUCKETED = ("allreduce", "allreduce_bucket")
"""Collectives whose values can travel together."""
NO_WAITS = ("drain", "never", "stopped", "unknown")
"""Gaps in which a rank waits for nothing that comes."""
LOOKED_AT = 20
"""Waits of a rank for which something is looked for that it could do meanwhile."""
ISSUE_EARLIER = (
    "put UNSHARD before a pass that can do without it: the all-gather runs beside that pass;\n"
    "and gather no stage again that could have stayed whole"
)
"""The same where only the order was said."""


def other_costs(mine: float, judged: float) -> str:
    """Say that a run was simulated with other costs than those of the puzzle, by which it is judged."""
    what = f"this run has costs of its own, with which it ends at {mine:.10g}; a goal means the puzzle's costs, "
    what += f"with which it ends at {judged:.10g}"
    return remark(what, fix="to see the puzzle's times in pictures, too, leave out costs= in simulate(...)")


def other_layer(trace: Trace) -> str | None:
    """Return what to say of a collective that names a layer which has nothing to do with the activation that it
    brings."""
    for rank, event in trace.events():
        if event.op not in COLLECTIVES or event.layer is None:
            continue
        for value in trace.programs[rank].values_of(event.inputs):
            number = value.layer + isinstance(value, ActivationGrad)
            if isinstance(value, Activation | ActivationGrad) and abs(event.layer - number) > 1:
                return remark(
                    f"rank {rank} calls {event.op} with layer {event.layer} for {describe(value)}",
                    where=places([(rank, event)]),
                    fix="it works, and counts the same: for activations the number only has to be the same on all "
                    f"ranks.\nWrite {number}, and pictures and messages name the layer that you mean",
                )
    return None


def over_sent(trace: Trace, sent: float, goal: Goal, alone: bool) -> str:
    """Say why a goal does not count: how much is sent, and the largest activation that is gathered, else the first
    all-reduce, else the first optimizer state that travels, else the first communication of all. `alone`: whether
    easier goals allow more."""
    moving = [(rank, event) for rank, event in trace.events() if event.op in COMMUNICATION and event.op not in READS]
    sends = [(rank, event, trace.programs[rank].values_of(event.inputs)) for rank, event in moving]
    states = [(rank, event) for rank, event, values in sends if any(isinstance(value, OptState) for value in values)]
    gathered = [
        (rank, event, values)
        for rank, event, values in sends
        if event.op == "allgather" and any(isinstance(value, Activation) for value in values)
    ]
    fix = "gather each weight as rarely as the memory allows, and send nothing twice"
    if gathered:
        rank, event, _ = max(gathered, key=lambda one: total_elements(one[2]))
        fix = "work out first what each rank can of its own part: a sum, or less than all, may be what others need"
    else:
        rank, event = next((found for found in moving if found[1].op == "allreduce"), (states or moving)[0])
        if states:
            fix = STAYS
    allow = f'"{goal.name}" allows' if alone else "the goals allow"
    what = f"correct, but {amount(sent)} elements are sent per rank, and {allow} {amount(goal.sent or 0)}"
    if event.op != "allreduce":
        calls = Counter(COLLECTIVES[one.op].title for at, one in moving if at == rank and one.op in COLLECTIVES)
        got = ", ".join(counted(count, title) for title, count in calls.items())
        return remark(what, got=f"rank {rank} calls {got}" if calls else None, where=places([(rank, event)]), fix=fix)
    whole = "an all-reduce brings every rank the whole sum, and a rank that updates one shard needs only that shard:\n"
    fix = f"{whole}grad_weights[...] = await model.scatterreduce(grad_weights[...], layer)"
    error = PuzzleError(what, where=places([(rank, event)]), fix=fix, idea=f"{whole}which collective sends less?")
    fixes.keep(error)
    return str(error)


# -- goals that do not count --------------------------------------------------------------------------------------


def left_out(trace: Trace, flawed: Set[tuple[int, int]]) -> str | None:
    """Say why no goal counts: weight halves of backward were done whose input halves never were. Nobody needs the
    gradient of the data, but `backward` works it out too, and goals and lower bounds are for that.

    A half counts that works on values of this step. `flawed` are the values, by rank and id, that were made by hand or
    come from some that were: half a backward of those is computed before the step has come that far.
    """
    # By layer: the gradients of the weight that weight halves gave, and those that belong to input halves, each once.
    halves: dict[int, dict[ValuePlace, tuple[int, Event]]] = defaultdict(dict)
    inputs: dict[int, dict[ValuePlace, None]] = defaultdict(dict)
    ops = BY_INPUT | BY_WEIGHT if any(event.op in BY_WEIGHT - BY_INPUT for _, event in trace.events()) else ()
    for rank, event in trace.events():
        if event.op not in ops or (flawed and any((rank, number) in flawed for number in event.inputs)):
            continue
        if event.layer is None or trace.shape.kinds[event.layer].weight is None:
            continue
        place = backward_weight(trace.shape, event.layer, *trace.programs[rank].values_of(event.inputs)[:2]).place
        if event.op in BY_INPUT:  # a whole backward, too
            inputs[event.layer][place] = None
        elif all(part.size for part in place.parts):  # a rank without rows has nothing to leave out
            halves[event.layer].setdefault(place, (rank, event))
    # United and not added up: a rank that does its own part of an input half twice has not done that of another.
    left = [
        ((layer, batch), call)
        for layer, calls in halves.items()
        for place, call in calls.items()
        if not _covered(place, inputs[layer])
        for batch in call[1].batches
        if not _covered(place, inputs[layer], batch)
    ]
    if not left:
        return None
    layers, batches = ({key[place] for key, _ in left} for place in range(2))
    return remark(
        "correct, but the goals are for whole backwards",
        got=f"weight halves without their input halves: {these('layer', layers)}, {these('batch', batches)}",
        where=places([left[0][1]]),
        fix="call backward_input for the first layer, too: with an embedding below it that gradient would be needed",
    )


def _covered(place: ValuePlace, others: Collection[ValuePlace], batch: int | None = None) -> bool:
    """Tell whether others of the same tensor hold together all that a place has, or has of one batch."""
    first, *rest = place.parts
    if batch is not None:
        at = place.schema.roles.index("batch") - 1
        rest[at] = rest[at].dim.part((batch, batch + 1))
    return bool(others) and held_together([*others], rest).covers(first)


def undivided(trace: Trace, domain: bool) -> str | None:
    """Say why no goal counts: ranks share each batch in the puzzle, and here one of them worked on all of it."""
    images = 1 if trace.mesh is None else trace.mesh.axes.get("data", 1)
    if not domain or trace.ranks == images:
        return None
    done: dict[int, list[Value]] = defaultdict(list)
    calls: dict[int, Event] = {}
    for rank, event in trace.events():
        if event.op == "forward" and event.layer == 0:
            calls.setdefault(rank, event)
            done[rank] += trace.programs[rank].values_of(event.outputs)
    for rank, values in done.items():
        # United and not added up: a part that is worked out twice is still one part.
        parts = [value.place for value in values]
        whole = held_together(parts, [part.dim.whole for part in parts[0].parts[1:]])
        if batches := whole.shards(whole.dim.size):
            return remark(
                "correct, but in this puzzle ranks share each batch, and its goals are for that",
                got=f"rank {rank} works on all of {these('batch', RunSet(*batches))}",
                where=places([(rank, calls[rank])]),
                fix="let each rank work on its own part of every batch, as in what is given. Batches that fit on one "
                "rank\nneed no more than data parallelism",
            )
    return None


# -- memory -------------------------------------------------------------------------------------------------------


def over_memory(trace: Trace, top: figures.Peak, name: str, limit: float) -> str:
    """Say why memory is over the limit of a goal: what was alive that nobody needed, else what there was most of."""
    program = trace.programs[top.rank]
    now, here = program.events[top.index], place_of(program.events[top.index])
    over = float(top.elements) - limit
    what = f'for "{name}" memory is {amount(over)} {plural("element", over)} too high'
    when = f"the peak is on rank {top.rank} at time {units(top.time):g}, when {now.op} starts"
    order = here is not None and here.file == ORDER
    if not order:
        held = held_at(stays_of(trace)[top.rank], top.index)
        working = {id(program.values[number]) for number in now.inputs}  # what the operation works on hides nothing
        loose = [(one.value, one.born) for one in top.alive if one.hidden and id(one.value) not in working]
        if unused := _unused(trace, top, held):
            passing = next((type(value) for value, _ in unused if not isinstance(value, OptState)), None)
            fix = "load no more of it than this rank updates, and put what update gives under the same key:\n"
            fix += "weights[layer], opt_states[layer] = model.update(...)"
            if passing is not None:
                fix = f"delete each of them right after its last use, as in: del {STORE[passing]}[...]"
            got = [f"{when};", f"{amount(_total(unused))} elements of it are values that are not used again:"]
            got += _lines(unused, "last needed by")
            if _total(unused) < over:
                fix += f";\nand that is not enough: {_fewer(program, top, len(trace.programs) == 1, limit)}"
            return remark(what, got="\n".join(got), where=here, fix=fix)
        if (spare := _spare(program, top, held)) is not None:
            value, used = spare
            last = _by("last needed by", used)
            fix = "keep no more than that shard of it: cut it before this line"
            got = f"{when};\nof the {value} only a shard is used from here on{last}"
            return remark(what, got=got, where=here, fix=fix)
        if loose and _total(loose) >= over:  # else what is under way may well have to be
            got = [f"{when};", f"{amount(_total(loose))} elements of it are in no store, but still in use:"]
            sent = [found for value, _ in loose if (found := _sent(trace, top.rank, top.index, value)) is not None]
            peer = sent[0][0].peer if len(sent) == len(loose) else None
            if peer is not None and all(end <= now.issued for _, end in sent):
                got[1] = f"{amount(_total(loose))} elements of it were passed, and have arrived:"
                fix = "await each of these messages before the next one: until then what it carried takes memory here"
                here = place_of(sent[0][0])
            elif peer is not None and all(event.peer == peer for event, _ in sent):
                got[1] = f"{amount(_total(loose))} elements of it wait for rank {peer} to receive them:"
                fix = f"what was passed takes memory here until it is received: this rank runs ahead of rank {peer},\n"
                fix += "so do something else first, such as a backward"
            else:
                fix = "await what is under way, and let go of variables: what can still be used takes memory"
                if len(loose) > 2 and all(born is not None and born.op in COLLECTIVES for _, born in loose):
                    fix = f"{len(loose)} results of collectives lie here at once: call each shortly before its use"
            return remark(what, got="\n".join([*got, *_lines(loose, "from")]), where=here, fix=fix)
    loaded = sum(alive.value.elements() for alive in top.alive if alive.born and alive.born.op in LOADS)
    alone = len(trace.programs) == 1
    fewer = LOAD_LESS if loaded > limit and not alone else _fewer(program, top, alone, limit)
    fix = _shorter(program) if order else fewer
    count, sizes = Counter(alive.value.kind for alive in top.alive), _sizes(alive.value for alive in top.alive)
    most = sorted(sizes, key=lambda kind: (-sizes[kind], kind))
    kinds = [f"{counted(count[kind], kind)}: {amount(sizes[kind])} elements" for kind in most]
    return remark(what, got="\n".join([f"{when}; there are", *kinds]), where=here, fix=fix)


def _shorter(program: Program) -> str:
    """How to hold less in a schedule of which only the order was said."""
    ops = {event.op for event in program.events}
    end = "weight half" if ops & (BY_WEIGHT - BY_INPUT) else "backward"
    stage = ", and a stage that was gathered until it is freed" if "allgather" in ops else ""
    span = f"a microbatch takes memory from its forward to the end of its {end}{stage}"
    return f"{span}:\nwhich forward could come later, or which {end} earlier?"


def _sizes(values: Iterable[Value]) -> dict[str, Elements]:
    sizes: dict[str, Elements] = defaultdict(int)
    for value in values:
        sizes[value.kind] += value.elements()
    return sizes


def _total(values: list[tuple[Value, Event | None]]) -> float:
    return float(sum(value.elements() for value, _ in values))


def _sent(trace: Trace, rank: int, index: int, value: Value) -> tuple[Event, float] | None:
    """The message before an event in which a rank passed a value, and when it was received; None without one."""
    program = trace.programs[rank]
    for source, number, to, taken in messages(trace):
        event = program.events[number] if source == rank and number <= index else None
        if event is not None and any(program.values[n] is value for n in event.inputs):
            end = None if taken is None else trace.programs[to].events[taken].end
            return event, inf if end is None else end
    return None


def _lines(values: list[tuple[Value, Event | None]], words: str) -> list[str]:
    """The first of some values, each with a line of code."""
    shown = [f"{value}{_by(words, event)}" for value, event in values[:SHOWN]]
    return [*shown, f"and {len(values) - SHOWN} more"] if len(values) > SHOWN else shown


def _by(words: str, event: Event | None) -> str:
    """ ", last needed by forward in line 12"; nothing where the line is not known."""
    line = line_of(event)
    return f", {words} {event.op}{line}" if event is not None and line else ""


def _fewer(program: Program, top: figures.Peak, alone: bool, limit: float) -> str:
    """Return what to hold fewer of: the kind of which there is most that does not stay from beginning to end.

    Of weights only guests come and go, and one of them has to be there.
    """
    alive, stay = [one.value for one in top.alive], ("weight", "optimizer state")
    visiting = {id(program.values[number]) for number in guests(program)}
    sizes = _sizes(value for value in alive if value.kind not in stay or id(value) in visiting)
    if sum(id(value) in visiting for value in alive) < 2:
        sizes.pop("weight", None)
    sizes = sizes or _sizes(alive)
    kind = min(sizes, key=lambda kind: (-sizes[kind], kind))
    batches = [value.place.batches for value in alive if value.kind == kind == "activation"]
    if not alone or len(batches) < 2 or any(some != batches[0] for some in batches):
        waiting = [v for v in alive if isinstance(v, WeightGrad) and len(v.batches) < v.total_batches]
        if alone and kind == "weight gradient" and waiting:
            return WAITING
        cut = any(isinstance(value, OptState) and not value.is_complete() for value in alive)
        return LESS[kind] if cut or kind != "weight gradient" else LESS[kind].partition(";")[0]
    # One by one the gradients of all weights wait, as large as the weights, and the activations of one batch.
    whole = _sizes(alive)
    ours = sum(size for name, size in whole.items() if name.startswith("activation"))
    one_by_one = sum(whole.values()) - ours + ours / len(batches[0]) + whole["weight"] - whole["weight gradient"]
    return ONE_BY_ONE if len(batches[0]) > 1 and one_by_one <= limit else FORGET


def _unused(trace: Trace, top: figures.Peak, held: set[int]) -> list[tuple[Value, Event | None]]:
    """Return what was alive at the peak without being used then or later, biggest first, with its last use."""
    program, last = trace.programs[top.rank], trace.lifetimes()[top.rank].last
    found: list[tuple[Value, Event | None]] = []
    for number, value in enumerate(program.values):
        trained = value is not None and bool(value.updates)  # a result, which is there to stay
        if value is not None and not trained and number in held and last[number] < top.index:
            used = program.events[last[number]] if last[number] >= 0 else maker_of(program, number)
            found.append((value, used))
    return sorted(found, key=lambda item: -item[0].elements())


def _spare(program: Program, top: figures.Peak, held: set[int]) -> tuple[Value, Event | None] | None:
    """A whole value in a store at the peak of which nothing but a shard is used from then on, with its last use."""
    for number, value in enumerate(program.values):
        if value is None or number not in held or not value.is_complete():
            continue
        before, later = (
            [event for event in events if number in event.inputs]
            for events in (program.events[: top.index], program.events[top.index :])
        )
        if {event.op for event in later} == {"shard"}:
            return value, before[-1] if before else None
    return None


# -- time ---------------------------------------------------------------------------------------------------------


def over_time(trace: Trace, end: float, name: str, limit: float) -> str:
    """Say why a run takes longer than the limit of a goal: work that nobody uses, that is done several times, or is
    shared unevenly, else where a rank waits longest."""
    over = float(f"{end - limit:.10g}")
    what = f'for "{name}" the run is {over:.10g} {plural("time unit", over)} too long'
    again, vain = _work(trace)
    if again and vain:
        got = f"nothing uses what {operation(vain[0][1])} gives" + more(vain, "computation", "; and")
        return remark(what, got=got, where=places(vain[:1]), fix="leave out what nobody needs")
    if again:
        (op, layer, batch), found = again[0]
        ranks = sorted({rank for rank, _ in found})
        got = f"{op} of layer {layer} for batch {batch} was computed {len(found)} times, on {these('rank', ranks)}"
        fix = "give each rank work that no other rank does: batches of its own, or layers of its own"
        if len(ranks) == 1:
            # What is made again soonest was deleted for the least gain: that of others may be what saves the memory.
            (op, layer, batch), found = min(again, key=lambda one: _apart(one[1]))
            later = in_units(_apart(found))
            got = f"{op} of layer {layer} for batch {batch} was computed {len(found)} times, the last one {later} later"
            fix = "keep what that gave, instead of computing it again"
        return remark(what, got=got + more(again, "computation", "; and"), where=places(found), fix=fix)
    busy = figures.computing(trace)
    most, least = busy.index(max(busy)), busy.index(min(busy))
    waits = [_waits(program) for program in trace.programs]
    # Whoever has much less to do than the busiest rank waits for that, and is not the reason.
    totals = [sum(spots.values()) if 10 * own >= 9 * busy[most] else 0 for own, spots in zip(busy, waits, strict=True)]
    rank, total = totals.index(max(totals)), max(totals)
    moved = [(p.rank, e) for p, e in _collectives(trace) if any(type(v) is OptState for v in p.values_of(e.inputs))]
    if moved:
        got = f"rank {moved[0][0]} brings an optimizer state to {operation(moved[0][1])}" + more(moved, "call")
        return remark(what, got=got, where=places(moved), fix=STAYS)
    if busy[most] > ticks(limit) > busy[least]:
        longest = max((e for e in trace.programs[most].events if e.op in COMPUTE), key=lambda event: event.length)
        got = f"rank {most} alone computes for {in_units(busy[most])}, and rank {least} for {in_units(busy[least])}"
        got += f"; the longest is {operation(longest)}"
        fix = "share the work more evenly, before you hide what ranks wait for"
        return remark(what, got=got, where=places([(most, longest)]), fix=fix)
    length, bare, calls = max((_bare(program) for program in trace.programs), key=lambda found: (found[0], -found[1]))
    if length > total:
        times = counted(len(calls), "collective")
        got = f"rank {bare} spends {in_units(length)} in {times}, and computes nothing meanwhile"
        lines = places([(bare, event) for event in calls])
        said = any(place.file == ORDER for _, place in lines)
        program = trace.programs[bare]
        fix = ISSUE_EARLIER if said else _cut_afterwards(program) or _between_hosts(trace, program, over)
        fix = fix or _held_back(program, calls) or START_EARLIER
        return remark(what, got=got, where=lines, fix=fix)
    if not total:
        sent = max(([e for e in p.events if e.op in ("pass_to", "receive")] for p in trace.programs), key=len)
        fix = "let the ranks compute less, or share the work more evenly"
        if (spent := sum(event.length for event in sent)) >= ticks(over):
            fix = (
                f"the {len(sent)} messages of a rank take {in_units(spent)}: what all ranks need, one collective brings"
            )
        return remark(what, got="no rank ever waits", where=places([(trace.ranks - 1, e) for e in sent]), fix=fix)
    spot = max(waits[rank], key=lambda place: waits[rank][place])
    order = spot is not None and spot.file == ORDER
    program, fix = trace.programs[rank], None
    waited = [gap for gap in gaps(trace) if gap.rank == rank and gap.kind not in NO_WAITS and gap.before is not None]
    waited = [gap for gap in waited if order or _waits_at(program, gap) == spot]
    waited.sort(key=lambda gap: -gap.length)
    if not order:
        fix = _cut_afterwards(program) or _called_late(program, waited) or _one_by_one(trace, rank, over)
        fix = fix or _sent_late(trace, rank, spot) or _in_the_way(program, waited)
    fix = fix or (_unevenly(trace, rank) if spot is None else None) or (_weight_half_first(trace) if order else None)
    if fix is None and not order and (found := _late_on_the_path(trace, over)) is not None:
        got, at, fix = found
        return remark(what, got=got, where=places([(at.rank, at.event)]), fix=fix)
    fix = fix or (None if order else _goes_back_late(trace))
    if fix is None:  # a shorter wait, in which the rank could do something, teaches more than a longer one
        long = [gap for gap in waited[:LOOKED_AT] if 2 * gap.length >= waited[0].length]
        ready = ((gap, ready_meanwhile(trace, gap)) for gap in long)
        # An order has no word for an update, and a short one is no answer: it only comes earlier than something else.
        idle = ((gap, found.at.event) for gap, found in ready if found is not None)
        could = [one for one in idle if one[1].op not in UPDATES or (not order and units(one[1].length) >= over)]
        could = max(could, key=lambda one: min(one[0].length, one[1].length), default=None)
        if could is not None:
            waited, fix = [could[0]], _meanwhile(rank, could[1])
    fix = fix or _on_the_path(trace, over, order)
    if order:
        fix = fix or _one_stage_each(trace) or _neighbours(trace) or _round_at_once(program)
        fix = fix or _weight_half_first(trace, several=True)
    fix = fix or (None if order else _together(trace) or _sent_late(trace)) or WAIT_LESS
    got = f"rank {rank} waits {in_units(total)} in all"
    if order and waited:
        spot = _waits_at(program, waited[0])
    elif spot is not None:
        started = waited and waited[0].before is not None and not waited[0].before.event.blocking
        got += f", {units(waits[rank][spot]):g} of them {'for what starts ' if started else ''}here"
    if waited:
        start, until = (exact(units(time)) for time in (waited[0].start, waited[0].end))
        got += f", such as\n{in_units(waited[0].length)} ({start} to {until}){waited[0].why()}"
    return remark(what, got=got, where=[] if spot is None else [(rank, spot)], fix=fix)


def _collectives(trace: Trace) -> Iterable[tuple[Program, Event]]:
    return ((program, event) for program in trace.programs for event in program.events if event.op in COLLECTIVES)


def _on_the_path(trace: Trace, over: float, order: bool) -> str | None:
    """Return what to do about collectives that nothing hides, where without them the run would be short enough."""
    calls = [at.event for at in critical_path(trace).steps if at.event.op in COLLECTIVES]
    total = sum(event.length for event in calls)
    if not calls or units(total) < over:
        return None
    if len(calls) == 1 and calls[0].op == "allreduce_bucket" and len(calls[0].inputs) > 1 and not order:
        return (
            f"the last bucket{line_of(calls[0])} has {len(calls[0].inputs)} gradients and takes {in_units(total)}, and "
            "too little is left to\nhide that behind: let the last bucket be smaller"
        )
    which = f"{counted(len(calls), 'collective')} on the critical path {'takes' if len(calls) == 1 else 'take'} "
    which += f"{in_units(total)}, such as {operation(calls[0])}{line_of(calls[0])}"
    return f"{which}:\n{ISSUE_EARLIER if order else START_EARLIER}"


def _meanwhile(rank: int, event: Event) -> str:
    return f"meanwhile rank {rank} could do {operation(event)}{line_of(event)}: put that before this wait"


def _late_on_the_path(trace: Trace, over: float) -> tuple[str, At, str] | None:
    """Find sums of gradients at the end of the critical path of which one is called late or awaited early, else a rank
    on it that waits until its own messages have arrived. They are long enough for a run to be as late as it is."""
    chain = critical_path(trace).chain
    tail = takewhile(lambda step: step.at.event.op not in BY_INPUT, chain)
    sums = [step.at for step in tail if step.at.event.op in BUCKETED]
    sent = [at for at, *_, how, _ in chain if how == "own" and at.event.op == "pass_to" and at.event.blocking]
    summed, passed = (sum(at.event.length for at in calls) for calls in (sums, sent))
    for at in reversed(sums if units(summed) >= over else []):
        waited = [gap for gap in gaps(trace) if gap.before is not None and gap.before[:2] == at[:2]]
        ready = next((one for gap in waited if (one := ready_meanwhile(trace, gap)) is not None), None)
        could = None if ready is None else _meanwhile(at.rank, ready.at.event)
        if (fix := _called_late(trace.programs[at.rank], waited) or could) is not None:
            got = f"sums of gradients that nothing hides take {in_units(summed)}, at the end of the critical path"
            return got, at, fix
    if not sent or units(passed) < over:
        return None
    first = sent[-1]
    return (
        f"rank {first.rank} waits {in_units(passed)} for its own messages to arrive, on the critical path",
        first,
        GO_ON,
    )


def _waits_at(program: Program, gap: Gap) -> Place | None:
    """The line in which a rank waits through a gap."""
    assert gap.before is not None
    waits = (e for e in program.events if e.op == "wait" and e.arg[:1] == (gap.before.number,))
    return place_of(next(waits, gap.before.event))


def _apart(found: list[tuple[int, Event]]) -> int:
    """Return how long after it was computed something was computed again, in ticks: from start to start."""
    first, last = (event.start or 0 for _, event in (found[-2], found[-1]))
    return last - first


def _cut_afterwards(program: Program) -> str | None:
    """Return what to do about whole gradients that an all-reduce sums, and that are cut only after that."""
    sums = {number: event for event in program.events if event.op == "allreduce" for number in event.outputs}
    cuts = [
        (sums[n], event) for event in program.events if event.op == "scatterreduce" for n in event.inputs if n in sums
    ]
    if not cuts:
        return None
    whole, cut = cuts[0]
    return (
        f"the all-reduce{line_of(whole)} sums whole gradients, and the reduce-scatter{line_of(cut)} cuts the sum "
        f"afterwards:\ncut first, and all-reduce the shard that is left, 1/{len(cut.group)} of it"
    )


def _held_back(program: Program, calls: list[Event]) -> str | None:
    """Return what to do about a bucket that waits for its last gradient, with the wait of its first one."""
    call = max(calls, key=lambda event: len(event.inputs))
    made = [event for number in call.inputs if (event := maker_of(program, number)) is not None]
    ends = [(event.start or 0) + event.length for event in made]
    if len(call.inputs) < 2 or not ends or (early := call.issued - min(ends)) <= 0:
        return None
    first = made[ends.index(min(ends))]
    return (
        f"{operation(first)} gave the first of its {len(call.inputs)} gradients {in_units(early)} earlier: make "
        "several buckets,\nstart the sum of each once it is full, and await it after the backwards that are left"
    )


def _one_by_one(trace: Trace, rank: int, over: float) -> str | None:
    """Return what to do about gradients that are summed one by one, where the latency of each is what takes time."""
    # Only Links have one; elsewhere it is nothing that a bucket could save.
    latency = ticks(getattr(trace.costs, "latency", 0))
    program = trace.programs[rank]
    calls = [event for event in program.events if event.op in BUCKETED and len(event.inputs) == 1]
    calls = [event for event in calls if isinstance(program.values[event.inputs[0]], WeightGrad)]
    paid = [latency * COLLECTIVES[event.op].messages(len(event.group)) for event in calls]
    # Told only if latency is most of what they take, and if that is waited for: else it would not bring the run within
    # its goal.
    waits = [gap for gap in gaps(trace) if gap.rank == rank and gap.before is not None and gap.before.event in calls]
    if len(calls) < 2 or units(min(sum(paid), sum(gap.length for gap in waits))) < over:
        return None
    if 2 * sum(paid) < sum(event.length for event in calls):
        return None
    return (
        f"each of the {len(calls)} all-reduces waits {in_units(paid[0])} for its messages to travel, however small it "
        f"is:\n{in_units(sum(paid))} in all. Several gradients in one bucket pay that once"
    )


def _words(program: Program) -> list[str]:
    """The words of a rank's order, each once, as it comes to them."""
    return list(dict.fromkeys(place.text for event in program.events if (place := place_of(event)) is not None))


def _one_stage_each(trace: Trace) -> str | None:
    """Return what to do about an order with one long stage a rank, whose messages do not keep anyone waiting."""
    stages = {word.rstrip("0123456789") for program in trace.programs for word in _words(program)}
    if len({stage for stage in stages if stage[-1:] == "F"}) > trace.ranks or trace.layers < 2 * trace.ranks:
        return None
    if any(event.blocking for _, event in trace.events() if event.op == "receive"):
        return None
    return (
        "each rank has one stage here, and nothing else to do meanwhile. Of shorter stages, several a rank, the next\n"
        f"rank can begin sooner: {trace.ranks}F0 is the forward of microbatch 0 on stage {trace.ranks}, the second of "
        "rank 0"
    )


def _weight_half_first(trace: Trace, *, several: bool = False) -> str | None:
    """Return what to do about a weight half that the last rank does before its last input half: all ranks before it
    wait for that one. With `several` stages a rank, only what comes after the last forward is in the way."""
    program = trace.programs[-1]
    words = _words(program)
    behind = max((number for number, word in enumerate(words) if several and "F" in word), default=0)
    halves = [word for word in words[behind:] if re.search("[IW]", word)]
    inputs = [number for number, word in enumerate(halves) if "I" in word]
    stages = {halves[number].partition("I")[0] for number in inputs}
    if not stages or (len(stages) > 1) is not several or trace.ranks == 1:
        return None
    before = [word for word in halves[: inputs[-1]] if "W" in word]
    if not before:
        return None if several else _weight_halves_last(trace)
    return (
        f"on rank {program.rank}, {before[-1]} comes before {halves[inputs[-1]]}, for which all other ranks "
        "wait.\nNo rank waits for a weight half: on the later ranks let it lag further behind"
    )


def _called_late(program: Program, waited: Sequence[Gap]) -> str | None:
    """Return what to do about work that comes before a collective for which the rank waits, and is not needed for it:
    after the call it would hide that."""
    for gap in waited:
        if gap.before is None or (call := gap.before.event).op not in COLLECTIVES:
            continue
        needed, made = set(call.inputs), None
        for event in reversed(program.events[: gap.before.number]):
            if needed & {*event.outputs}:
                needed |= {*event.inputs}
                made = event if event.op in COMPUTE and made is None else made
            elif event.op in COMPUTE and event.length:
                if made is not None and not _halves_of_one(made, event):
                    break
                needs = "can do without it" if made is None else "only needs the input half"
                title = f"{COLLECTIVES[call.op].title}{line_of(call)}"
                return (
                    f"{operation(event)}{line_of(event)} comes before the {title}, which {needs}:\n"
                    "call that first, and do this while it travels"
                )
    return None


def _in_the_way(program: Program, waited: list[Gap]) -> str | None:
    """Return what to do about a communication that goes first between the same ranks, though it is awaited later. The
    gap before the other one is put first."""
    awaited = [event.arg[0] for event in program.events if event.op == "wait"]
    for gap in waited:
        first, late = gap.cause, gap.before
        if gap.kind != "stream" or first is None or late is None or late.number not in awaited:
            continue
        needed, between = set(late.event.inputs), program.events[first.number : late.number]
        for event in reversed(between):
            needed |= {*event.inputs} if needed & {*event.outputs} and not event.length else set()
        timed = {number for event in between if event.length for number in event.outputs}
        if first.number in awaited[awaited.index(late.number) :] and not needed & timed:
            waited.insert(0, gap)
            call = f"{COLLECTIVES[late.event.op].title}{line_of(late.event)}"
            return f"call the {call} before the {operation(first.event)}{line_of(first.event)}, which is needed later"
    return None


def _halves_of_one(one: Event, other: Event) -> bool:
    """Tell whether two events are the input half and the weight half of one backward."""
    same = (one.layer, one.batches) == (other.layer, other.batches)
    return same and (one.op, other.op) == ("backward_input", "backward_weight")


def _weight_halves_last(trace: Trace) -> str | None:
    """Return what to do about weight halves that the first rank leaves for the end: its last gradient comes last."""
    left = list(takewhile(lambda word: "W" in word, reversed(_words(trace.programs[0]))))
    if len(left) < 2:
        return None
    return (
        f"rank 0 leaves {len(left)} weight halves for the end, and it gets its last gradient last of all: do them "
        "earlier\nthere, where it waits. Later ranks have time for them at the end"
    )


def _neighbours(trace: Trace) -> str | None:
    """Return what to do about an order in which the stages of every rank follow each other, as one long stage."""
    found: list[list[int]] = []
    for program in trace.programs:
        passes = [match for word in _words(program) if (match := re.fullmatch(r"(\d+)[FBIW]\d+", word))]
        found.append(sorted({int(match[1]) for match in passes}))
    if trace.ranks == 1 or any(len(mine) < 2 or mine[-1] - mine[0] != len(mine) - 1 for mine in found):
        return None
    return (
        f"{these('stage', found[0])} of rank 0 follow each other: together they are one long stage, and rank 1 gets\n"
        f"nothing before both are done. Let the stages go round: stage {trace.ranks} is on rank 0 again"
    )


def _round_at_once(program: Program) -> str | None:
    """Return what to do about an order in which a rank takes a microbatch through two of its stages in a row."""
    for before, word in pairwise(_words(program)):
        both = re.fullmatch(r"(\d+)([FBI])(\d+) (\d+)\2\3", f"{before} {word}")
        if both is not None and abs(int(both[1]) - int(both[4])) > 1:
            first, _, batch, second = both.groups()
            return (
                f"{before} and {word} follow each other on rank {program.rank}: between stages {first} and {second} "
                f"microbatch {batch} goes\nthrough the other ranks, and this one waits. Take others through "
                f"stage {first} meanwhile"
            )
    return None


def _work(trace: Trace) -> tuple[list[Any], list[tuple[int, Event]]]:
    """Return the computations that were done several times, as (operation, layer, batch) with who did them, and those
    that nobody uses."""
    done: dict[tuple[str, int | None, int, object], list[tuple[int, Event]]] = defaultdict(list)
    vain: list[tuple[int, Event]] = []
    for program in trace.programs:
        used = {number for event in program.events for number in event.inputs}
        summed = {number for event in program.events if event.op == "allreduce" for number in event.outputs}
        summed = {number for number in summed if isinstance(program.values[number], Activation)}
        for event in program.events:
            if event.op not in COMPUTE or not OPERATIONS[event.op].per_batch:
                continue
            if used.isdisjoint(event.outputs):
                vain.append((program.rank, event))
            if event.length and summed.isdisjoint(event.inputs):  # an activation that is summed is the same everywhere
                ends = [value.place for value in program.values_of((*event.inputs[-1:], *event.outputs[:1]))]
                parts = [zip(place.schema.roles, place.parts, strict=True) for place in ends]
                # Of one layer and batch ranks may do different parts; only the same part twice is work done twice.
                part = tuple([part for pairs in parts for role, part in pairs if role != "batch"])
                for batch in event.batches:
                    done[event.op, event.layer, batch, part].append((program.rank, event))
    return [(key[:3], found) for key, found in done.items() if len(found) > 1], vain


def _waits(program: Program) -> dict[Place | None, int]:
    """Return how long a rank waited in which line, in ticks."""
    found: dict[Place | None, int] = defaultdict(int)
    for event in program.events:
        if event.op == "wait":
            found[place_of(event)] += event.length
        elif event.op in COMMUNICATION and event.blocking and event.start is not None:
            found[place_of(event)] += event.start - event.issued
    return found


def _bare(program: Program) -> tuple[int, int, list[Event]]:
    """Return the ticks that a rank spends in collectives which it awaits where it calls them, the rank, and these."""
    calls = [event for event in program.events if event.op in COLLECTIVES and event.blocking and event.length]
    return sum(event.length for event in calls), program.rank, calls


def _goes_back_late(trace: Trace) -> str | None:
    """Return what to do about a pipeline in which the last rank takes as many batches forward as all others before it
    goes back, and not all of its batches."""

    def forwards(events: Iterable[Event]) -> int:
        layers = [event.layer for event in events if event.op == "forward"]
        return layers.count(layers[0]) if layers else 0

    ahead = {forwards(takewhile(lambda event: event.op not in BY_INPUT, p.events)) for p in trace.programs}
    last = trace.programs[-1]
    turn = next((event for event in last.events if event.op == "loss"), None)
    if turn is None or len(ahead) > 1 or not 1 < min(ahead) < forwards(last.events):
        return None
    if all(event.op != "pass_to" for event in last.events):
        return None
    return (
        f"rank {last.rank} could go back with {these('batch', turn.batches)} at {units(turn.start or 0):g}, and first "
        f"takes {min(ahead) - 1} more forward: all ranks wait for that.\nA later stage needs fewer batches ahead"
    )


def _together(trace: Trace) -> str | None:
    """Return what to do about batches that go through a pipeline together, so that the next rank begins late."""
    passed = [(p, e) for p in trace.programs for e in p.events if e.op == "pass_to" and e.peer is not None]
    if any(len(e.batches) < 2 or len(p.values_of(e.inputs)) != 1 for p, e in passed) or not passed:
        return None
    _, first = min(passed, key=lambda one: (one[1].issued, one[0].rank))
    return (
        f"{these('batch', first.batches)} travel together, so rank {first.peer} begins only after "
        f"{units(first.issued):g}: pass each batch on\nas soon as it is ready, and the ranks work at the same time"
    )


def _between_hosts(trace: Trace, program: Program, over: float) -> str | None:
    """Return what to do about collectives that bring more over the border between hosts than sums of shards."""
    if (mesh := trace.mesh) is None:
        return None
    found: dict[str, list[Event]] = defaultdict(list)
    for event in (event for event in program.events if event.op in COLLECTIVES):
        hosts = {mesh.host(rank) for rank in event.group}
        if len(hosts) > 1 and event.op == "allreduce" and all(v.is_complete() for v in program.values_of(event.inputs)):
            found[WHOLE_SUMS].append(event)
        elif 1 < len(hosts) < len(event.group) and event.op != "allreduce":
            found[OVER_ALL].append(event)
    for fix, calls in found.items():
        if units(sum(event.length for event in calls)) >= over:
            which = f"{counted(len(calls), 'collective')} go from host to host, {in_units(calls[0].length)} each"
            return f"{which}, such as {operation(calls[0])}:\n{fix}"
    return None


def _sent_late(trace: Trace, rank: int | None = None, spot: Place | None = None) -> str | None:
    """Return what a sender did between making a value and passing it, where a rank waited for that value: a rank in a
    line, or any."""
    causes, late = causes_of(trace), Counter[tuple[int, str, int, int]]()
    receivers = trace.programs if rank is None else trace.programs[rank : rank + 1]
    for at in (At(program.rank, *one) for program in receivers for one in enumerate(program.events)):
        waited = at.event.op == "receive" and (at.event.start or 0) > at.event.issued
        if not waited or (rank is not None and place_of(at.event) != spot):
            continue
        sent = causes.sent(at)
        if sent is None or not sent.event.inputs:
            continue
        there, passed = place_of(sent.event), set(sent.event.inputs)
        for other in reversed(trace.programs[sent.rank].events[: sent.number]):
            if passed & set(other.outputs):
                break
            busy = other.op in COMPUTE or (other.op in COLLECTIVES and other.blocking)
            if busy and other.length and (line := place_of(other)) is not None:
                late[sent.rank, other.op, line.line, 0 if there is None else there.line] += other.length
    if not late:
        return None
    # Ties by the key: Counter.most_common would go by who came first.
    (sender, op, line, there), _ = max(late.items(), key=lambda item: (item[1], item[0]))
    does = "updates" if op == "update" else f"computes another {op}"
    does = f"waits for a {COLLECTIVES[op].title}" if op in COLLECTIVES else does
    return f"rank {sender} {does} in line {line} before it passes what it has, in line {there}: pass first"


def _unevenly(trace: Trace, waiting: int) -> str | None:
    """Return what to do about a rank that computes longer than the one that waits longest, if there is one."""
    busy = figures.computing(trace)
    most = busy.index(max(busy))
    if busy[most] <= busy[waiting]:
        return None
    return (
        f"rank {most} computes for {units(busy[most]):g}, and rank {waiting} for {units(busy[waiting]):g}: "
        f"give rank {most} less to do, or another stage of the pipeline"
    )
