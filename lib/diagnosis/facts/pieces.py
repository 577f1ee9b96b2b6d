"""Facts about values to join, sum, cut or exchange: which do not fit, and what the members of a group brought."""

from __future__ import annotations

from collections.abc import Iterable

from lib.diagnosis import Running, Told, because, of_dim, words_of
from lib.diagnosis.facts.grids import halo_of_other_batches, spare_halo, stencil_of, too_wide
from lib.diagnosis.groups import cut_otherwise, meeting, same_shard, twice
from lib.diagnosis.provenance import home, is_whole, line_of, maker, named, summed_by, through, titled
from lib.errors.exceptions import Fact, Words, fact
from lib.errors.wording import amount, counted, numbered, ranges, these, with_article, written
from lib.values.collectives import COLLECTIVES, Collective
from lib.values.dims import DIMS, NAMES, REST, SPACE, RunSet
from lib.values.operations import BY_INPUT, BY_WEIGHT
from lib.values.placement import ROUTED, Place
from lib.values.rules import Member
from lib.values.values import Activation, ActivationGrad, Value, WeightGrad, definite, describe, subject

__all__ = ["Different", "Disagree", "NoBucket", "NotAdjacent", "NotOneForEach", "NotSized", "OtherBucket", "OtherKind"]
__all__ += ["ToldLayer", "Twice", "Undivided", "Unlawful"]


def tokens(place: Place, role: str, items: Iterable[int]) -> str:
    """Return which tokens at experts some batches, rows or experts stand for, in the place of a routed value: how many,
    and those of the first batch and expert. "" if there are none."""
    parts = {name: part for name, part in zip(place.schema.roles, place.parts, strict=True) if name in ROUTED}
    route = parts["experts"].dim.route if role in parts and "experts" in parts else None
    if route is None:
        return ""
    batches, rows, experts = pieces = [RunSet.of(items if name == role else parts[name].pieces) for name in ROUTED]
    first = next(((one, batch) for batch in batches for one in experts if route.rows_of(one, batch, rows)), None)
    if first is None:
        return ""
    there = numbered("row", route.rows_of(*first, rows))
    return f"{counted(route.count(*pieces), 'token', ',')}, such as {there} of batch {first[1]} at expert {first[0]}"


@fact
def OtherKind(verb: str, first: Value, other: object) -> Words:
    """Two values to be joined or summed (`verb`) are of different kinds."""
    return words_of("OtherKind", "list" * isinstance(other, list), verb=verb, kind=first.kind, other=describe(other))


@fact
def Different(_: object, verb: str, field: str, first: Value, other: Value) -> Told:
    """Two values differ in a field that has to be alike (layer, batches, shards, total, step, or a dim)."""
    mine, theirs, lent = home(first), home(other), maker(other)
    if lent is not None and lent.op == "halo" and field in SPACE and first.place.batches != other.place.batches:
        field = "batches"  # a halo always has other rows
    role = first.place.first.dim.name if field in ("shards", "total") and first.place.first.dim.counted else field
    alike = of_dim("alike", role) if role in DIMS else ""
    case = "partial" * DIMS[field].partial if field in REST else field
    how = _how_alike(verb, field, first, other) or "advised" * bool(alike)
    low, high = sorted(value.layer + isinstance(value, ActivationGrad) for value in (first, other))
    by = f", by {titled(made)}" if (made := maker(first)) and made.op in COLLECTIVES else ""
    parts = {"verb": verb, "words": REST.get(field, field), "first": first, "other": other, "alike": alike, "by": by}
    yield words_of("Different", case, how, low=low, high=high, between=these("layer", range(low, high)), **parts)
    if mine and first.mark and verb == "join" and field in DIMS and DIMS[field].partial:
        yield summed_by(mine, first.mark[1])
    if field == "layer" and lent and lent.op == "halo" and lent.layer is not None:
        yield because("halo_of_another_layer", layer=lent.layer, line=line_of(lent))
    if mine and lent and lent.op == "halo" and field != "layer" and first.place.batches != other.place.batches:
        yield halo_of_other_batches(mine, lent, first.place.batches)
    if field == "layer" or verb == "join":
        yield from _exchanged(field, first, other)
        return
    if mine is None or theirs is None or verb != "sum":
        return
    made, mesh = maker(first), mine.world.mesh
    rows = [] if mesh is None else [mesh.coordinates(program.rank).get("data") for program in (mine, theirs)]
    if field == "batches" and mine is not theirs and isinstance(first, Activation) and len({None, *rows}) == 2:
        yield f'both ranks are at data {rows[0]}, and take the same batches: which, follows from model.coord["data"]'
    if theirs is not mine and made and made.op in BY_INPUT and first is mine.values[made.outputs[1]]:
        gave = mine.values[made.outputs[0]]
        if isinstance(gave, ActivationGrad):
            second, before = (definite(subject(value.kind, value.layer)) for value in (first, gave))
            yield f"{named(made)} gave {before}, and after it this,\n{second}: look at the order of the two"
    if theirs is mine:
        yield from _summed_already(mine, first, other) if field == "total" else _of_a_neighbour(field, first, other)
    elif isinstance(first, WeightGrad) and field == "shards":
        yield cut_otherwise(mine, first) or same_shard(mine, first.layer)


