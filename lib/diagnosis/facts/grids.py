"""Facts about rows and other dims of a grid: missing halos, windows that reach too far, parts that differ."""

from __future__ import annotations

from typing import Any

from lib.analysis.feeding import feeds
from lib.diagnosis import Running, Told, because, words_of
from lib.diagnosis.provenance import alike, home, is_held, is_whole, line_of, made_by, maker, named, through, titled
from lib.errors.exceptions import Words, fact
from lib.errors.wording import numbered, these, written
from lib.trace.event import Event
from lib.values.collectives import COLLECTIVES
from lib.values.dims import DIMS, SPACE, Pieces, RunSet
from lib.values.kinds.attention import Attention, NeighborhoodAttention
from lib.values.kinds.grid import Stencil, Swept, Window
from lib.values.operations import BY_INPUT
from lib.values.values import Activation, ActivationGrad, Value, definite, describe, subject

__all__ = ["Broken", "NoRows", "NoWindow", "NotCut", "OtherParts", "OtherRows"]


@fact
def NoRows(op: str, inp: Value, stencil: Stencil, role: str) -> Words:
    """A layer needs several adjacent rows for one row of output, and has too few (`stencil`, along a dim)."""
    kind = DIMS[role]
    row = min(stencil(inp.place.named[role].pieces), default=0)
    return words_of("NoRows", op=op, inp=inp, kind=kind, row=row, span=_span(stencil, role, row))


@fact
def OtherRows(_: Running, op: str, inp: Value, grad: Value, stencil: Stencil, role: str) -> Told:
    """A gradient has rows that the input does not give (`stencil`, along a dim)."""
    kind = DIMS[role]
    mine, its = stencil.given(inp.place.named[role].pieces), grad.place.named[role].pieces
    row = next(row for row in its if row not in mine)
    given = numbered(kind.noun, mine) if mine else f"no {kind.plural}"
    parts = {"given": given, "its": numbered(kind.noun, its), "row": row, "span": _span(stencil, role, row)}
    yield words_of("OtherRows", op=op, kind=kind, **parts)
    yield from spare_halo(grad, role)


def _span(stencil: Stencil, role: str, row: int) -> str:
    """Return, in words, the rows of input that a row of output needs."""
    return numbered(DIMS[role].noun, [one for one in stencil.needs(row) if one in range(stencil.rows)])


