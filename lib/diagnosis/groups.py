"""Groups of ranks: calls that name groups or ranks that do not exist, collectives and sums whose members do not fit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lib.analysis.feeding import feeds, rows_of
from lib.cluster.mesh import Mesh
from lib.diagnosis import Advice, Line, Running, because, line, provenance, words_of
from lib.diagnosis.provenance import batches_of, calls, home, layers_of, line_of, maker, named, through, titled
from lib.errors.exceptions import RuleError
from lib.errors.source_lines import Place, student_frame
from lib.errors.wording import counted, listed, these, written
from lib.trace.event import Event, Program, place_of
from lib.values import facts
from lib.values.collectives import COLLECTIVES
from lib.values.dims import SPACE
from lib.values.operations import BY_INPUT, BY_WEIGHT, MESSAGES, OPERATIONS, READS
from lib.values.values import Activation, ActivationGrad, Value, Weight, WeightGrad, describe

__all__ = ["axis_twice", "no_axis", "no_peer", "not_a_group"]

ALONG_LAYERS = frozenset({"stage", "pipeline", "pp"})
"""Axes of a mesh along which ranks have different layers, by their usual names."""
GIVEN = "lib.schedules.given"
"""The module of the helpers that notebooks give."""


# -- no such group, or no such rank -------------------------------------------------------------------------------


def not_a_group(rank: int, ranks: Sequence[Any], world: int, mesh: Mesh | None) -> RuleError:
    """Return the error for a list that is not a group of ranks, or not a group of this rank's."""
    inside = any(isinstance(item, int | float) and item == rank for item in ranks)
    by_axis = "" if mesh is None else f": by an axis of the mesh, as in group={next(iter(mesh.axes))!r}"
    named = {"ranks": ", ".join(map(written, ranks)), "by_axis": by_axis}
    words = words_of("not_a_group", "inside" * inside, mine=rank, last=world - 1, **named)
    return RuleError(**words._asdict())


def no_axis(axis: str | int, rank: int, mesh: Mesh | None) -> RuleError:
    """Return the error for an axis that the mesh does not have, for any axis without a mesh, or for a number."""
    axes, groups, case = "", "", "number"
    if isinstance(axis, str):
        case = "no_mesh" * (mesh is None)
    if mesh is not None:
        axes = " or ".join(map(repr, mesh.axes))
        groups = "".join(f"\ngroup={known!r} is {list(mesh.group(rank, known))} here" for known in mesh.axes)
    words = words_of("no_axis", case, axes and "in_a_mesh", axis=written(axis), axes=axes, groups=groups)
    return RuleError(**words._asdict())


def axis_twice(axis: str, axes: Sequence[str]) -> RuleError:
    """Return the error for a group that names an axis twice."""
    once = list(dict.fromkeys(axes))
    left = once if len(once) > 1 else repr(once[0])
    return RuleError(**words_of("axis_twice", axis=repr(axis), axes=list(axes), once=left)._asdict())


def no_peer(program: Running, rank: Any, call: str) -> RuleError:
    """Return the error for a message to or from something that is not another rank."""
    mine, whole = program.rank, type(rank) is int
    itself = isinstance(rank, int | float) and rank == mine
    advice: Advice = "name the rank at the other end, such as model.rank - 1 or model.rank + 1"
    if type(rank) is int and not itself:
        advice = _beyond(program, rank, call)
    peer = f"{written(rank)}{', ...' if call == 'pass_to' else ''}"
    got = "this rank itself" if itself else describe(rank)
    parts = {"call": call, "peer": peer, "mine": mine, "last": program.world.ranks - 1, "got": got}
    error = RuleError(**words_of("no_peer", "whole" * whole, **parts)._asdict())
    error.idea, error.fix = advice if isinstance(advice, Line) else (None, advice)
    if not whole:
        error.fact = facts.NotALayer(call, rank, 0)
    return error


