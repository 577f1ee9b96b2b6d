"""Why a correct run misses a goal, or no goal counts for it: where memory and time go."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from math import inf

from lib.analysis import figures
from lib.analysis.memory import guests, holdings
from lib.checker.faults import SHOWN, because, places, remark, words_of
from lib.cluster.costs import units
from lib.errors import fixes
from lib.errors.exceptions import PuzzleError
from lib.errors.source_lines import GIVEN, ORDER, Place, function_of
from lib.errors.source_lines import place as place_in
from lib.errors.wording import amount, counted, plural, these
from lib.puzzles.puzzle import Goal
from lib.record import replace
from lib.trace.event import STORE, STORES, Event, Program, line_of, place_of
from lib.trace.lifetimes import held_at, is_for_update, stays_of
from lib.trace.order import messages
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.dims import RunSet
from lib.values.operations import BY_INPUT, BY_WEIGHT, COMMUNICATION, HANDS_IN, LOADS, READS, UPDATES
from lib.values.placement import Place as ValuePlace
from lib.values.placement import held_together
from lib.values.rules import backward_weight
from lib.values.values import Activation, ActivationGrad, Elements, OptState, Value, Weight, WeightGrad, describe

Uses = Sequence[tuple[Value, Event | None]]
"""Values, each with an operation that made or needed it."""


def is_given(event: Event | None) -> bool:
    """Tell whether given code does this: the student's line does not name the operation."""
    place = place_of(event) if event is not None else None
    return event is not None and (place is None or place.file in GIVEN or event.op not in place.text)


def outside(run: Trace, hidden: Sequence[tuple[int, figures.Alive]], judged: bool) -> str:
    """Say which values are in no store, and in which variables. `judged`: of several goals only the first counts."""
    kinds = Counter(alive.value.kind for _, alive in hidden)
    got, fix = ", ".join(counted(kinds[kind], kind) for kind in kinds), because("keep_in_a_store")
    few: dict[object, tuple[int, figures.Alive]] = {}  # ten thousand values mostly share one line
    keys = [(rank, alive, (alive.born and alive.born.source, alive.value.kind)) for rank, alive in hidden]
    for rank, alive, key in keys:
        few.setdefault(key, (rank, alive))
    found = {key: kept for key, (rank, alive) in few.items() if (kept := _variable(run.programs[rank], alive))}
    where = places([(rank, found[key][1] if key in found else alive.born) for rank, alive, key in keys])
    if found:
        names = [*dict.fromkeys(f"{name} ({line_of(event)[4:]})" for name, event, _ in found.values())]
        got += f"\nin {', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''}"
        fix = next(iter(found.values()))[2]
    programs = [(rank, run.programs[rank], alive.value) for rank, alive in few.values()]
    uses = [(rank, event) for rank, p, value in programs for event in p.events if value in p.values_of(event.inputs)]
    if not found and (popped := [one for one in places(uses) if ".pop(" in one[1].text]):
        where, fix = popped, because("popped")
    return remark("outside", "judged" if judged else "", where=where, got=got, fix=fix)


