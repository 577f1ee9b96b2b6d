"""The faults of a run's results: in its final weights, and in what each rank has for the next training step.

For final weights, a fault says which rank should have handed in what. A rank is ready for the next step if it ends
with everything that it started from, one update further on. It starts from what it loads and uses. It ends with what
it hands in and what its stores hold, as far as that is honest and was updated exactly once. Optimizer states cannot be
handed in, so a store has to hold them: variables are gone once the function returns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import lcm
from operator import itemgetter
from typing import Any, NamedTuple, cast

from lib.errors.exceptions import PuzzleError, TraceError, Words, words_in
from lib.errors.source_lines import GIVEN, Place, lines_calling
from lib.errors.wording import these
from lib.trace.event import Event, Program, line_of, operation, place_of
from lib.trace.lifetimes import Stay, Uses, by_twin, held_at, stays_of, uses_of
from lib.trace.rebuild import Flaw, Rebuilt
from lib.trace.trace import Trace
from lib.values.dims import RunSet
from lib.values.operations import BY_WEIGHT, HANDS_IN, LOADS, UPDATES
from lib.values.placement import MOST, Part, held_together, union
from lib.values.values import OptState, Weight, describe

Held = Weight | OptState
PARTLY = "only a part of it updated"
TWICE = "one that was updated more than once"


def fault_of(error: PuzzleError | TraceError) -> str:
    """Return a fault in the words of an error, with all lines but the first indented."""
    return str(error).replace("\n", "\n  ")


SHOWN = 5
"""The most lines of one sort that a remark shows: the first ones."""

Where = list[tuple[int | None, Place]]


def maker_of(program: Program, number: int) -> Event | None:
    """Return the event that made a value."""
    return next((event for event in program.events if number in event.outputs), None)


def places(events: Sequence[tuple[int, Event | None]]) -> Where:
    """Return a few different lines of events, with their ranks."""
    sources = {event.source: event for _, event in events if event is not None}
    lines = {source: place_of(event) for source, event in sources.items()}  # ten thousand events mostly share one line
    found = [(rank, place) for rank, event in events if event is not None and (place := lines[event.source])]
    # dict.fromkeys, not a set, keeps the first lines in the program's order.
    few = list(dict.fromkeys(place for _, place in found))[:SHOWN]
    return list(dict.fromkeys((rank, place) for rank, place in found if place in few))


def words_of(rule: str, *cases: str, **parts: object) -> Words:
    """Return the words of a fault or a remark from `words.toml`. Operations are named with their lines."""
    return words_in(_texts(), rule, *cases, **_with_lines(parts))


def because(cause: str, **parts: object) -> str:
    """Return the reason for something and what to do about it, from `words.toml`, filled in as by `words_of`."""
    return _texts()["because"][cause].format(**_with_lines(parts))


def _texts() -> dict[str, Any]:
    from lib.files import table  # here and not above: a run that goes well needs no words

    return table("lib.checker", "words")


def _with_lines(parts: Mapping[str, object]) -> dict[str, object]:
    told = {name: f"{operation(part)}{line_of(part)}" for name, part in parts.items() if isinstance(part, Event)}
    return {**parts, **told}


def remark(rule: str, *cases: str, where: Where | Place | None = None, **parts: object) -> str:
    """Return a remark on a run in the words of its rule, without lines of given code."""
    where = None if getattr(where, "file", "") in GIVEN else where
    return str(PuzzleError(**words_of(rule, *cases, **parts)._asdict(), where=where))


# -- the final weights --------------------------------------------------------------------------------------------


class _Fault(NamedTuple):
    """A fault; its words may say `these layers` if it concerns the final weights of some layers."""

    words: Words
    where: Place | None
    rank: int | None = None

    def text(self, layers: Collection[int] = ()) -> str:
        words = self.words._asdict()
        if layers:
            words["what"] = self.words.what.replace("these layers", these("layer", layers))
        return fault_of(PuzzleError(**words, rank=self.rank, where=self.where))


def finals(trace: Trace, rebuilt: Rebuilt, pretend: bool) -> list[str]:
    """Return what is wrong with the final weights; layers with the same fault share one text. `pretend`: the run is a
    sandbox, where a made-up gradient will do."""
    faults: dict[_Fault, list[int]] = {}
    handed_in: dict[int, list[tuple[int, Event, Weight, Flaw | None]]] = defaultdict(list)
    for (rank, layer), (event, weight, flaw) in rebuilt.finals.items():
        handed_in[layer].append((rank, event, weight, flaw))
    # Only if some layer was not handed in at all: finding who updated it takes a pass over all events.
    updated: dict[int | None, list[tuple[int, Event]]] = defaultdict(list)
    if len(handed_in) < trace.layers:
        for rank, event in trace.events():
            if event.op in UPDATES:
                updated[event.layer].append((rank, event))
    kinds = rebuilt.run.shape.kinds
    # A short file may declare a million layers that no event touches: they share one fault.
    known = {layer for layer in (*handed_in, *updated) if layer is not None and 0 <= layer < trace.layers}
    untouched = RunSet.of(known).rest(trace.layers)
    if len(trace.descriptions) > 1:
        untouched = RunSet.of([layer for layer in untouched if kinds[layer].weight is not None])
    first = next(iter(untouched), 0)
    complete: set[tuple[int, ...]] = set()  # by places of weights: most layers are handed in alike
    for layer in sorted({*known, first}):
        if kinds[layer].weight is None:
            continue
        here = sorted(handed_in.get(layer, ()), key=itemgetter(0))
        if not here and layer not in known:
            faults[_not_handed_in(trace, [])] = []  # for all untouched layers
        elif not here:
            faults.setdefault(_not_handed_in(trace, updated[layer]), []).append(layer)
        else:
            # Only the first rank with a wrong weight is told, and what is missing from all of them.
            wrong = (_fault(trace, *one, pretend) for one in here)
            parts = tuple([id(weight.place) for _, _, weight, _ in here])
            missing = None if parts in complete else _missing(here, trace)
            for fault in (next(filter(None, wrong), None), missing):
                if fault is not None:
                    faults.setdefault(fault, []).append(layer)
            if missing is None:
                complete.add(parts)
    return [fault.text(layers or untouched) for fault, layers in faults.items()]


def _not_handed_in(trace: Trace, updated: Sequence[tuple[int, Event]]) -> _Fault:
    """Say why no rank called set_final_weight for a layer: it was forgotten, or the function ended early."""
    if not updated:
        rank, event = next(((p.rank, p.events[-1]) for p in trace.programs if p.events), (0, None))
        words = words_of("untouched", "at_all" if event is None else "", rank=rank, op=event and event.op)
        return _Fault(words, place_of(event))
    event, ranks = updated[0][1], these("rank", {rank for rank, _ in updated})
    source = event.source  # the line that would hand in weights can be found in the code
    lines = [] if source is None or isinstance(source, Place) else lines_calling(source[0], "set_final_weight")
    if lines:
        return _Fault(words_of("not_handed_in", "not_reached", ranks=ranks, line=lines[0].line), lines[0])
    return _Fault(words_of("not_handed_in", ranks=ranks), place_of(event))


def _fault(trace: Trace, rank: int, event: Event, weight: Weight, flaw: Flaw | None, pretend: bool) -> _Fault | None:
    """Return what is wrong with one final weight."""
    if flaw is not None and not (pretend and flaw.pretended):
        on = "" if flaw.rank == rank else f" on rank {flaw.rank}"
        words = Words(f"the final weight of these layers does not count: {flaw.what}{on}", flaw.instead, fix=flaw.fix)
        return _Fault(words, place_of(flaw.event), rank)
    if weight.step == 1:
        return None
    program = trace.programs[rank]
    updates = [(n, e) for n, e in enumerate(program.events) if e.op in UPDATES and e.layer == weight.layer]
    places = {place.line for _, e in updates if (place := place_of(e)) is not None}
    lines = these("line", places) if places else ""
    known = "known" if lines else ""
    if weight.step > 1:
        sent = [n for e in program.events if e.op == "allreduce_bucket" for n in e.inputs]
        why = "in_buckets" if len({*sent}) < len(sent) else ""
        words = words_of("updated_often", known, why, times=weight.step, lines=lines)
        return _Fault(words, place_of(event), rank)
    # Not updated at all: look for the likely reason, the most telling first.
    now = next(number for number, mine in enumerate(program.events) if mine is event or mine == event)
    why, parts = "", dict[str, object]()
    everywhere = [(p.rank, e.layer) for p in trace.programs for e in p.events if e.op in UPDATES]
    others = {rank for rank, layer in everywhere if layer == weight.layer}
    gathered = next((e for e in program.events if e.op == "allgather" and set(e.outputs) & set(event.inputs)), None)
    if not everywhere and (sums := _unused(program, ("allreduce", "allreduce_bucket"))):
        why, parts = "not_reached", {"sums": operation(sums[0])}
    elif others and not updates:
        why, parts = "by_others", {"ranks": these("rank", others)}
    elif not updates and rank in dict(everywhere) and (left := _unused(program, BY_WEIGHT, weight.layer)):
        why, parts = "not_summed", {"op": left[-1].op, "line": line_of(left[-1])}
    # The gather comes before the update, say in ZeRO's last step.
    elif gathered is not None and updates:
        why, parts = "gathered_before", {"line": line_of(gathered)}
    elif any(number < now for number, _ in updates):
        why = "result_dropped"
    elif updates:
        why = "handed_in_before"
    return _Fault(words_of("never_updated", known, why, lines=lines, **parts), place_of(event), rank)


def _unused(program: Program, ops: Collection[str], layer: int | None = None) -> list[Event]:
    """Return operations of some kinds, on one layer or on all, whose first result no operation used."""
    used = {number for event in program.events for number in event.inputs}
    made = (event for event in program.events if event.op in ops and layer in (None, event.layer))
    return [event for event in made if event.outputs and event.outputs[0] not in used]


def _parts(missing: Part, totals: set[int]) -> int:
    """Return how many shards to count in when naming the missing part of a weight; 0 if no small number will do."""
    # Different cuts have a common refinement: halves and thirds are both made of sixths.
    common = 1
    for total in sorted(totals):
        common = lcm(common, total)
        # Too many for anyone to read: use the cut of one of the ranks.
        if common > MOST:
            return next((few for few in sorted(totals) if missing.shards(few) is not None), 0)
    return common


def _missing(here: Sequence[tuple[int, Event, Weight, Flaw | None]], trace: Trace) -> _Fault | None:
    """Return which parts of a layer no final weight has."""
    # Ranks may have cut the weight differently, into rows, columns or both: what they hold together counts.
    places = [weight.place for _, _, weight, _ in here]
    there = held_together(places, [part.dim.whole for part in places[0].dims[1:]])
    missing = there.dim.whole.minus(there)
    if not missing.size:
        return None
    ranks, layer = [rank for rank, *_ in here], here[0][2].layer
    noun, cut = "shard", [place.dims[0] for place in places]
    if all(part.whole for part in cut):  # into columns, then
        noun, cut = "column shard", [place.dims[-1] for place in places]
        missing = union(cut).dim.whole.minus(union(cut))
    parts = _parts(missing, {part.grid for part in cut if part.grid})
    why, at = "", place_of(here[0][1])
    had = {rank for rank, event in trace.events() if event.op in LOADS and event.layer == layer}
    if had == set(ranks) and parts > len(had):
        cuts = [place_of(e) for e in trace.programs[ranks[0]].events if e.op == "shard" and e.layer == layer]
        at = next((line for line in reversed(cuts) if line and at and line.function == at.function), at)
        why = "cut_smaller"
    are = "is" if not parts or missing.size * parts == missing.dim.size else "are"
    told = {"missing": missing.words(parts, noun), "are": are, "parts": parts, "noun": noun}
    return _Fault(words_of("incomplete", "in_shards" if parts else "", why, ranks=these("rank", ranks), **told), at)


# -- the next step ------------------------------------------------------------------------------------------------


def unready(rebuilt: Rebuilt, pretend: bool = False) -> list[str]:
    """Return what each rank lacks for the next step; ranks and layers that lack the same share one text. `pretend` as
    in `finals`."""
    lacks: dict[tuple[str, str, str, Place | None], list[tuple[int, Held]]] = defaultdict(list)
    run = rebuilt.run
    kept = by_twin(run, lambda rank: _kept(run.programs[rank], stays_of(run)[rank]))
    for program, uses, there in zip(run.programs, uses_of(run), kept, strict=True):
        if not rebuilt.flaws and _all_there(program, uses, there):
            continue
        before, after = _at_rest(program, uses), _afterwards(program, there, rebuilt, pretend)
        for key, loads in before.items():
            # Exactly one step on: a weight that was updated twice is not the next step's either.
            now = [value for value in after[key] if value.step == 1]
            if now and _covers(now, [value for value, _ in loads]):
                continue
            # Only the first missing part is told: the others mostly lack the same.
            value, load = next(pair for pair in loads if not now or not _covers(now, [pair[0]]))
            ends = _ends(value, after[key])
            fix, at = _fix(program, value, ends, now), load
            if ends == PARTLY and run.mesh is not None:
                from lib.checker import notes  # here and not above: only a mistake needs it

                fix, at = notes.gathered_elsewhere(run, program, value) or (fix, at)
            lacks[value.kind, ends, fix, place_of(at)].append((program.rank, value))
    found: list[str] = []
    for (kind, ends, fix, place), ranked in lacks.items():
        ranks, layers = {rank for rank, _ in ranked}, {value.layer for _, value in ranked}
        rank, value = ranked[0]
        are = "is" if len(ranks) == 1 else "are"
        parts = {"kind": kind, "layers": these("layer", layers), "value": describe(value), "ends": ends, "fix": fix}
        found.append(_Fault(words_of("unready", ranks=these("rank", ranks), are=are, rank=rank, **parts), place).text())
    return found


def _all_there(program: Program, uses: Uses, there: Sequence[int]) -> bool:
    """Tell whether each part that was at rest is there again, cut alike and one update on. This holds in nearly every
    run, and saves putting parts together to compare what they cover."""
    values = cast("Sequence[Held]", program.values)
    now = {(type(value), value.layer, value.place) for number in there if (value := values[number]).step == 1}
    before = [values[number] for number in uses.loaded if uses.last[number] >= 0]
    return now.issuperset([(type(value), value.layer, value.place) for value in before])


def _covers(now: list[Held], before: list[Held]) -> bool:
    """Tell whether the shards `now` (at least one) cover all of the shards `before`."""
    # Parts that differ only in the first dim are united, and each union is looked for in what is there now.
    places = [value.place for value in now]
    firsts: dict[tuple[Part, ...], list[Part]] = defaultdict(list)
    for value in before:
        first, *rest = value.place.dims
        firsts[tuple(rest)].append(first)
    return all(held_together(places, rest).covers(union(parts)) for rest, parts in firsts.items())


def _at_rest(program: Program, uses: Uses) -> dict[tuple[str, int], list[tuple[Held, Event]]]:
    """Return what a rank loads and uses, by kind and layer, with the events that load it."""
    found: dict[tuple[str, int], list[tuple[Held, Event]]] = defaultdict(list)
    for number in uses.loaded:
        value = program.values[number]
        if uses.last[number] >= 0 and isinstance(value, Weight | OptState):
            found[value.kind, value.layer].append((value, program.events[uses.maker[number]]))
    return found


def _kept(program: Program, stays: Mapping[int, Sequence[Stay]]) -> list[int]:
    """The weights and optimizer states that a rank has when its program is over."""
    there = held_at(stays, len(program.events))
    # A final weight counts even if no store holds it: handing it in keeps it.
    there.update([number for event in program.events if event.op in HANDS_IN for number in event.inputs])
    # Sorted, since a set has no order and the first wrong one is told.
    return [number for number in sorted(there) if type(program.values[number]) in (Weight, OptState)]


def _afterwards(
    program: Program, there: Sequence[int], rebuilt: Rebuilt, pretend: bool
) -> dict[tuple[str, int], list[Held]]:
    """The honest weights and optimizer states that a rank has when its program is over, by kind and layer."""
    found: dict[tuple[str, int], list[Held]] = defaultdict(list)
    for number in there:
        value = cast(Held, program.values[number])
        flaw = rebuilt.flaws.get((program.rank, number))
        if flaw is None or (pretend and flaw.pretended):
            found[value.kind, value.layer].append(value)
    return found


def _ends(value: Held, after: list[Held]) -> str:
    """Return, in words, how much of what a rank began with it has at the end."""
    steps = {other.step for other in after}
    if max(steps, default=0):
        return TWICE if max(steps) > 1 else PARTLY
    return "the same as before, not updated" if after and _covers(after, [value]) else "none of it"


def _fix(program: Program, value: Held, ends: str, now: list[Held]) -> str:
    weight, whole = isinstance(value, Weight), value.is_complete()
    if ends == PARTLY and weight:
        return because("gather_the_updated", group="" if whole else ", group=...")  # of the ranks that updated the rest
    if ends == PARTLY:
        return because("load_that_part", part="model.rank, model.RANKS" if whole else f"..., {now[0].total}")
    if any(event.op in UPDATES and event.layer == value.layer for event in program.events):
        return because("update_once" if ends == TWICE else "keep_the_weight" if weight else "keep_the_state")
    return because("get_the_weight" if weight else "update_at_the_state")