def _beyond(program: Running, rank: int, call: str) -> Advice:
    """Advise on a rank before the first or after the last: is it an end of the pipeline, or the wrong direction?"""
    mine, ops, mesh = program.rank, {event.op for event in program.events}, program.world.mesh
    if abs(rank - mine) > 1:
        axis = stage_axis(mesh)
        if mesh is None or axis is None:
            return f"ranks are counted from 0; the last one is model.RANKS - 1, here {program.world.ranks - 1}"
        # A mesh with stages says which ranks are neighbours.
        pipeline = listed(mesh.group(mine, axis))[1:-1]
        return line(program, "group", "by_its_pipeline", rank=mine, pipeline=pipeline, axis=axis)
    before = rank < 0
    # Whether gradients, which go the other way, are next.
    back = bool(ops & BY_INPUT) if call == "pass_to" else "forward" in ops
    other = "model.rank + 1" if before else "model.rank - 1"
    if call == "receive" and before == back:
        what, side = ("gradient", "after") if back else ("input", "before")
        return line(program, "receive", "comes_from_a_stage", what=what, side=side, other=other)
    if call == "pass_to" and before != back:
        what, side = ("gradient", "before") if back else ("output", "after")
        return line(program, "pass_to", "goes_to_a_stage", what=what, side=side, other=other)
    instead = {
        ("receive", True): "it takes its batches with get_activation instead",
        ("receive", False): "its gradient comes from loss instead",
        ("pass_to", True): "the gradient of its input goes nowhere",
        ("pass_to", False): "it calls loss instead",
    }[call, before]
    end, side = ("first", "before") if before else ("last", "after")
    return f"rank {mine} is the {end} stage and has none {side} it: {instead}"


# -- axes of a mesh, and who has which shard -----------------------------------------------------------------------


def stage_axis(mesh: Mesh | None) -> str | None:
    """Return the axis of a mesh along which ranks have different layers; None if there is none."""
    return None if mesh is None else next((axis for axis in mesh.axes if axis in ALONG_LAYERS), None)


def sum_axis(program: Running) -> str | None:
    """Return the axis along which ranks have the same layers, if there is another along which they do not."""
    sizes: Mapping[str, int] = {} if program.world.mesh is None else program.world.mesh.axes
    axes = [axis for axis in sizes if axis not in ALONG_LAYERS and sizes[axis] > 1]
    return axes[0] if len(axes) == 1 and len(sizes) > 1 else None


def shard_call(program: Running | None, total: int | None = None, group: tuple[int, ...] = ()) -> str:
    """Return the call that loads a rank's own shard, one for each rank of the group, or of the axis of `total`."""
    mesh = None if program is None else program.world.mesh
    of_a_grid = mesh is not None and any(axis in (*SPACE, "domain") for axis in mesh.axes)  # all share all weights
    if program is None or mesh is None or len(group) == program.world.ranks or (of_a_grid and not group):
        few = program is not None and mesh is None and 0 < len(group) < program.world.ranks
        return f"model.load_weights(layer, model.rank, {len(group) if few else 'model.RANKS'})"
    axes = [axis for axis in mesh.axes if group and mesh.group(program.rank, axis) == group]
    axes = axes or sorted(mesh.axes, key=lambda axis: (mesh.axes[axis] != total, axis in ALONG_LAYERS))
    axis = next((axis for axis in axes if axis not in ALONG_LAYERS), axes[0])
    return f'model.load_weights(layer, model.coord["{axis}"], len(model.group("{axis}")))'


def gather_call(program: Running) -> str:
    """Return the call that gathers the shards of a weight, along an axis if the mesh has another for layers."""
    axis = sum_axis(program)
    group = "" if axis is None else f', group="{axis}"'
    return f'weights[layer, "full"] = await model.allgather(weights[layer], layer{group})'


def _first_load(program: Running, rank: int, layer: int) -> Value | None:
    """Return the first weight of a layer that a rank loaded."""
    models = program.world.models
    events = models[rank].program.events if rank in models else ()
    load = next((event for event in events if event.op == "load_weights" and event.layer == layer), None)
    return None if load is None else models[rank].program.values[load.outputs[0]]


def _loaded(program: Running, rank: int, layer: int) -> frozenset[int] | None:
    """Return the shards of a layer's weight that a rank loaded first; None if it loaded none or the whole weight."""
    weight = _first_load(program, rank, layer)
    return None if weight is None or weight.is_complete() else weight.place.shards