def _how_alike(verb: str, field: str, first: Value, other: Value) -> str:
    """Name the case for advice on getting values that are alike in a field; "" if the field says enough."""
    activations = isinstance(first, Activation | ActivationGrad)
    if field == "layer" and activations:
        return "gradients" if isinstance(first, ActivationGrad) else "activations"
    if verb == "join" and field in REST and isinstance(first, WeightGrad):
        return "parts_of_a_sum"
    if verb == "join":
        return "rows_to_join" * (field == "rows")
    if field == "batches" and activations:
        sums = [value.place.parts[value.place.schema.ndim :] for value in (first, other)]
        return "same_part" if first.place.open and sums[0] == sums[1] else "order_of_batches"
    if field == "rows" and any(first.place.part(role) is not None for role in ("keys", "queries")):
        return "rows_of_attention"
    if field == "rows" and isinstance(first, WeightGrad) and first.place.batches != other.place.batches:
        return "rows_of_batches"
    if field == "features" and all(is_whole(first, role) != is_whole(other, role) for role in ("rows", field)):
        return "rows_or_heads"
    if field in ("features", "out"):
        return field
    whole = all(isinstance(v, WeightGrad) and len(v.batches) == v.total_batches for v in (first, other))
    if field == "shards" and whole and not first.place.first.dim.counted:
        return "own_shards"
    return "sum_and_shard" if field == "total" and first.is_complete() != other.is_complete() else ""


def _exchanged(field: str, value: Value, other: Value) -> Told:
    """Two pieces from one collective: two ranks brought different things to it, or cut theirs differently."""
    event, first = through(value, ("combine",))
    if event is None or event is not maker(other) or event.op not in COLLECTIVES:
        return
    pieces = [(event.group[event.outputs.index(piece.mark[1])], piece) for piece in (first, other) if piece.mark]
    if field == "layer":
        brought = [f"rank {rank} brought {definite(subject(piece.kind, piece.layer))}" for rank, piece in pieces]
        why = f"both came out of one {COLLECTIVES[event.op].title}{line_of(event)}: {' and '.join(brought)}"
        yield f"{why}.\nAll ranks of a group call its collectives in the same order, each time with the same value"
    elif event.op == "alltoall" and field == "keys":
        rank = next(rank for rank, piece in pieces if not is_whole(piece, field))
        yield because("lacks_keys", rank=rank)
    elif event.op == "alltoall" and field in DIMS and first.place.batches == other.place.batches:
        why = f"they came out of one all-to-all{line_of(event)}, from ranks {pieces[0][0]} and {pieces[1][0]}, which "
        why += f"do not agree on the {DIMS[field].plural}\nthat this rank gets"
        yield f"{why}: on every rank, value number i is for member number i"


def _summed_already(program: Running, first: Value, other: Value) -> Told:
    """A whole gradient beside a shard of a sum: a reduce-scatter has summed the whole one already."""
    for value in (first, other):
        number = value.mark[1] if value.is_complete() and value.mark is not None else None
        for event in program.events:
            if event.op == "scatterreduce" and number in event.inputs:
                yield because("scattered_already", batches=these("batch", value.place.batches), scatter=titled(event))