def _variable(program: Program, alive: figures.Alive) -> tuple[str, Event, str] | None:
    """Return the variable that keeps a value, an event whose line names it, and what to do."""
    born, place, store = alive.born, place_of(alive.born), STORE[type(alive.value)]
    if born is None or place is None or place.file in GIVEN:
        return None
    said = re.match(r"(\w+)\.append\(|([^=]+?) [+]?= ", place.text)
    at = next((at for at, number in enumerate(born.outputs) if program.values[number] is alive.value), 0)
    parts = re.split(r",\s*(?![^\[]*\])", said[1] or said[2]) if said else [""]
    name = re.match(r"(\w+)(?![\w.])", part := parts[at] if len(parts) == len(born.outputs) > 1 else parts[0])
    kind = "variable"
    if name and born.op in COMMUNICATION and "await" not in place.text:  # another line keeps the awaited result
        uses = [n for n, event in enumerate(program.events) if born.outputs[at] in event.inputs]
        lines = [*map(place_of, program.events[uses[0] : uses[-1] + 1] if uses else [None])]
        line = next((one for one in _awaiting(born, name[0]) if lines[0] and one.line <= lines[0].line), place)
        kept = re.match(r"(\w+)(?:\[.*?\])? = |(\w+)\.append\(", line.text)
        # If the line of its first use is run again before its last use, the value is kept by the line that made it.
        again = lines[:-1].count(lines[0]) > 1 and re.fullmatch(r"\w+ = await \w+(\[\w+\])?", line.text)
        if kept and line != place and not again and (variable := kept[1] or kept[2]) not in STORES:
            return variable, replace(born, source=line), because(kind, name=variable, store=store)
        kind = "awaited"
    # If a store held it first, under any name, its line does not say which variable took it over.
    waits = [n for n, e in enumerate(program.events) if e.op == "wait" and program.events[e.arg[0]] is born]
    moves = [n for n, _, value, change in program.moves if value == born.outputs[at] and change > 0]
    stored = moves and moves[0] <= min(waits, default=moves[0]) + 1
    if name is None or len(parts) not in (1, len(born.outputs)) or (stored and "[" in part):
        return None
    called = f"a variable, awaited from {name[0]}" if kind == "awaited" else name[0]
    return called, born, because(kind, name=name[0], store=store)


def _awaiting(event: Event, name: str) -> list[Place]:
    """Return the lines of an event's function that await and name a variable, the last first; [] without its code."""
    if (source := event.source) is None or isinstance(source, Place) or (node := function_of(source[0])) is None:
        return []
    lines = [place_in(source[0], number) for number in range(node.end_lineno or 0, node.lineno, -1)]
    return [line for line in lines if "await" in line.text and re.search(rf"\b{name}\b", line.text)]


def gathered_elsewhere(run: Trace, program: Program, value: Weight | OptState) -> tuple[str, Event] | None:
    """Say along which axis of the mesh the parts of a weight were updated, and which gather went along another."""
    updates = [(one.rank, event) for one in run.programs for event in one.events if event.op in UPDATES]
    updated = {rank: run.programs[rank].values_of(e.outputs)[0] for rank, e in updates if e.layer == value.layer}
    mine, mesh = updated.get(program.rank), run.mesh
    gathers = (event for event in program.events if event.op == "allgather" and event.layer == value.layer)
    gather = next((event for event in gathers if any(one is mine for one in program.values_of(event.inputs))), None)
    for axis in () if mesh is None or gather is None or mine is None or mine.place == value.place else mesh.axes:
        group = () if mesh is None else mesh.group(program.rank, axis)
        parts = [updated[rank].place for rank in group if rank in updated]
        whole = len(parts) == len(group) > 1 and held_together(parts, value.place.dims[1:]).covers(value.place.first)
        if gather is not None and whole and {*group} != {*gather.group}:
            return because("gather_along", line=line_of(gather), axis=axis), gather
    return None


def other_layer(trace: Trace) -> str | None:
    """Return a remark on a collective whose layer has nothing to do with the activation it brings."""
    for rank, event in trace.events():
        if event.op not in COLLECTIVES or event.layer is None:
            continue
        for value in trace.programs[rank].values_of(event.inputs):
            number = value.layer + isinstance(value, ActivationGrad)
            if isinstance(value, Activation | ActivationGrad) and abs(event.layer - number) > 1:
                parts = {"rank": rank, "op": event.op, "layer": event.layer, "value": describe(value)}
                return remark("other_layer", where=places([(rank, event)]), number=number, **parts)
    return None