def _axis(program: Running, layer: int, *, alike: bool) -> tuple[str, tuple[int, ...]] | None:
    """Return the axis on which ranks have the same shard of a layer (`alike`) or all its shards; "" for all ranks."""
    if (mesh := program.world.mesh) is None or (own := _first_load(program, program.rank, layer)) is None:
        return None
    for axis in (*mesh.axes, *([] if alike else [""])):
        ranks = mesh.group(program.rank, axis) if axis else tuple(range(program.world.ranks))
        shards = {_loaded(program, rank, layer) for rank in ranks}
        found = len(shards) == 1 if alike else len(shards) == len(ranks) == own.place.total
        if len(ranks) > 1 and None not in shards and found:
            return axis, ranks
    return None


def replicas(program: Running, layer: int) -> tuple[str, tuple[int, ...]] | None:
    """Return the axes along which ranks have loaded the same part of a weight, as for `group=`, and the ranks."""
    mesh, here = program.world.mesh, _first_load(program, program.rank, layer)
    if mesh is None or here is None:
        return None

    def same(axis: str) -> bool:
        others = (_first_load(program, rank, layer) for rank in mesh.group(program.rank, axis))
        return mesh.axes[axis] > 1 and all(other is not None and other.place == here.place for other in others)

    axes = [axis for axis in mesh.axes if same(axis)]
    return (json.dumps(axes if len(axes) > 1 else axes[0]), mesh.group(program.rank, *axes)) if axes else None


def same_shard(program: Running, layer: int) -> Advice | None:
    """Advise on shards that do not belong in one sum, if the mesh has an axis along which ranks have the same shard."""
    if (found := _axis(program, layer, alike=True)) is None:
        return None
    axis, ranks = found
    others = these("rank", set(ranks) - {program.rank})
    return line(program, "group", "same_shard", rank=program.rank, layer=layer, others=others, axis=axis)


def gathered_from_few(program: Running, weight: Weight, gather: Event) -> Advice | None:
    """Recognise a gather among too few ranks: others have the missing shards."""
    found = _axis(program, weight.layer, alike=False)
    if found is None or not {*gather.group} < {*found[1]}:
        return None
    axis, ranks = found
    few, others = these("rank", gather.group), these("rank", {*ranks} - {*gather.group})
    why = because("gathered_from_few", gather=titled(gather), few=few, others=others, ranks=these("rank", ranks))
    return _among(program, why, axis)


def _among(program: Running, idea: str, axis: str) -> Advice:
    """Return an idea whose line shows the group of a collective: along an axis, or all ranks."""
    return line(program, "group", "among", why=idea, group=f'group="{axis}"' if axis else "without a group")


def cut_otherwise(program: Running, grad: WeightGrad) -> Advice | None:
    """Recognise a gradient cut differently from its weight: by hand, or by a reduce-scatter over other ranks."""
    cut, found = through(grad, ("allreduce",))[0], _axis(program, grad.layer, alike=False)
    if cut is None or found is None or grad.is_complete() or grad.total == len(found[1]):
        return None
    axis, ranks = found
    if cut.op == "shard":
        why, do = f"{named(cut)} cut the gradient into {grad.total}", "cut both alike"
    elif {*cut.group} == {*ranks} and grad.total > len(ranks):
        why, do = f"{titled(cut)} cut what had been cut before", "reduce-scatter over those first"
    elif cut.op == "scatterreduce" and len(cut.group) == grad.total:
        why = f"{titled(cut)} went over {these('rank', cut.group)}, and cut the gradient into {grad.total}"
        do = "reduce-scatter over those alone" if axis else "reduce-scatter over all of them"
    else:
        return None
    idea = f"{why};\nthe weight is cut into {len(ranks)}, and {these('rank', ranks)} have its shards: {do}"
    return _among(program, idea, axis)