@fact
def NoWindow(program: Running, op: str, inp: Value, keys: Value, window: Window, role: str) -> Told:
    """Some queries attend to keys that are not here (`window`, along a dim)."""
    mine, here = (RunSet.of(value.place.named[role].pieces) for value in (inp, keys))
    noun, given = DIMS[role].noun, window.given(here)
    row = next(row for row in mine if row not in given)
    needs = window.needs(row)
    lacks = RunSet.of(one for one in needs if one not in here)
    case = "enough_for" * bool(mine & given)
    case = "at_an_edge" if needs[len(needs) // 2] != row else case
    parts = {"lacks": numbered(noun, lacks), "window": numbered(noun, needs), "enough": numbered(noun, mine & given)}
    yield words_of("NoWindow", case, op=op, inp=inp, keys=keys, noun=noun, row=row, **parts)
    event = maker(inp)
    while event is not None and event.op == "combine":
        for value in event.inputs:
            brought = maker(program.values[value])
            if brought is not None and brought.op in COLLECTIVES:
                yield because("queries_came", brought=titled(brought))
        event = maker(program.values[event.inputs[0]])


@fact
def Broken(_: object, op: str, role: str, value: Value, number: int, noun: str) -> Told:
    """An operation mixes what belongs together along a dim (in `number` pieces), and got part of a piece."""
    things, got, made = DIMS[role].plural, describe(value), maker(value)
    parts = {"things": things, "value": got, "noun": noun, "number": number}
    size = value.place.named[role].dim.size
    yield words_of("Broken", "pieces" * (number > 1), op=op, size=size, **parts)
    if number > 1:
        return
    if made is not None and made.op == "alltoall" and len(made.outputs) > 1:
        yield because("one_of_many_pieces", line=line_of(made), count=len(made.outputs))
    if (swap := through(value, ("combine",))[0]) is not None and swap.op == "alltoall":
        yield f"the all-to-all{line_of(swap)} gave {things} away that this layer still needs: swap them later"


@fact
def OtherParts(program: Running, op: str, role: str, one: Value, other: Value) -> Told:
    """An operation got two values with different parts of a dim (`role`)."""
    plural = DIMS[role].plural
    mine, its = (value.place.part(role) for value in (one, other))
    apart, case = mine is not None and its is not None and not mine.meets(its), ""
    if role == "experts":
        case = "other_experts" if apart else "experts"
    elif mine is not None and its is not None and not (mine.covers(its) or its.covers(mine)):
        case = "apart" if apart else "differ"
    yield words_of("OtherParts", case, op=op, plural=plural, one=one, other=other)
    for value in (one, other) if role in SPACE else ():
        yield from lacked_halo(value, role)
        yield from spare_halo(value, role)
        back, beside = maker(value), other if value is one else one
        more = sorted({*value.place.named[role].pieces} - {*beside.place.named[role].pieces})
        if more and back is not None and back.op == "forward" and not is_whole(value, role):
            yield too_wide(back, numbered(DIMS[role].noun, more), plural) if stencil_of(program, back, role) else None
        took = maker(program.values[back.inputs[0]]) if back is not None and back.op in BY_INPUT else None
        if back is not None and took is not None and took.op == "allgather" and not value.place.open:
            yield because("gave_all_gradients", took=titled(took), plural=plural, back=named(back))
    kinds = program.world.models[program.rank].shape.kinds
    lacks, cut = (one, other) if is_whole(one, "features") else (other, one)
    if is_whole(lacks, "features") and not is_whole(cut, "features"):
        made = through(cut, ("combine",))[0]
        what = "the gradient" if isinstance(lacks, ActivationGrad) else definite(subject(lacks.kind, lacks.layer))
        if isinstance(kinds[max(one.layer, other.layer)], Attention):
            yield f"this rank has all rows of some heads: swap {what} for these, by an all-to-all"
        elif made and made.op == "backward" and isinstance(kinds[made.layer or 0], Attention):
            yield f"{named(made)} gave all rows of some heads: swap them for all heads of some rows, by an all-to-all"
    for value, beside in ((one, other), (other, one)) if role == "rows" else ():
        wanted = beside.place.part("rows")
        for number, held in () if wanted is None else alike(program, value):
            part = held.place.part("rows")
            if part is not None and part.alike(wanted) and is_held(program, number):
                has = f"this rank has {describe(held)}, too, which {made_by(held)}"
                yield f"{has}:\nthat goes with the {describe(beside)}"


def stencil_of(program: Running | None, made: Event | None, role: str) -> Stencil | None:
    """Return the stencil, along a dim, of the convolution that an event computed."""
    if program is None or made is None or made.layer is None:
        return None
    kinds = program.world.models[program.rank].shape.kinds
    kind = kinds[made.layer] if made.layer < len(kinds) else None  # after the last layer comes the loss
    return kind.stencils.get(role) if isinstance(kind, Swept) else None


def lacked_halo(value: Value, role: str) -> Told:
    """Find a convolution on the way to a value that took the previous layer's output without a halo, so gave less."""
    program, made, kind = home(value), maker(value), DIMS[role]
    while program is not None and made is not None and made.op == "forward":
        given, gave = program.values[made.inputs[0]], program.values[made.outputs[0]]
        before, stencil, own = maker(given), stencil_of(program, made, role), given
        while before is not None and before.op == "combine" and own is not None and given is not None:
            own = program.values[before.inputs[0]]  # with the halo of another dim, but not of this one
            before = maker(own) if own and own.place.part(role) == given.place.part(role) else None
        if stencil and given and gave and before and before.op == "forward" and stencil.outputs == stencil.rows:
            here, out = given.place.named[role].pieces, gave.place.named[role].pieces
            if len(out) < len(here):
                had, enough = numbered(kind.noun, here), numbered(kind.noun, out)
                yield because("too_few_rows", line=line_of(made), had=had, enough=enough, plural=kind.plural)
        made = before


def _needs_halo(program: Running, layer: int, role: str, own: Pieces) -> bool:
    """Tell whether a layer gives more rows with neighbours' rows than with these alone."""
    kinds = program.world.models[program.rank].shape.kinds
    kind = kinds[layer] if layer < len(kinds) else None  # after the last layer comes the loss
    if isinstance(kind, Swept):
        return kind.stencils[role](own) != kind.stencils[role].given(own)
    return kind is None or isinstance(kind, NeighborhoodAttention)


def too_wide(gave: Event, rows: str, plural: str) -> str:
    """Say that forward gave rows that belong to other ranks."""
    return because("halo_too_wide", line=line_of(gave), rows=rows, plural=plural)


def spare_halo(value: Value, role: str) -> Told:
    """Find a halo on the way to a value that its layer does not need."""
    program, (made, has) = home(value), through(value, ("forward", "loss"))
    while program is not None and made is not None and made.op == "combine":
        own, lent = program.values_of(made.inputs)
        mine, brought, last = own.place.named[role].pieces, maker(lent), has.layer == has.layers
        rows = sorted({*has.place.named[role].pieces} - {*mine})
        if rows and brought and brought.op == "halo" and (last or not _needs_halo(program, has.layer, role, mine)):
            got = f"got {numbered(DIMS[role].noun, rows)} of a neighbour{line_of(made)}"
            yield f"{'the loss' if last else f'layer {has.layer}'} needs no halo here, and {got}: leave it out"
        made = maker(own)


@fact
def NotCut(_: object, value: Value, role: Any, wanted: tuple[Any, Any] | None) -> Told:
    """A value is to be cut along a dim (`role`) that it does not have, or of which it lacks some of `wanted`."""
    parts, got, dim = value.place.named, describe(value), written(role)
    if wanted is None or role not in parts:
        unsorted = "unsorted" * (role == "experts")
        yield words_of("NotCut", "no_dim", unsorted, value=got, dim=dim, dims=", ".join(parts))
        return
    low, high = wanted
    lacks, along = "", ""
    if role in SPACE and isinstance(low, int) and isinstance(high, int) and low < high:
        are = "is not" if high == low + 1 else "are not all"
        lacks = f"{numbered(DIMS[role].noun, range(low, high))} {are}"
    if role in SPACE and not parts[role].whole:
        along = next((name for name in SPACE if name in parts and parts[name].whole), "")
    plural = DIMS[along].plural if along else ""
    ends = {"low": written(low), "high": written(high), "dim": dim, "range": lacks, "along": along}
    yield words_of("NotCut", lacks and "range", along and "along_another", value=got, plural=plural, **ends)
    if role in SPACE and low < high and (low < 0 or high > parts[role].dim.size):
        inside = f"{DIMS[role].plural} 0 to {parts[role].dim.size - 1}"
        yield None if parts[role].dim.size > 1 else f"it has one {DIMS[role].noun}, and all of that: leave this cut out"
        how = "does each rank cut by its place in the group?" if low >= parts[role].dim.size else "cut no further"
        yield f"there is nothing beyond the edges of the grid, {inside}: {how}"
    made, program = maker(value), home(value)
    if made is None or program is None or role not in SPACE:
        return
    kind, here, kinds = DIMS[role], parts[role].pieces, program.world.models[program.rank].shape.kinds
    lacking = sorted({*range(low, high)} - {*here})
    if made.op == "combine" and lacking:
        for event in program.events if isinstance(value, ActivationGrad) else ():
            given = [one for one in program.values_of(event.inputs) if event.op == "halo" and type(one) is type(value)]
            if any(one.layer == value.layer and {*lacking} & {*one.place.named[role].pieces} for one in given):
                yield f"{numbered(kind.noun, lacking)} went home by {titled(event)} already: a halo is given back once"
        verb = "is" if len(lacking) == 1 else "are"
        why = f"{numbered(kind.noun, lacking)} {verb} missing from what was put together{line_of(made)}"
        yield f"{why}:\nhow many {kind.plural} does each neighbour hand in, and how many are needed?"
    if made.op == "halo":
        if value.place.batches != (mine := program.values_of(made.inputs)[0].place.batches):
            yield halo_of_other_batches(program, made, mine)
        came = f"the exchange{line_of(made)} brought {numbered(kind.noun, value.place.named[role].pieces)}"
        yield because("lent_forward", came=came, plural=kind.plural, noun=kind.noun)
    if not lacking or not any(isinstance(one, Swept | NeighborhoodAttention) for one in kinds):
        return
    if isinstance(value, ActivationGrad):
        for other in program.values_of(made.outputs):
            part = other.place.named.get(role)
            if other is not value and part is not None and {*lacking} <= {*part.pieces}:
                it = f"that of activation {other.layer + 1} has {numbered(kind.noun, lacking)}"
                yield because("of_two_gradients", made=named(made), it=it, layer=value.layer + 1)
        if not _needs_halo(program, layer := value.layer + 1, role, here):
            yield f"layer {layer} needs no halo here, so there is none to give back: leave it out"
    stencil, inp = stencil_of(program, made, role), program.values[made.inputs[0]] if made.inputs else None
    if made.op not in ("forward", *BY_INPUT) or stencil is None or inp is None:
        if here and not any(min(here) < row < max(here) for row in lacking):
            yield from _of_others(program, value, role, lacking)
        return
    had = numbered(kind.noun, inp.place.named[role].pieces)
    if made.op != "forward":
        yield from lacked_halo(inp, role)
        yield because("given_no_halo", made=named(made), plural=kind.plural, had=had)
    needs = {*range(stencil.rows)}.intersection(stencil.needs(low))
    needed = f"for {kind.noun} {low} it needs {numbered(kind.noun, needs)}"
    why = f"forward{line_of(made)} was given {had}, and {needed}"
    joins = [maker(one) for _, one in alike(program, inp) if needs <= {*one.place.named[role].pieces}]
    if (join := next((one for one in joins if one is not None and one.op == "combine"), None)) is not None:
        yield f"{why}.\nThese are put together{line_of(join)}: {kind.noun} {low} can be computed after that"
    yield f"{why}:\nput the {kind.plural} of the neighbours that it lacks, the halo, together with its own first"


def _of_others(program: Running, value: Value, role: str, lacking: list[int]) -> Told:
    """Rows that belong to other ranks: none of them lies between the rows of a value."""
    kind = DIMS[role]
    if isinstance(value, ActivationGrad):
        yield because("gradient_has_no_halo", plural=kind.plural)
    are = f"{numbered(kind.noun, lacking)} {'is' if len(lacking) == 1 else 'are'}"
    for event in reversed(program.events):
        lent = program.values[event.inputs[0]] if event.op == "halo" and event.inputs else None
        if lent is not None and (type(lent), lent.layer) == (type(value), value.layer):
            yield because("on_a_neighbour", are=are, line=line_of(event))
    why, took = f"{are} on another rank. ", maker(value)
    if took is not None and took.op in ("cut", "get_activation"):
        mine = numbered(kind.noun, value.place.named[role].pieces)
        why = f"this rank took {mine}{line_of(took)}, without {numbered(kind.noun, lacking)}: is that cut right?\n"
    why += f"Forward, a rank lends the {kind.plural} at its own edge, which its neighbours lack"
    yield f"{why};\nwhat it lacks itself, the halo, comes by the exchange"


def halo_of_other_batches(program: Running, lent: Event, batches: frozenset[int]) -> str:
    """Say why a halo came from ranks with other batches: other ranks have these batches, or no other rank has."""
    programs = [model.program for model in program.world.models.values()]
    places = {p.rank: {one.place for one in p.values if isinstance(one, Activation)} for p in programs}
    others = (p for p in programs if not places[p.rank] <= places[program.rank])  # with other rows
    same = [p.rank for p in others if any(feeds(event) and event.batches == batches for event in p.events)]
    exchange = f"{titled(lent)} was among {these('rank', lent.group)}"
    if same:
        return f"{exchange}:\nthis rank's halo comes from {these('rank', same)}, with the same batches"
    which = ', by model.coord["data"]' if "data" in getattr(program.world.mesh, "axes", ()) else ""
    return f"{exchange}, and each took batches of its own:\nranks that exchange rows take the same batches{which}"