def over_sent(trace: Trace, sent: float, goal: Goal, alone: bool) -> str:
    """Say why a goal does not count: how much is sent, and which collective could send less most easily, preferring one
    that each rank calls in vain. `alone`: whether easier goals allow more."""
    moving = [(rank, event) for rank, event in trace.events() if event.op in COMMUNICATION and event.op not in READS]
    stays = [(rank, event) for rank, event in moving if is_for_update(trace.programs[rank], event)]
    gathers = [(trace.programs[rank].values_of(e.inputs)[0], rank, e) for rank, e in moving if e.op == "allgather"]
    gathered = [one for one in gathers if isinstance(one[0], Activation)]
    fix = because("send_less_weights")
    vain = [(one.rank, *found) for one in trace.programs for found in in_vain(one, one.events)]
    if useless := len(vain) == trace.ranks and not stays:
        rank, event, fix = vain[0]
    elif gathered:
        _, rank, event = max(gathered, key=lambda one: one[0].elements())
        fix = because("send_less_activations")
    elif len(rounds := [one for one in moving if one[1].op in ("shift", "alltoall")]) > len(moving) // 2:
        (rank, event), fix = rounds[-1], because("send_less_rounds")
    else:
        rank, event = next((found for found in moving if found[1].op == "allreduce"), (stays or moving)[0])
        fix = because("send_less_updates") if stays else fix
    told = {"rank": rank, "sent": amount(sent), "most": amount(goal.sent or 0)}
    told["allow"] = f'"{goal.name}" allows' if alone else "the goals allow"
    if event.op != "allreduce" or useless:
        calls = Counter(COLLECTIVES[one.op].title for at, one in moving if at == rank and one.op in COLLECTIVES)
        told["calls"] = ", ".join(counted(count, title) for title, count in calls.items())
        return remark("over_sent", "by_calls" if calls else "", where=places([(rank, event)]), fix=fix, **told)
    axes = {} if (mesh := trace.mesh) is None else {mesh.group(rank, axis): f', group="{axis}"' for axis in mesh.axes}
    words = words_of("over_sent", fix=because("scatter", group=axes.get(event.group, "")), **told)
    error = PuzzleError(**words._asdict(), where=places([(rank, event)]), idea=because("send_shards"))
    fixes.keep(error)
    return str(error)


def in_vain(program: Program, calls: Iterable[Event]) -> Iterator[tuple[Event, str]]:
    """Yield the first collective whose result nothing reads, or is more than is handed in, and what to do."""
    final, read = ({n for e in program.events if (e.op in HANDS_IN) is end for n in e.inputs} for end in (True, False))
    loads = [number for event in program.events if event.op in LOADS for number in event.outputs[:1] if number in read]
    began = [(value.layer, value.elements()) for value in program.values_of(loads)]
    unread = [event for event in calls if event.op in COLLECTIVES and read.isdisjoint(event.outputs)]
    vain = [event for event in unread if final.isdisjoint(event.outputs)]
    brought = [(e, program.values_of(e.inputs)[0]) for e in unread if e.inputs]
    if found := vain or [e for e, value in brought if (e.layer, value.elements()) in began]:
        count = counted(len(found), "collective")
        yield found[0], because("unread" if vain else "not_handed_in", calls=count, call=found[0])


# -- goals that do not count --------------------------------------------------------------------------------------


def left_out(trace: Trace, flawed: Set[tuple[int, int]]) -> str | None:
    """Say why no goal counts: weight halves of backward were done whose input halves never were. Nothing needs the
    gradient of the data, but `backward` works it out too, and goals and lower bounds include it.

    Only halves on values of this step count. `flawed` are the values, by rank and id, that were made by hand or derived
    from such: half a backward on those is computed before the step has come that far."""
    # By layer: the weight gradients that weight halves gave, and those that go with input halves, each once.
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
    # A union, not a sum: a rank that does its own part of an input half twice has not done another rank's.
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
    layers, batches = (these(noun, {key[n] for key, _ in left}) for n, noun in enumerate(("layer", "batch")))
    return remark("left_out", where=places([left[0][1]]), layers=layers, batches=batches)


def _covered(place: ValuePlace, others: Collection[ValuePlace], batch: int | None = None) -> bool:
    """Tell whether other places of the same tensor together cover this one, or its part of one batch."""
    first, *rest = place.parts
    if batch is not None:
        at = place.schema.roles.index("batch") - 1
        rest[at] = rest[at].dim.part((batch, batch + 1))
    return bool(others) and held_together([*others], rest).covers(first)