def other_half(program: Running, summed: Event, layer: int) -> Advice | None:
    """Recognise a sum over one axis of a mesh, while other ranks have the same shard, summed over other batches."""
    found = _axis(program, layer, alike=True)
    if found is None or set(found[1]) <= set(summed.group):
        return None
    axis, ranks = found
    others = f"{these('rank', set(ranks) - {program.rank})} {'has' if len(ranks) == 2 else 'have'}"
    group = these("rank", summed.group)
    return line(program, "allreduce", "other_half", summed=titled(summed), ranks=group, others=others, axis=axis)


# -- who took which batches ---------------------------------------------------------------------------------------


def _pipeline(program: Running) -> list[Program]:
    """Return the programs of the ranks that pass messages to each other: all, or those along the stages of a mesh."""
    mesh, models = program.world.mesh, program.world.models
    axis = stage_axis(mesh)
    ranks = sorted(models) if mesh is None or axis is None else mesh.group(program.rank, axis)
    return [models[rank].program for rank in ranks if rank in models]


def _takes(program: Running) -> list[tuple[int, Event]]:
    """Return the reads of data for this rank, with the reading ranks: its own, else those of others in its pipeline."""
    found = [(p.rank, event) for p in _pipeline(program) for event in p.events if feeds(event)]
    return [item for item in found if item[0] == program.rank] or found


def _batches(takes: Iterable[tuple[int, Event]]) -> frozenset[int]:
    return frozenset[int]().union(*(event.batches for _, event in takes))


def _taken(program: Running) -> frozenset[int]:
    """Return the batches whose data a rank has taken itself."""
    return _batches((program.rank, event) for event in program.events if feeds(event))


def _looping(takes: list[tuple[int, Event]]) -> bool:
    """Tell whether the failing line is in the loop in which batches are taken."""
    frame, lines = student_frame(), {place.line for _, event in takes if (place := place_of(event)) is not None}
    while frame is not None and lines:
        found = calls(frame.f_code)
        around = [loop for call in found if call.line == frame.f_lineno for loop in call.loops]
        if any(loop in around for call in found if call.line in lines for loop in call.loops):
            return True
        # Taken by a function: is that called in a loop? Not by what runs the rank, though, as in a loop over sizes.
        inside, frame = lines & {line for *_, line in frame.f_code.co_lines()}, frame.f_back
        while frame is not None and str(frame.f_globals.get("__name__")) == GIVEN:
            frame = frame.f_back
        frame = frame if inside and frame is not None and student_frame(frame) is frame else None
        lines = set[int]() if frame is None else {frame.f_lineno}
    return False


def in_the_loop(program: Running) -> bool:
    """Tell whether the failing line is in the loop in which all ranks take the same batches."""
    mine = _taken(program)
    others = [_taken(model.program) for model in program.world.models.values()]
    return _looping(_takes(program)) and all(some <= mine or mine <= some for some in others)


def pipelined(program: Running, grad: Any) -> str | None:
    """Say why a gradient lacks batches if ranks pass activations on and sum nothing over ranks."""
    programs = _pipeline(program)
    ops = {event.op for p in programs for event in p.events}
    if len(programs) < 2 or ops & COLLECTIVES.keys() or not ops & MESSAGES or sum_axis(program) is not None:
        return None
    takes, done = _takes(program), batches_of(program, ("forward",), grad.layer)
    if done - grad.batches or _looping(takes):
        return "update once, after the last batch; add the gradients of the batches up before"
    if not takes:
        return None
    (rank, event), taken = takes[0], _batches(takes)
    if len(taken) < grad.total_batches:
        return f"rank {rank} took only {these('batch', taken)}{line_of(event)}: take all batches"
    why = f"rank {rank} took {these('batch', taken)}{line_of(event)}, but on rank {program.rank} only "
    return f"{why}{these('batch', grad.batches)} came this far:\nreceive all of them, and add their gradients up"


def not_back(program: Running, grad: Any) -> str | None:
    """Name batches that went forward on this rank but not backward, unless a loop has yet to come to them."""
    back = [(program.rank, e) for e in program.events if e.op in BY_WEIGHT and e.layer == grad.layer]
    done, went_back = batches_of(program, ("forward",), grad.layer), _batches(back)
    left = done - went_back or _taken(program) - went_back
    if not left or not went_back <= grad.batches or _looping(_takes(program) + back):
        return None
    did = "went forward on this rank, but not backward"
    if not left <= done:
        did = f"came to this rank, but did not go through layer {grad.layer}"
    return f"{these('batch', left)} {did}: does the loop over the batches take all of them?"


