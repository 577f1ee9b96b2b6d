"""Why a correct run is not within a goal, or no goal counts for it: where memory and time go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from typing import NamedTuple

from lib.analysis import figures
from lib.analysis.dependencies import At, causes_of
from lib.analysis.event_words import operation
from lib.analysis.memory import guests
from lib.checker.forgotten import SHOWN, Where, maker_of, more, places, remark
from lib.cluster.costs import in_units, units
from lib.errors import fixes
from lib.errors.exceptions import PuzzleError
from lib.errors.source_lines import ORDER, Place
from lib.errors.wording import amount, counted, plural, these
from lib.puzzles.records import Goal
from lib.trace.event import STORE, Event, Program, place_of
from lib.trace.lifetimes import held_at
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.laws import total_elements
from lib.values.operations import BY_INPUT, BY_WEIGHT, COMMUNICATION, COMPUTE, LOADS, OPERATIONS, READS
from lib.values.placement import Part
from lib.values.values import Activation, Elements, OptState, Value

__all__ = ["left_out", "other_costs", "over_memory", "over_sent", "over_time", "posted", "undivided"]

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

ISSUE_EARLIER = (
    "put UNSHARD before a pass that can do without it: the all-gather runs beside that pass;\n"
    "and gather no stage again that could have stayed whole"
)
"""The same where only the order was said."""
OPEN = (
    "a microbatch takes memory from its forward to the end of its backward, of both halves where it has two, and a\n"
    "stage that was gathered until it is freed: which of them could begin later, or end earlier?"
)
"""How to hold less in a schedule of which only the order was said."""


def other_costs(mine: float, judged: float) -> str:
    """That a run was simulated with other costs than those of the puzzle, by which it is judged."""
    return remark(
        f"this run has costs of its own, with which it ends at {mine:.10g}; a goal means the puzzle's costs, "
        f"with which it ends at {judged:.10g}",
        fix="to see the puzzle's times in pictures, too, leave out costs= in simulate(...)",
    )


def over_sent(trace: Trace, sent: float, goal: Goal, alone: bool) -> str:
    """Why a goal does not count: how much is sent, and the largest activation that is gathered, else the first
    all-reduce, else the first optimizer state that travels, else the first communication of all. `alone`: whether
    easier goals allow more."""
    moving = [(rank, event) for rank, event in trace.events() if event.op in COMMUNICATION and event.op not in READS]
    states = [found for found in moving if _brings(trace, *found, OptState)]
    gathered = [found for found in moving if found[1].op == "allgather" and _brings(trace, *found, Activation)]
    if gathered:
        rank, event = max(gathered, key=lambda one: total_elements(trace.programs[one[0]].values_of(one[1].inputs)))
    else:
        rank, event = next((found for found in moving if found[1].op == "allreduce"), (states or moving)[0])
    allow = f'"{goal.name}" allows' if alone else "the goals allow"
    what = f"correct, but {amount(sent)} elements are sent per rank, and {allow} {amount(goal.sent or 0)}"
    where = places([(rank, event)])
    if event.op != "allreduce":
        fix = "gather each weight as rarely as the memory allows, and send nothing twice"
        if gathered:
            fix = "work out first what each rank can of its own part: a sum, or less than all, may be what others need"
        elif states:
            fix = "the optimizer state of a shard stays on the rank that updates the shard: nobody else needs it"
        return remark(what, where=where, fix=fix)
    whole = "an all-reduce brings every rank the whole sum, and a rank that updates one shard needs only that shard:\n"
    error = PuzzleError(
        what,
        where=where,
        fix=f"{whole}grad_weights[...] = await model.scatterreduce(grad_weights[...], layer)",
        idea=f"{whole}which collective sends less?",
    )
    fixes.keep(error)
    return str(error)


def _brings(trace: Trace, rank: int, event: Event, kind: type[Value]) -> bool:
    values = trace.programs[rank].values
    return any(isinstance(values[number], kind) for number in event.inputs)


# -- memory -------------------------------------------------------------------------------------------------------


class _Unused(NamedTuple):
    """A value that was alive at the peak and was not used again, with the last event that had used it."""

    value: Value
    last: Event | None


def left_out(trace: Trace, flawed: Set[tuple[int, int]]) -> str | None:
    """Why no goal counts: weight halves of backward were done whose input halves never were. Nobody needs the gradient
    of the data, but `backward` works it out too, and goals and lower bounds are for that.

    A half counts that works on values of this step. `flawed` are the values, by rank and id, that were made by hand or
    come from some that were: half a backward of those is computed before the step has come that far.
    """
    done: dict[bool, dict[tuple[int, int], Elements]] = {True: defaultdict(int), False: defaultdict(int)}
    calls: dict[tuple[int, int], tuple[int, Event]] = {}
    for rank, event in trace.events():
        if any((rank, number) in flawed for number in event.inputs):
            continue
        for by_input, ops in ((True, BY_INPUT), (False, BY_WEIGHT)):
            if event.op in ops and event.layer is not None:
                values = trace.programs[rank].values_of(event.inputs)
                share = OPERATIONS[event.op].work(trace.shape, event.layer, 1, values)
                for batch in event.batches:
                    done[by_input][event.layer, batch] += share
                    calls.setdefault((event.layer, batch), (rank, event))
    kinds = trace.shape.kinds
    left = [key for key, share in done[False].items() if done[True][key] < min(kinds[key[0]].cost, share)]
    if not left:
        return None
    layers, batches = ({key[place] for key in left} for place in range(2))
    return remark(
        "correct, but the goals are for whole backwards",
        got=f"weight halves without their input halves: {these('layer', layers)}, {these('batch', batches)}",
        where=places([calls[left[0]]]),
        fix="call backward_input for the first layer, too: with an embedding below it that gradient would be needed",
    )


def posted(trace: Trace, messages: str | None) -> str | None:
    """Why no goal counts: the puzzle says that `messages` are "awaited", and here some travel while ranks compute."""
    if messages != "awaited":
        return None
    loose = [(rank, event) for rank, event in trace.events() if event.op in COMMUNICATION and not event.blocking]
    if not loose:
        return None
    return remark(
        "correct, but in this puzzle messages are awaited, and its goals are for that",
        got=f"{operation(loose[0][1])} that is not awaited where it is called" + more(loose, "call"),
        where=places(loose),
        fix="write await in front of each pass_to and receive; what may travel meanwhile is for other puzzles",
    )


def undivided(trace: Trace, domain: bool) -> str | None:
    """Why no goal counts: ranks share each batch in the puzzle, and here one of them worked on all of it."""
    images = 1 if trace.mesh is None else trace.mesh.axes.get("data", 1)
    if not domain or trace.ranks == images:
        return None
    done: dict[tuple[int, int], Elements] = defaultdict(int)
    calls: dict[int, Event] = {}
    for rank, event in trace.events():
        if event.op == "forward" and event.layer == 0:
            calls.setdefault(rank, event)
            for batch in event.batches:
                values = trace.programs[rank].values_of(event.inputs)
                done[rank, batch] += OPERATIONS[event.op].work(trace.shape, 0, 1, values)
    whole = [key for key, share in done.items() if share >= trace.shape.kinds[0].cost]
    if not whole:
        return None
    first = whole[0][0]
    return remark(
        "correct, but in this puzzle ranks share each batch, and its goals are for that",
        got=f"rank {first} works on all of {these('batch', {batch for rank, batch in whole if rank == first})}",
        where=places([(first, calls[first])]),
        fix="let each rank work on its own part of every batch, as in what is given. Batches that fit on one rank\n"
        "need no more than data parallelism",
    )


def over_memory(trace: Trace, top: figures.Peak, name: str, limit: float) -> str:
    """Why memory is over the limit of a goal: what was alive that nobody needed, else what there was most of."""
    program = trace.programs[top.rank]
    now = program.events[top.index]
    over = float(top.elements) - limit
    what = f'for "{name}" memory is {amount(over)} {plural("element", over)} too high'
    when = f"the peak is on rank {top.rank} at time {units(top.time):g}, when {now.op} starts"
    unused = _unused(trace, top)
    where: Where = [] if (here := place_of(now)) is None else [(None, here)]
    if here is not None and here.file == ORDER:
        return remark(what, got="\n".join([f"{when}; there are", *_by_kind(top)]), where=where, fix=OPEN)
    if unused:
        size = float(sum(item.value.elements() for item in unused))
        lines = [f"{item.value}{_by(', last needed by', item.last)}" for item in unused[:SHOWN]]
        rest = [f"and {len(unused) - SHOWN} more"] if len(unused) > SHOWN else []
        return remark(
            what,
            got="\n".join(
                [f"{when};", f"{amount(size)} elements of it are values that are not used again:", *lines, *rest]
            ),
            where=where,
            fix=_let_go([type(item.value) for item in unused]),
        )
    if (spare := _spare(program, top)) is not None:
        return remark(
            what,
            got=f"{when};\nof the {spare.value} only a shard is used from here on"
            + _by(", last needed by", spare.last),
            where=where,
            fix="keep no more than that shard of it: cut it before this line",
        )
    used = {id(program.values[number]) for number in now.inputs}  # what the operation itself works on hides nothing
    loose = [alive for alive in top.alive if alive.hidden and id(alive.value) not in used]
    if loose:
        size = float(sum(alive.value.elements() for alive in loose))
        lines = [f"{alive.value}{_by(', from', alive.born)}" for alive in loose[:SHOWN]]
        return remark(
            what,
            got="\n".join([f"{when};", f"{amount(size)} elements of it are in no store, but still in use:", *lines]),
            where=where,
            fix="await what is under way, and let go of variables: what can still be used takes memory",
        )
    loaded = sum(alive.value.elements() for alive in top.alive if alive.born and alive.born.op in LOADS)
    alone = len(trace.programs) == 1
    fix = LOAD_LESS if loaded > limit and not alone else _fewer(program, top, alone)
    return remark(what, got="\n".join([f"{when}; there are", *_by_kind(top)]), where=where, fix=fix)


def _by_kind(top: figures.Peak) -> list[str]:
    """Return how much there is of each kind of values, most first."""
    sizes = _sizes(top)
    count = Counter(alive.value.kind for alive in top.alive)
    most = sorted(sizes, key=lambda kind: (-sizes[kind], kind))
    return [f"{counted(count[kind], kind)}: {amount(sizes[kind])} elements" for kind in most]


def _sizes(top: figures.Peak) -> dict[str, Elements]:
    sizes: dict[str, Elements] = defaultdict(int)
    for alive in top.alive:
        sizes[alive.value.kind] += alive.value.elements()
    return sizes


def _fewer(program: Program, top: figures.Peak, alone: bool) -> str:
    """Return what to hold fewer of: the kind of which there is most that does not stay from beginning to end.

    Of weights only guests come and go, and one of them has to be there.
    """
    sizes: dict[str, Elements] = defaultdict(int)
    visiting = {id(program.values[number]) for number in guests(program)}
    for alive in top.alive:
        if alive.value.kind not in ("weight", "optimizer state") or id(alive.value) in visiting:
            sizes[alive.value.kind] += alive.value.elements()
    if sum(id(alive.value) in visiting for alive in top.alive) < 2:
        sizes.pop("weight", None)
    sizes = sizes or _sizes(top)
    kind = min(sizes, key=lambda kind: (-sizes[kind], kind))
    batches = [alive.value.place.batches for alive in top.alive if alive.value.kind == kind == "activation"]
    return FORGET if alone and len(batches) > 1 and all(some == batches[0] for some in batches) else LESS[kind]


def _unused(trace: Trace, top: figures.Peak) -> list[_Unused]:
    """Return what was alive at the peak without being used then or later, biggest first."""
    program, last = trace.programs[top.rank], trace.lifetimes()[top.rank].last
    held = held_at(program, top.index)
    found: list[_Unused] = []
    for number, value in enumerate(program.values):
        trained = value is not None and value.updates > 0  # a result, which is there to stay
        if value is not None and not trained and held[number] > 0 and last[number] < top.index:
            used = program.events[last[number]] if last[number] >= 0 else maker_of(program, number)
            found.append(_Unused(value, used))
    return sorted(found, key=lambda item: -item.value.elements())


def _let_go(kinds: Sequence[type[Value]]) -> str:
    """Return how to be rid of values that are not used again, biggest first. The next step needs an optimizer state,
    too."""
    passing = next((kind for kind in kinds if kind is not OptState), None)
    if passing is not None:
        return f"delete each of them right after its last use, as in: del {STORE[passing]}[...]"
    return (
        "load no more of it than this rank updates, and put what update gives under the same key:\n"
        "weights[layer], opt_states[layer] = model.update(...)"
    )


def _spare(program: Program, top: figures.Peak) -> _Unused | None:
    """A whole value in a store at the peak of which nothing but a shard is used from then on."""
    held = held_at(program, top.index)
    for number, value in enumerate(program.values):
        if value is None or held[number] <= 0 or not value.is_complete():
            continue
        uses = [n for n, event in enumerate(program.events) if number in event.inputs]
        later = [program.events[n].op for n in uses if n >= top.index]
        if later and set(later) == {"shard"}:
            before = [program.events[n] for n in uses if n < top.index]
            return _Unused(value, before[-1] if before else None)
    return None


def _by(words: str, event: Event | None) -> str:
    """ ", last needed by forward in line 12"; nothing where the line is not known."""
    place = place_of(event)
    return "" if event is None or place is None else f"{words} {event.op} {place.within}"


# -- time ---------------------------------------------------------------------------------------------------------


def _beside_batches(value: Value) -> tuple[Part, ...]:
    """Return which part of each dim and sum of its tensor a value is, whatever its batches."""
    place = value.place
    return tuple([part for role, part in zip(place.schema.roles, place.parts, strict=True) if role != "batch"])


def over_time(trace: Trace, end: float, name: str, limit: float) -> str:
    """Why a run takes longer than the limit of a goal: work that nobody uses, or that is done several times, else where
    a rank waits longest."""
    over = float(f"{end - limit:.10g}")
    what = f'for "{name}" the run is {over:.10g} {plural("time unit", over)} too long'
    done: dict[tuple[str, int | None, int, object], list[tuple[int, Event]]] = defaultdict(list)
    for rank, event in trace.events():
        if event.op in COMPUTE and OPERATIONS[event.op].per_batch and event.length:
            ends = trace.programs[rank].values_of((*event.inputs[-1:], *event.outputs[:1]))
            part = tuple([_beside_batches(value) for value in ends])
            for batch in event.batches:
                done[event.op, event.layer, batch, part].append((rank, event))
    again = {key: found for key, found in done.items() if len(found) > 1}
    if again and (vain := _in_vain(trace)):
        event = vain[0][1]
        return remark(
            what,
            got=f"nothing uses what {operation(event)} gives" + more(vain, "computation").replace(", and", "; and"),
            where=places(vain[:1]),
            fix="leave out what nobody needs",
        )
    if again:
        (op, layer, batch, _), found = next(iter(again.items()))
        ranks = sorted({rank for rank, _ in found})
        return remark(
            what,
            got=f"{op} of layer {layer} for batch {batch} was computed {len(found)} times, on {these('rank', ranks)}"
            + more([*again], "computation").replace(", and", "; and"),
            where=places(found),
            fix="give each rank work that no other rank does: batches of its own, or layers of its own"
            if len(ranks) > 1
            else "keep what it gave, instead of computing it again, or do it again for fewer layers",
        )
    waits = {program.rank: _waits(program) for program in trace.programs}
    longest = max(waits, key=lambda rank: (sum(waits[rank].values()), -rank))
    if (bare := _not_hidden(trace)) is not None and bare.ticks > sum(waits[longest].values()):
        said = any(place.file == ORDER for _, place in bare.where)
        return remark(what, got=bare.words(), where=bare.where, fix=ISSUE_EARLIER if said else START_EARLIER)
    if not sum(waits[longest].values()):
        return remark(what, got="no rank ever waits", fix="let the ranks compute less, or share the work more evenly")
    spot, most = max(waits[longest].items(), key=lambda item: item[1])
    total = sum(waits[longest].values())
    return remark(
        what,
        got=f"rank {longest} waits {in_units(total)} in all, {units(most):g} of them here",
        where=[] if spot is None else [(longest, spot)],
        fix=_sent_late(trace, longest, spot)
        or (None if spot is not None else _unevenly(trace, longest))
        or f"let it do other work before this{' line' * (spot is None or spot.file != ORDER)}, "
        "or let the others do earlier what it waits for",
    )


def _unevenly(trace: Trace, waiting: int) -> str | None:
    """Return what to do about a rank that computes longer than the one that waits longest, if there is one."""
    busy = [
        sum(event.length for event in program.events if event.op in COMPUTE and event.start is not None)
        for program in trace.programs
    ]
    most = max(range(len(busy)), key=lambda rank: (busy[rank], -rank))
    if busy[most] <= busy[waiting]:
        return None
    return (
        f"rank {most} computes for {units(busy[most]):g}, and rank {waiting} for {units(busy[waiting]):g}: "
        f"give rank {most} less to do, or a stage that others wait for less"
    )


def _in_vain(trace: Trace) -> list[tuple[int, Event]]:
    """Computations of batches of which nobody uses anything."""
    found: list[tuple[int, Event]] = []
    for program in trace.programs:
        used = {number for event in program.events for number in event.inputs}
        found += [
            (program.rank, event)
            for event in program.events
            if event.op in COMPUTE and OPERATIONS[event.op].per_batch and used.isdisjoint(event.outputs)
        ]
    return found


class _Bare(NamedTuple):
    """Communication of a rank during which it computes nothing: how many times, for how many ticks, in which lines."""

    rank: int
    times: int
    ticks: int
    where: Where

    def words(self) -> str:
        """As the remark says it."""
        times = counted(self.times, "collective")
        return f"rank {self.rank} spends {in_units(self.ticks)} in {times}, and computes nothing meanwhile"


def _not_hidden(trace: Trace) -> _Bare | None:
    """The rank that spends most time in collectives that it awaits where it calls them."""
    found: list[_Bare] = []
    for program in trace.programs:
        bare = [event for event in program.events if event.op in COLLECTIVES and event.blocking and event.length]
        ticks = sum(event.length for event in bare)
        found.append(_Bare(program.rank, len(bare), ticks, places([(program.rank, event) for event in bare])))
    return max((one for one in found if one.times), key=lambda one: (one.ticks, -one.rank), default=None)


def _sent_late(trace: Trace, rank: int, spot: Place | None) -> str | None:
    """Return what a sender did between making a value and passing it, where a rank waited for that value."""
    causes, late = causes_of(trace), Counter[tuple[int, str, int, int]]()
    for number, event in enumerate(trace.programs[rank].events):
        if event.op != "receive" or place_of(event) != spot or (event.start or 0) <= event.issued:
            continue
        sent = causes.sent(At(rank, number, event))
        if sent is None or not sent.event.inputs:
            continue
        program, passed = trace.programs[sent.rank], set(sent.event.inputs)
        for other in reversed(program.events[: sent.number]):
            if passed & set(other.outputs):
                break
            if other.op in COMPUTE and other.length and (line := place_of(other)) is not None:
                there = place_of(sent.event)
                late[sent.rank, other.op, line.line, 0 if there is None else there.line] += other.length
    if not late:
        return None
    (sender, op, line, there), _ = max(late.items(), key=lambda item: (item[1], item[0]))
    does = "updates" if op == "update" else f"computes another {op}"
    return f"rank {sender} {does} in line {line} before it passes what it has, in line {there}: pass first"


def _waits(program: Program) -> dict[Place | None, int]:
    """Return how long a rank waited in which line, in ticks."""
    found: dict[Place | None, int] = defaultdict(int)
    for event in program.events:
        if event.op == "wait":
            found[place_of(event)] += event.length
        elif event.op in COMMUNICATION and event.blocking and event.start is not None:
            found[place_of(event)] += event.start - event.issued
    return found