def undivided(trace: Trace, domain: bool) -> str | None:
    """Say why no goal counts: the puzzle has ranks share each batch, and here one rank worked on all of it."""
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
        # A union, not a sum: a part that is worked out twice is still one part.
        parts = [value.place for value in values]
        whole = held_together(parts, [part.dim.whole for part in parts[0].parts[1:]])
        if batches := whole.shards(whole.dim.size):
            told, case = {"batches": these("batch", RunSet(*batches))}, ""
            if trace.mesh is not None and {*trace.mesh.axes} == {"data", "domain"}:
                calls[rank] = next(e for e in trace.programs[rank].events if e.op == "get_activation")
                told["group"], case = these("rank", trace.mesh.group(rank, "domain")), "in_groups"
            return remark("undivided", case, where=places([(rank, calls[rank])]), rank=rank, **told)
    return None


# -- memory -------------------------------------------------------------------------------------------------------


class Peak:
    """The peak of a run, `over` elements above a goal's limit: what starts then, and what its rank's stores hold."""

    def __init__(self, trace: Trace, top: figures.Peak, name: str, limit: float, asks: Collection[str]) -> None:
        self.trace, self.top, self.name, self.limit, self.asks = trace, top, name, limit, asks
        self.program, self.alone = trace.programs[top.rank], len(trace.programs) == 1
        self.now, self.over = self.program.events[top.index], float(top.elements) - limit
        self.held = held_at(stays_of(trace)[top.rank], top.index)
        self.working = {id(self.program.values[number]) for number in self.now.inputs}

    def told(self, cause: str, case: str = "", here: Place | None = None, **parts: object) -> str:
        """Put a cause into words: what was there, and what to do instead."""
        parts |= {"name": self.name, "over": amount(self.over), "elements": plural("element", self.over)}
        parts |= {"rank": self.top.rank, "time": units(self.top.time), "op": self.now.op}
        return remark("peak", cause, case, where=here or place_of(self.now), **parts)


def over_memory(trace: Trace, top: figures.Peak, name: str, limit: float, asks: Collection[str] = ()) -> str:
    """Say why memory is over a goal's limit: what was alive but not needed, else what there was most of."""
    peak = Peak(trace, top, name, limit, asks)
    here = place_of(peak.now)
    causes = (_most,) if here is not None and here.file == ORDER else (_spare, _unused, _whole, _loose, _most)
    return next(told for cause in causes for told in cause(peak))


def _unused(peak: Peak) -> Iterator[str]:
    """Values alive but not used then or later, except results, which stay: biggest first, with their last uses."""
    idle = [one for one in holdings(peak.trace, peak.top) if one.state == "idle" and not one.hidden]
    unused, never = [(one.value, one.used or one.made) for one in idle], {id(one.value) for one in idle if not one.used}
    if not unused:
        return
    passing = next((type(value) for value, _ in unused if not isinstance(value, OptState)), None)
    fix = because("load_less") if passing is None else because("delete", store=STORE[passing])
    if _total(unused) < peak.over:
        fix += because("not_enough", fewer=_fewer(peak))
    lines = _lines(sorted(unused, key=lambda item: -item[0].elements()), "last needed by", never)
    yield peak.told("unused", size=amount(_total(unused)), lines=lines, fix=fix)


def _spare(peak: Peak) -> Iterator[str]:
    """A whole value in a store of which only a shard is used from then on, with its last use."""
    events, index, values = peak.program.events, peak.top.index, peak.program.values
    for number, value in ((n, one) for n in sorted(peak.held) if (one := values[n]) is not None and one.is_complete()):
        if {event.op for event in events[index:] if number in event.inputs} == {"shard"}:
            used = next((event for event in reversed(events[:index]) if number in event.inputs), None)
            yield peak.told("spare", value=value, used=_by("last needed by", used))