def not_taken(program: Running) -> str | None:
    """Name batches that no rank took, unless a loop has yet to come to them."""
    taken = _batches(takes := _takes(program))
    if not takes or len(taken) == program.world.models[program.rank].BATCHES or _looping(takes):
        return None
    was = f"only {these('batch', taken)} {'was' if len(taken) == 1 else 'were'} taken"
    source, frame, there = takes[0][1].source, student_frame(), line_of(takes[0][1])
    # All cells of a notebook have one name for readers, but a file each for Python.
    if frame is not None and source is not None and not isinstance(source, Place):
        there = there if source[0].co_filename == frame.f_code.co_filename else " in an earlier cell"
    return f"{was}{there}: take all"


def not_reached(program: Running, layer: int, ops: Sequence[str] = ("allreduce", "scatterreduce")) -> str | None:
    """Recognise a sum over ranks, or a gather, in the student's function that this rank did not reach."""
    frame = student_frame()
    mine = {(event.layer, line_of(event)) for event in program.events if event.op in ops}
    again = any(number == layer for number, _ in mine)  # one of two sums may be missing
    if frame is None or (again and "allgather" in ops):
        return None
    every = [(model.program, event) for model in program.world.models.values() for event in model.program.events]
    for call in calls(frame.f_code):
        if call.name not in ops:
            continue
        title, place = COLLECTIVES[call.name].title, f" in line {call.line}"
        there = [(p, event) for p, event in every if event.op == call.name and line_of(event) == place]
        both = {p.rank for p, _ in there} & {p.rank for p, e in every if (e.layer, line_of(e)) in mine}
        if again and (program.rank in both or not call.optional or not both):
            continue
        kinds = {type(value) for p, e in there for value in p.values_of(e.inputs)}
        if "allgather" not in ops and kinds - {WeightGrad}:
            continue  # it sums activations, perhaps on every rank: it is not the missing one
        if call.line > frame.f_lineno:
            return f"the {title}{place} comes only after this line: {'gather' if 'allgather' in ops else 'sum'} first"
        same = {p.rank for p, e in every if (e.op, e.layer) == (call.name, layer) and program.rank in e.group}
        others = both if again else same
        if others or (call.optional and "allgather" not in ops):
            who = f", which {these('rank', others)} called" if others else ""
            return because("not_reached", rank=program.rank, title=title, place=place, who=who)
    return None


def reads(program: Running) -> bool:
    """Tell whether some rank has read its data; then all ranks do."""
    return any(event.op in READS for model in program.world.models.values() for event in model.program.events)


def _data_call(program: Running) -> str:
    """Return the call with which a rank takes its data."""
    return "await model.read" if reads(program) else "model.get_activation"


def never_read(program: Running, there: frozenset[int]) -> str | None:
    """Name examples that a gradient lacks because no process has read them; None if ranks have yet to read."""
    if not reads(program) or (run := program.world.so_far("")) is None:
        return None
    rows = rows_of(run)
    lost = rows.unread(frozenset(range(run.batches)))
    if not lost or len(there) + len(lost) < run.batches:
        return None
    return f"nobody has read {these('batch', lost)}: the rows of data together hold every example once.\n{rows.words()}"


# -- the same batches or shards twice -----------------------------------------------------------------------------