def _of_a_neighbour(field: str, first: Value, other: Value) -> Told:
    """Rows from a halo exchange, or a gradient that the ranks have summed, added to other rows of a rank."""
    for value, beside in ((first, other), (other, first)):
        made, rows = maker(value), value.place.named.get("rows")
        if made is not None and made.op == "allreduce" and isinstance(value, WeightGrad):
            yield because("summed_already", made=titled(made), field=field)
        if field != "rows" or made is None or made.op != "halo" or rows is None:
            continue
        brought = f"the halo exchange{line_of(made)} brought {numbered('row', rows.pieces)}"
        if not (both := set(rows.pieces) & set(beside.place.named["rows"].pieces)):
            yield because("halo_in_backward", brought=brought)
        yield because("cut_out_the_same", brought=brought, rows=numbered("row", both))


@fact
def Twice(_: object, verb: str, field: str, items: frozenset[int], both: tuple[Value, ...]) -> Told:
    """Some batches or shards (`field`) are in two of the values to be joined or summed."""
    kind = next((kind for kind in DIMS.values() if field in (kind.field, kind.role)), None)
    noun, role = ("shard", field) if kind is None else (kind.noun, kind.role)
    them, case, fix, batches, gradients = these(noun, items), "", "", "", False
    if field in REST:
        grid = both[0].place.part(field)
        them = f"{REST[field]} {ranges(items)}" + ("" if grid is None else f" of {grid.grid}")
        case, fix = "of_a_dim", of_dim("once", field) or f"each value must have {REST[field]} that no other value has"
    elif field == "shards" and all(value.is_complete() for value in both):
        case, gradients = "complete", isinstance(both[0], WeightGrad)
    elif verb == "sum":
        case, batches = "of_a_sum", f"{these('batch', items)} {'is' if len(items) == 1 else 'are'}"
    found = tokens(both[0].place, role, items)
    parts = {"verb": verb, "these": them, "tokens": found and f": {found}", "noun": noun, "field": field, "fix": fix}
    whom = "the summands" if verb == "sum" else "them"
    got = "; ".join(map(describe, both))
    yield words_of("Twice", case, "gradients" * gradients, whom=whom, both=got, batches=batches, **parts)
    left, right = both[:2]
    made, gave = maker(right), maker(left)
    if made is not None and made.op == "forward" and stencil_of(home(right), made, field) and not left.place.open:
        kind = DIMS[field]
        yield because("gives_too_much", line=line_of(made), noun=kind.noun, plural=kind.plural)
    program = home(right)
    if made is not None and made.op == "receive" and program is not None and isinstance(right, WeightGrad):
        came = [event for event in program.events if (event.op, event.peer) == ("receive", made.peer)]
        if sum(set(event.batches) == set(right.batches) for event in came) > 1:
            yield because("passed_before", peer=made.peer, batches=these("batch", right.batches))
    if made is None or field not in SPACE or program is not home(left):
        yield twice(field, left, right)
        return
    kind, twice_there = DIMS[field], numbered(DIMS[field].noun, items)
    if made.op == "halo" and gave is not None and gave.op == "forward":
        yield from spare_halo(left, field)
        yield too_wide(gave, twice_there, kind.plural)
    if made.op == "halo" and gave is not None and gave.op in ("cut", "get_activation"):
        took = f"{numbered(kind.noun, left.place.named[field].pieces)}{line_of(gave)}, {twice_there} with them"
        own = "cut out only the rank's own, by its place along the axis of the exchange"
        yield f"this rank took {took}:\n{own}, or exchange no halo"
    if made.op == "halo":
        yield f"the halo exchange{line_of(made)} brought {twice_there} once more: a halo joins the rest once"
    if made.op in BY_WEIGHT and isinstance(right, WeightGrad):
        yield because("gone_back_already", made=named(made), rows=twice_there, plural=kind.plural)