def _whole(peak: Peak) -> Iterator[str]:
    """Whole activations that wait in a store, in a run that gathers rows or has to: ranks could keep their rows."""
    mine, idle, sums = peak.program, peak.held - {*peak.now.inputs}, "allreduce" if "allgather" in peak.asks else ""
    calls = ((one, event) for event in mine.events for one in mine.values_of(event.inputs))
    rows = ((e, isinstance(one, Activation), part.whole) for one, e in calls if (part := one.place.part("rows")))
    cut = (e.group for e, kept, whole in rows if (kept if e.op == sums else e.op == "allgather" and not whole))
    group = next(cut, ())
    later = {n: e for e in reversed(mine.events[peak.top.index :]) for n in idle.intersection(e.inputs)}
    waiting = [(v, e) for n, e in later.items() if isinstance(v := mine.values[n], Activation) and v.is_complete()]
    if group and _total(waiting) * (len(group) - 1) >= peak.over * len(group):
        yield peak.told("whole", size=amount(_total(waiting)), lines=_lines(waiting, "next needed by"))


def _loose(peak: Peak) -> Iterator[str]:
    """Values in variables or in flight that are too much even without those being worked on."""
    hidden = [one for one in peak.top.alive if one.hidden and id(one.value) not in peak.working]
    passed = [(one.value, one.born, _sent(peak, one.value)) for one in hidden]
    passed = [(value, born, sent) for value, born, sent in passed if not is_given(sent[0] if sent else born)]
    loose, sent = [(value, born) for value, born, _ in passed], [sent for *_, sent in passed if sent is not None]
    if not loose or _total(loose) < peak.over:  # values in flight may well have to be
        return
    case, here = "", None
    peer = sent[0][0].peer if len(sent) == len(loose) else None
    if peer is not None and all(end <= peak.now.issued for _, end in sent):
        case, here = "arrived", place_of(sent[0][0])
    elif peer is not None and all(event.peer == peer for event, _ in sent):
        case = "not_received"
    elif len(loose) > 2 and all(born is not None and born.op in COLLECTIVES for _, born in loose):
        case = "collectives"
    parts = {"size": amount(_total(loose)), "lines": _lines(loose, "from"), "count": len(loose), "peer": peer}
    yield peak.told("loose", case, here, **parts)


def _most(peak: Peak) -> Iterator[str]:
    """How much memory each kind of value takes."""
    alive, here = peak.top.alive, place_of(peak.now)
    mine = len({event.layer for event in peak.program.events if event.op == "forward"})
    if here is None and mine < peak.trace.layers:  # the student chose the stages, but wrote no line
        fix = because("fewer_layers", rank=peak.top.rank, layers=counted(mine, "layer"), of=peak.trace.layers)
    elif here is not None and here.file == ORDER:
        fix = _of_order(peak, here)
    else:
        loaded = sum(one.value.elements() for one in alive if one.born and one.born.op in LOADS)
        fix = because("load_a_part") if loaded > peak.limit and not peak.alone else _fewer(peak)
    count, sizes = Counter(one.value.kind for one in alive), _sizes(one.value for one in alive)
    kinds = sorted(sizes, key=lambda kind: (-sizes[kind], kind))
    got = [f"\n{counted(count[kind], kind)}: {amount(sizes[kind])} elements" for kind in kinds]
    yield peak.told("most", kinds="".join(got), fix=fix)


def _of_order(peak: Peak, here: Place) -> str:
    """Return what to do if only the order can change: free a waiting stage, shard what is whole, or wait less."""
    events, ops = peak.program.events, {event.op for event in peak.program.events}
    now = {event.layer for event in events if place_of(event) == here}
    whole = {one.value.layer for one in peak.top.alive if one.born and one.born.op == "allgather"} - now
    if whole:
        return because("reshard", rank=peak.top.rank, layers=these("layer", whole))
    if peak.trace.mesh is not None and "allgather" not in ops:
        return because("shard_all")
    return because("shorter_lives", end="weight half" if ops & (BY_WEIGHT - BY_INPUT) else "backward")