def twice(field: str, left: Value, right: Value) -> Advice | None:
    """Advise on two values to be joined or summed that share batches or shards."""
    mine, made, other = home(left), maker(left), maker(right)
    if mine is None or made is None or other is None:
        return None
    event, first = provenance.through(left, {"combine"})
    if other.op == "alltoall" and event is not None and home(right) is mine and field in ("batches", "experts"):
        return _in_an_exchange(mine, event, first, right, other)
    if field == "shards" and not left.is_complete():
        own = f"each rank loads a shard of its own: {shard_call(mine, left.place.total, mine.events[-1].group)}"
        return _gather_along(mine, left, right) or own
    if field == "shards" and isinstance(left, Weight) and made.op == "allgather":
        why = f"this weight was gathered{line_of(made)} already, and has taken the place of this rank's shard.\n"
        if cut := provenance.piece(mine, "shard"):
            return f"{why}Cut it again first, {cut}; or gather it only once"
        return f'{why}Keep the shard, and gather into a key of its own, such as weights[layer, "full"]'
    if (there := home(right)) is not None and there is not mine and (summed := _sum_again(mine, there, left)):
        return summed
    if field != "batches":
        return None
    if there is not None and there is not mine:
        return _on_two_ranks(mine, there, left, right, made)
    shared = left.place.batches & right.place.batches
    return _taken_again(mine, shared) or _one_key(mine, other) or _half_again(mine, right.layer, shared)


def _gather_along(program: Running, value: Value, other: Value) -> Advice | None:
    """Advise on two members of a gather with the same shard, if the mesh has an axis along which all shards differ."""
    found, there = _axis(program, value.layer, alike=False), home(other)
    if found is None or there is None or _loaded(program, program.rank, value.layer) != value.place.shards:
        return None
    axis, ranks = found
    have = f"ranks {program.rank} and {there.rank} are replicas, they have the same shard:\nall shards of layer "
    return _among(program, f"{have}{value.layer} are on {these('rank', ranks)}: gather from those", axis)


def _in_an_exchange(program: Running, event: Event, first: Value, right: Value, exchange: Event) -> str | None:
    """Explain a piece that a rank both kept and received, or two pieces from ranks that took the same batches."""
    if first.mark is not None and first.mark[1] in exchange.inputs:
        return f"{titled(exchange)} brings each rank its own piece, too: put together what it gives, and nothing else"
    if event is not exchange or first.mark is None or right.mark is None:
        return None
    ranks = sorted(exchange.group[exchange.outputs.index(number)] for _, number in (first.mark, right.mark))
    took = _taken(program.world.models[ranks[0]].program) & _taken(program.world.models[ranks[1]].program)
    why = f"they came out of {titled(exchange)}, from {these('rank', ranks)}, which both took {these('batch', took)}:\n"
    if any(role in SPACE[1:] for role, *_ in right.place.rest):  # a grid
        return f"{why}cut out of them what is this rank's own before that" if took else None
    return why + _batches_of_its_own(program, right.place.total_batches, len(took) == 1)[0] if took else None


def _sum_again(mine: Running, there: Running, gradient: Value) -> str | None:
    """Explain two ranks that bring the same sum to another sum: an earlier sum over ranks gave it to both."""
    made = provenance.through(gradient, {"add", "shard"})[0]
    if made is None or there.rank not in made.group or not isinstance(gradient, WeightGrad):
        return None
    if len(made.group) == mine.world.ranks:
        return f"both have been summed over all ranks{line_of(made)} already: sum a gradient over the ranks once"
    have = f"{these('rank', sorted([mine.rank, there.rank]))} have the same sum already, that of {titled(made)}"
    return f"{have}:\nsum this with ranks that have another one, or the gradients once over all"


def _on_two_ranks(mine: Running, there: Running, left: Value, right: Value, made: Event) -> str | None:
    """Say why two ranks have worked on the same batches: the same sum, the same part, or the same data."""
    loads = made.op in OPERATIONS and OPERATIONS[made.op].loads
    if not loads and left.place is right.place and isinstance(left, Activation | ActivationGrad):
        if left.is_complete():
            return "each of these ranks has all of it already, so there is nothing to gather"
        return "these ranks have the same part of it: cut out one of its own on each, such as shard model.rank"
    took, summed = _taken(mine) & _taken(there), made.op in COLLECTIVES
    if left.place is right.place and (had := provenance.had_by_all(left, there.rank)) is not None:
        return had
    if (shared := _same_examples(mine, left.place.batches & right.place.batches)) is not None:
        return shared
    ranks = these("rank", [mine.rank, there.rank])
    gathers = [event for event in mine.events if event.op == "allgather" and there.rank in event.group]
    gathers = [event for event in gathers if type(mine.values[event.inputs[0]]) is Activation]
    if gathers and not took:
        return f"{ranks} have the same batches by {titled(gathers[0])}:\ngather among ranks that share a layer alone"
    who = f"{ranks} both took {these('batch', took)}:\n"
    if loads and took and isinstance(left, Activation):
        return f"{who}each member of a gather takes batches of its own, and gets the rest from the others"
    apart, looping = _batches_of_its_own(mine, left.place.total_batches, len(left.place.batches) == 1)
    is_new = took and not looping and (summed or _named_batches(mine, left.place.total_batches))
    return who + apart if is_new else apart