@fact
def Undivided(value: Value | None, what: str, size: int, total: int) -> Words:
    """This number of things (`what`: batches, columns) cannot be cut into `total` equal parts."""
    few = next((number for number in range(2, size + 1) if size % number == 0), None)
    named_dims = {} if value is None else value.place.named
    dims = sorted(set(SPACE) & set(named_dims), key=lambda name: (not named_dims[name].whole, SPACE.index(name)))
    case = ""
    if what == "batches" and size < total and dims:
        case = "few_batches" if size > 1 else "one_batch"
        case = "tokens" if "experts" in named_dims else case
    elif what == "batches" or (what == "experts" and value is not None):
        case = what
    whole = counted(size, "batch" if what == "batches" else what[:-1])
    such, of = "" if few is None else f", such as {few}", "" if value is None else f" of the {value}"
    parts = {"whole": whole, "total": written(total), "size": size, "such": such, "of": of}
    return words_of("Undivided", case, dim=dims[0] if dims else "", **parts)


@fact
def NotAdjacent(value: Value) -> Words:
    """A value to be cut has shards that are not adjacent."""
    return words_of("NotAdjacent", value=value)


@fact
def NotOneForEach(row: Collective, value: object, count: int, members: int, place: int) -> Words:
    """An exchange needs one value for each member, and got something else."""
    wanted, got, case = row.takes(place, members), counted(count, "value") if count else describe(value), ""
    if row.origins is not None:
        case = "neighbours" if wanted else "alone"
    beside = "before and for the one after" if wanted > 1 else "before" if place else "after"
    some, one = "with_values" * (count > 0), "for_one_of_two" * (count == 1 < wanted)
    titles = {"title": row.title, "a_title": with_article(row.title)}
    parts = {"members": members, "place": place, "wanted": counted(wanted, "value"), "beside": beside}
    return words_of("NotOneForEach", case, some, one, got=got, **titles, **parts)


@fact
def NoBucket(row: Collective, value: object) -> Words:
    """A bucket has to be a list of values, and this is not, or is empty."""
    return words_of("NoBucket", "single" * isinstance(value, Value), title=row.title, value=describe(value))


@fact
def OtherBucket(count: int, other: int) -> Words:
    """Two members bring buckets of different lengths."""
    return words_of("OtherBucket", count=count, other=other)


@fact
def ToldLayer(op: str, value: Value, layer: object) -> Words:
    """A collective was given a layer other than the value's."""
    return words_of("ToldLayer", op=op, value=value, told=written(layer) if isinstance(layer, int) else layer)


@fact
def Disagree(_: object, first: Member, other: Member) -> Told:
    """Two members of a group call different collectives, or the same one with different things."""
    row = COLLECTIVES[first.op]
    differ = {"op": first.op != other.op, "layer": first.layer != other.layer, "group": first.group != other.group}
    differ |= {"dim" if row.along else "root": first.said != other.said, "kind": True}
    case = next(name for name, one in differ.items() if one)  # the first difference
    bucket = "bucket" * (case == "layer" and row.bucket)
    parts = {"mine": _call(first, other), "theirs": _call(other, first), "root": (row.root or ("",))[0]}
    yield words_of("Disagree", case, bucket, first=first, other=other, **parts)
    # If only the arguments differ, there is no more to say.
    yield meeting(first, other) if (first.op, first.layer) != (other.op, other.layer) else None


def _call(member: Member, beside: Member) -> str:
    row = COLLECTIVES[member.op]
    what = describe(member.value) if isinstance(member.value, Value) or row.bucket else type(member.value).__name__
    root = f", root={member.said}" if row.root else f', dim="{NAMES[member.said]}"' if member.said else ""
    group = "" if member.group == beside.group else f", group={list(member.group)}"
    what = what if row.bucket or isinstance(member.value, Activation) else with_article(what)
    return f"{member.op}(layer={member.layer}{root}{group}) with {what}"


@fact
def NotSized(value: Value, root: Value) -> Words:
    """A member's value, to be overwritten, differs in size from the root's."""
    return words_of("NotSized", value=value, size=amount(value.elements()), wanted=amount(root.elements()))


@fact
def Unlawful(program: Running | None, row: Collective, left: Member, right: Member, why: Fact | Words) -> Told:
    """The values of two members cannot be combined: `why` is the law's own complaint."""
    pair = why if isinstance(why, Words) else why.words()
    parts = {"mine": describe(left.value), "theirs": describe(right.value), **pair._asdict()}
    yield words_of("Unlawful", row=row, left=left, right=right, **parts)
    yield why.likely_fix(program) if isinstance(why, Fact) else None