def _sizes(values: Iterable[Value]) -> dict[str, Elements]:
    sizes: dict[str, Elements] = defaultdict(int)
    for value in values:
        sizes[value.kind] += value.elements()
    return sizes


def _total(values: Uses) -> float:
    return float(sum(value.elements() for value, _ in values))


def _sent(peak: Peak, value: Value) -> tuple[Event, float] | None:
    """Return the message in which the rank has passed a value, and when it was received; None without one."""
    for source, number, to, taken in messages(peak.trace):
        event = peak.program.events[number] if source == peak.top.rank and number <= peak.top.index else None
        if event is not None and any(peak.program.values[n] is value for n in event.inputs):
            end = None if taken is None else peak.trace.programs[to].events[taken].end
            return event, inf if end is None else end
    return None


def _lines(values: Uses, words: str, never: Set[int] = frozenset()) -> str:
    """List the first few values, each with a line of code: for those `never` used, the line that made them."""
    after = "never needed after"
    lines = [f"\n{value}{_by(after if id(value) in never else words, event)}" for value, event in values[:SHOWN]]
    return "".join(lines) + (f"\nand {len(values) - SHOWN} more" if len(values) > SHOWN else "")


def _by(words: str, event: Event | None) -> str:
    """Return ", last needed by forward in line 12", or "" if the line is not known."""
    return f", {words} {event.op}{line}" if event is not None and (line := line_of(event)) else ""


def _fewer(peak: Peak) -> str:
    """Return what to hold fewer of: the kind that takes most, without what stays from beginning to end. The only
    weights that come and go are guests, and one of those has to be there."""
    alive, stay = [one.value for one in peak.top.alive], ("weight", "optimizer state")
    visiting = {id(peak.program.values[number]) for number in guests(peak.program)}
    sizes = _sizes(value for value in alive if value.kind not in stay or id(value) in visiting)
    if sum(id(value) in visiting for value in alive) < 2:
        sizes.pop("weight", None)
    sizes = sizes or _sizes(alive)
    kind = min(sizes, key=lambda kind: (-sizes[kind], kind))
    if sum(float(value.elements()) for value in alive if id(value) in visiting - peak.working) >= peak.over:
        kind = "weight"  # the easiest to get again
    batches = [value.place.batches for value in alive if value.kind == kind == "activation"]
    if not peak.alone or len(batches) < 2 or any(some != batches[0] for some in batches):
        waiting = [v for v in alive if isinstance(v, WeightGrad) and len(v.batches) < v.total_batches]
        if peak.alone and kind == "weight gradient" and waiting:
            return because("gradients_wait")
        made = {one.value.place.batches for one in peak.top.alive if one.born and one.born.op == "forward"}
        if kind == "activation" and len(made) == 1 < len(*made) and any(e.op == "add" for e in peak.program.events):
            states = (v for v in alive if isinstance(v, Weight | OptState) and id(v) not in visiting)
            whole = sum(float(value.elements()) for value in states if value.is_complete())
            if "allgather" in peak.asks and whole * (1 - 1 / peak.trace.ranks) >= peak.over:
                return because("share")
            return because("fewer_together", batches=len(*made))
        own = {some for some in batches if not any(other < some for other in batches)}  # an expert has several ranks'
        if len(own) > 1:
            return because("in_flight", batches=len(own), less=because(f"less {kind}"))
        cut = any(isinstance(value, OptState) and not value.is_complete() for value in alive)
        if kind == "activation" and peak.trace.batches == 1 and not peak.alone:
            return because("get_again")
        less = because(f"less {kind}")
        return less if cut or kind != "weight gradient" else less.partition(";")[0]
    # One batch at a time keeps the gradients of all weights, as large as the weights, and one batch's activations.
    whole = _sizes(alive)
    ours = sum(size for name, size in whole.items() if name.startswith("activation"))
    one_by_one = sum(whole.values()) - ours + ours / len(batches[0]) + whole["weight"] - whole["weight gradient"]
    return because("one_by_one" if len(batches[0]) > 1 and one_by_one <= peak.limit else "forget")