def _batches_of_its_own(program: Running, total: int, singly: bool) -> tuple[str, bool]:
    """Say how each rank takes batches of its own, and return whether in a loop over them."""
    mesh, own, ranks, count = program.world.mesh, "model.rank", "model.RANKS", program.world.ranks
    who = "each rank"
    if mesh is not None and "data" in mesh.axes:
        who, count = "each place along 'data'", mesh.axes["data"]
        own, ranks = 'model.coord["data"]', 'len(model.group("data"))'
    several = f"range({own}, model.BATCHES, {ranks})"
    if singly and total > count:
        named = _named_batches(program, total)
        if named is None and mesh is not None and "expert" in mesh.axes:
            return "each rank works on batches of its own: those alike along 'data' differ along 'expert'", True
        return f"{who} works on batches of its own, one after the other: for b in {named or several}", True
    batches = _named_batches(program, total) or (several if total > count else f"[{own}]")
    apart = f"{who} works on batches of its own: {_data_call(program)}({batches})"
    if mesh is not None and "data" in mesh.axes and len(_taken(program)) == total:
        apart += f",\nor cut them out: value.shard({own}, {ranks})"
    return apart, False


def _named_batches(program: Running, total: int) -> str | None:
    """Return the name of the only range of some of the batches in the student's function that it has not taken."""
    frame, found, taken = student_frame(), dict[str, object](), _taken(program)
    while frame is not None:
        found |= frame.f_locals
        frame = None if frame.f_back is None else student_frame(frame.f_back)
    some = ((name, value) for name, value in found.items() if type(value) is range and "batch" in name)
    names = [name for name, value in some if 0 < len(value) < total and frozenset(value) != taken]
    return names[0] if len(names) == 1 else None


def _same_examples(program: Running, batches: frozenset[int]) -> str | None:
    """Name rows of a mesh that hold the same examples, if the run reads data and so says what a row is."""
    if program.world.mesh is None or not reads(program) or (run := program.world.so_far("")) is None:
        return None
    rows = rows_of(run)
    if (shared := rows.shared(batches)) is None:
        return None
    lost = rows.unread(frozenset(range(run.batches)))
    unread = f", and nobody has read {these('batch', lost)}" if lost else ""
    return f"{shared}:\neach row of data has examples of its own{unread}"


def _taken_again(program: Running, batches: frozenset[int]) -> str | None:
    """Explain batches worked on several times, because they were taken or used several times."""
    alone = not any(event.op in COLLECTIVES for p in _pipeline(program) for event in p.events)
    for batch in sorted(batches):
        again = [(rank, event) for rank, event in _takes(program) if batch in event.batches]
        if len(again) > 1 and (alone or again[-1][0] == program.rank):
            rank, event = again[-1]
            took = f"rank {rank} took {these('batch', event.batches)}{line_of(event)}, {len(again)} times"
            return f"{took}: take another batch each time, {_data_call(program)}([b])"
    unread = [source for source, target, _ in program.world.messages.unread() if target == program.rank]
    if not unread or not alone:
        return None
    was = f"{program.rank} {'was' if len(unread) == 1 else 'were'}"
    messages = f"{counted(len(unread), 'message')} from rank {unread[0]} to rank {was}"
    return because("used_again", messages=messages, batch=min(batches))


def _one_key(program: Running, made: Event) -> str | None:
    """Explain a second gradient of one batch: all batches had the same key for their activations."""
    batches = provenance.in_turn(program, 2, made.inputs[0]) if made.op in BY_WEIGHT else []
    if len(set(batches)) < 2:
        return None
    held = ", ".join(str(batch) for some in batches for batch in sorted(some))
    return because("one_key", held=held)


def _half_again(program: Running, layer: int, batches: frozenset[int]) -> str | None:
    """Explain a weight half that was done twice, or after the whole backward."""
    done = [e for e in program.events if e.op in BY_WEIGHT and e.layer == layer and e.batches & batches]
    if len(done) < 2 or all(event.op in BY_INPUT for event in done):
        return None
    which = these("batch", done[1].batches & batches)
    return because("half_again", first=named(done[0]), which=which, second=named(done[1]))


# -- members that call different things ---------------------------------------------------------------------------


def meeting(first: Any, other: Any) -> Advice | None:
    """Advise on two members of a collective that called different things: in another order, or in the wrong group."""
    mine, theirs = home(first.value), home(other.value)
    if mine is None or theirs is None:
        return None
    for here, member, there, wanted in ((mine, first, theirs, other), (theirs, other, mine, first)):
        number = _elsewhere(_calls(here, member), member, _calls(there, wanted), wanted)
        if number is not None:
            return because("another_order", rank=member.rank, other=wanted.rank, number=number + 1)
    if first.op != other.op:
        return None
    if mine.world.mesh is not None:
        return _other_group(mine, mine.world.mesh, first, other)
    passed = any(event.op in MESSAGES for event in (*mine.events, *theirs.events))
    if not passed or layers_of(mine) & layers_of(theirs):
        return None
    return because("different_layers", rank=mine.rank, other=theirs.rank)


def _calls(program: Running, member: Any) -> list[Event]:
    """Return a rank's collectives in the group of its call."""
    calls = [event for event in program.events if event.op in COLLECTIVES]
    mine = next((event for event in reversed(calls) if (event.op, event.layer) == (member.op, member.layer)), calls[-1])
    return [event for event in calls if sorted(event.group) == sorted(mine.group)]


def _elsewhere(mine: list[Event], member: Any, theirs: list[Event], wanted: Any) -> int | None:
    """Return the number of the collective in which a rank makes the call that another rank made in this one."""

    def numbers(calls: list[Event], call: Any) -> list[int]:
        return [i for i, event in enumerate(calls) if (event.op, event.layer) == (call.op, call.layer)]

    now = max(numbers(mine, member), default=len(mine))
    before = numbers(mine[:now], wanted)
    if len(before) > len(numbers(theirs[:now], wanted)):
        return before[-1]
    return next((i for i in numbers(mine, wanted) if i > now), None)


def _other_group(program: Running, mesh: Mesh, first: Any, other: Any) -> Advice:
    """Name the axis of a mesh along which ranks do have the same layer, or say what else is wrong."""
    models, group = program.world.models, _calls(program, first)[-1].group
    lines = {axis: mesh.group(first.rank, axis) for axis in mesh.axes}
    own = next((axis for axis, ranks in lines.items() if ranks == group), None)
    # What each brings: the layer, and which shards of it to a sum.
    brings: dict[int, tuple[object, object]] = {}
    for rank, model in models.items():
        last = next((event for event in reversed(model.program.events) if event.op in COLLECTIVES), None)
        if last is not None:
            values = model.program.values_of(last.inputs[:1]) if last.op == "allreduce" else []
            brings[rank] = last.layer, [value.place.first for value in values]
    mine = brings.get(first.rank)
    same = [a for a, ranks in lines.items() if len(ranks) > 1 and all(brings.get(r, mine) == mine for r in ranks)]
    if same and mine is not None and own not in same and (own is None or own in ALONG_LAYERS):
        have = f"layer {first.layer} is on {these('rank', mesh.group(first.rank, *same))}"
        along, group = f"the axis {same[0]!r}", f'"{same[0]}"'
        if len(same) > 1:
            along, group = f"the axes {' and '.join(map(repr, same))}", str(same).replace("'", '"')
        return line(program, "group", "for_them_alone", have=have, along=along, group=group)
    where = "\n".join(f"rank {m.rank} is at {mesh.coordinates(m.rank)}" for m in (first, other))
    return f"take the layer from model.coord, not from arithmetic with the rank:\n{where}"
