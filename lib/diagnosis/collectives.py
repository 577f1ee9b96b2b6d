"""Collectives whose members do not fit together: another order, another group, or values that overlap."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lib.analysis.feeding import feeds, rows_of
from lib.cluster.mesh import Mesh
from lib.diagnosis.provenance import batches_of, calls, had_by_all, home, in_turn, layers_of, line_of, maker, same_loop
from lib.diagnosis.running import Advice, Running, line
from lib.errors.source_lines import student_frame
from lib.errors.wording import these
from lib.trace.event import Event, Program, place_of
from lib.values.collectives import COLLECTIVES
from lib.values.operations import BY_INPUT, BY_WEIGHT, MESSAGES, OPERATIONS, READS
from lib.values.values import Activation, ActivationGrad, Value, Weight

__all__ = [
    "cut_otherwise",
    "gather_call",
    "meeting",
    "not_reached",
    "other_half",
    "pipelined",
    "replicas",
    "same_shard",
    "shard_call",
    "stage_axis",
    "sum_axis",
    "twice",
]

ALONG_LAYERS = frozenset({"stage", "pipeline", "pp"})
"""Axes of a mesh along which ranks have different layers, by their usual names."""


def stage_axis(mesh: Mesh | None) -> str | None:
    """The axis of a mesh along which ranks have different layers; None where there is none."""
    return None if mesh is None else next((axis for axis in mesh.axes if axis in ALONG_LAYERS), None)


def shard_call(program: Running | None, total: int | None = None, group: tuple[int, ...] = ()) -> str:
    """Return the call that loads a rank's own shard: one of as many as the group, or the axis of `total`, has
    ranks."""
    mesh = None if program is None else program.world.mesh
    if program is None or mesh is None:
        return f"model.load_weights(layer, model.rank, {len(group) or 'model.RANKS'})"
    axes = [axis for axis in mesh.axes if group and mesh.group(program.rank, axis) == group]
    axes = axes or sorted(mesh.axes, key=lambda axis: (mesh.axes[axis] != total, axis in ALONG_LAYERS))
    axes = [axis for axis in axes if axis not in ALONG_LAYERS] or axes
    return f'model.load_weights(layer, model.coord["{axes[0]}"], {mesh.axes[axes[0]]})'


def sum_axis(program: Running) -> str | None:
    """The axis along which ranks have the same layers, where a mesh has another one along which they do not."""
    mesh = program.world.mesh
    axes = [] if mesh is None else [axis for axis in mesh.axes if axis not in ALONG_LAYERS and mesh.axes[axis] > 1]
    return axes[0] if mesh is not None and len(axes) == 1 and len(mesh.axes) > 1 else None


def gather_call(program: Running) -> str:
    """The call that puts the shards of a weight together: along an axis, where a mesh has another for the layers."""
    axis = sum_axis(program)
    group = "" if axis is None else f', group="{axis}"'
    return f'weights[layer, "full"] = await model.allgather(weights[layer], layer{group})'


def _loaded(program: Running, rank: int, layer: int) -> frozenset[int] | None:
    """The shards of a layer's weight that a rank loaded first; None where it has none, or has all of them."""
    weight = _first_load(program, rank, layer)
    return None if weight is None or weight.is_complete() else weight.place.shards


def _first_load(program: Running, rank: int, layer: int) -> Value | None:
    """The weight of a layer that a rank loaded first."""
    models = program.world.models
    events = models[rank].program.events if rank in models else ()
    load = next((event for event in events if event.op == "load_weights" and event.layer == layer), None)
    return None if load is None else models[rank].program.values[load.outputs[0]]


def _axis(program: Running, layer: int, *, alike: bool) -> tuple[str, tuple[int, ...]] | None:
    """The axis along which ranks have the same shard of a layer (`alike`), or all of its shards between them."""
    mesh = program.world.mesh
    for axis in () if mesh is None else mesh.axes:
        ranks = mesh.group(program.rank, axis) if mesh is not None else ()
        shards = [_loaded(program, rank, layer) for rank in ranks]
        if len(ranks) > 1 and None not in shards and (len(set(shards)) == (1 if alike else len(ranks))):
            return axis, ranks
    return None


def replicas(program: Running, layer: int) -> tuple[str, tuple[int, ...]] | None:
    """The axes of a mesh along which all ranks have loaded the same part of a weight, as `group=` takes them, and the
    ranks along them."""
    mesh, here = program.world.mesh, _first_load(program, program.rank, layer)
    if mesh is None or here is None:
        return None

    def same(axis: str) -> bool:
        others = (_first_load(program, rank, layer) for rank in mesh.group(program.rank, axis))
        return mesh.axes[axis] > 1 and all(other is not None and other.place == here.place for other in others)

    axes = [axis for axis in mesh.axes if same(axis)]
    if not axes:
        return None
    return json.dumps(axes if len(axes) > 1 else axes[0]), mesh.group(program.rank, *axes)


def _gather_along(program: Running, value: Value, other: Value) -> Advice | None:
    """Two members of a gather that have the same shard, where the mesh has an axis along which all are different."""
    found, there = _axis(program, value.layer, alike=False), home(other)
    if found is None or there is None or _loaded(program, program.rank, value.layer) != value.place.shards:
        return None
    axis, ranks = found
    have = f"ranks {program.rank} and {there.rank} are replicas, they have the same shard:\n"
    have += f"all shards of layer {value.layer} are on {these('rank', ranks)}"
    return line(program, "group", f"{have}, so gather from them alone", f'{have}, so gather with group="{axis}"')


def same_shard(program: Running, layer: int) -> Advice | None:
    """Shards that are no part of one sum, where the mesh has an axis along which ranks have the same shard."""
    found = _axis(program, layer, alike=True)
    if found is None:
        return None
    axis, ranks = found
    have = f"rank {program.rank} has the same shard of layer {layer} as {these('rank', set(ranks) - {program.rank})}"
    return line(program, "group", f"{have}: sum with those alone", f'{have}: sum with group="{axis}"')


def cut_otherwise(program: Running, grad: Value) -> Advice | None:
    """A reduce-scatter over other ranks than those that share a weight: it cut the gradient into other shards."""
    cuts = [e for e in program.events if e.op == "scatterreduce" and e.layer == grad.layer]
    found = _axis(program, grad.layer, alike=False)
    if not cuts or found is None or len(cuts[0].group) == len(found[1]) or grad.is_complete():
        return None
    axis, ranks = found
    idea = (
        f"the reduce-scatter{line_of(cuts[0])} went over {these('rank', cuts[0].group)}, and cut the gradient into "
        f"{len(cuts[0].group)};\nthe weight is cut into {len(ranks)}, and {these('rank', ranks)} have its shards"
    )
    return line(
        program,
        "group",
        f"{idea}: reduce-scatter over those alone",
        f'{idea}: model.scatterreduce(grad_weights[layer], layer, group="{axis}")',
    )


def other_half(program: Running, summed: Event, layer: int) -> Advice | None:
    """A sum over one axis of a mesh, where other ranks have the same shard of the sum over other batches."""
    found = _axis(program, layer, alike=True)
    if found is None or set(found[1]) <= set(summed.group):
        return None
    axis, ranks = found
    title = COLLECTIVES[summed.op].title
    others = these("rank", set(ranks) - {program.rank})
    idea = (
        f"the {title}{line_of(summed)} has summed over {these('rank', summed.group)} only:\n"
        f"{others} {'has' if len(ranks) == 2 else 'have'} the same shard, summed over other batches"
    )
    call = f'grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, group="{axis}")'
    return line(program, "allreduce", idea, f"{idea}. Sum these, too:\n{call}")


def _pipeline(program: Running) -> list[Program]:
    """The programs of the ranks that pass each other messages: all of them, or those along the stages of a mesh."""
    mesh, models = program.world.mesh, program.world.models
    axis = stage_axis(mesh)
    ranks = sorted(models) if mesh is None or axis is None else mesh.group(program.rank, axis)
    return [models[rank].program for rank in ranks if rank in models]


def _takes(program: Running) -> list[tuple[int, Event]]:
    """The reads of data for this rank, each with who made it: its own, else those of the others in its pipeline."""
    found = [(p.rank, event) for p in _pipeline(program) for event in p.events if feeds(event)]
    return [item for item in found if item[0] == program.rank] or found


def pipelined(program: Running, grad: Any) -> str | None:
    """Why a gradient lacks batches where ranks pass activations on, and nothing is summed over ranks."""
    programs = _pipeline(program)
    ops = {event.op for p in programs for event in p.events}
    if len(programs) < 2 or ops & COLLECTIVES.keys() or not ops & MESSAGES or sum_axis(program) is not None:
        return None
    takes = _takes(program)
    taken = frozenset[int]().union(*(event.batches for _, event in takes))
    done = batches_of(program, ("forward",), grad.layer)
    back = [(program.rank, e) for e in program.events if e.op in BY_WEIGHT and e.layer == grad.layer]
    went_back = batches_of(program, BY_WEIGHT, grad.layer)
    left = done - went_back
    if left and not _looping(takes + back) and grad.batches == went_back:
        went = f"{these('batch', left)} went forward on this rank, but not backward"
        return f"{went}: does the loop over the batches end too early?"
    if done - grad.batches or _looping(takes):
        return "update once, after the last batch; add the gradients of the batches up before"
    if not takes:
        return None
    rank, event = takes[0]
    if len(taken) < grad.total_batches:
        return f"rank {rank} took only {these('batch', taken)}{line_of(event)}: take all batches"
    return (
        f"rank {rank} took {these('batch', taken)}{line_of(event)}, but on rank {program.rank} only "
        f"{these('batch', grad.batches)} came this far:\nreceive all of them, and add their gradients up"
    )


def not_taken(program: Running) -> str | None:
    """Batches that nobody took, where no loop is on its way to them."""
    takes = _takes(program)
    taken = frozenset[int]().union(*(event.batches for _, event in takes))
    if not takes or len(taken) == program.world.models[program.rank].BATCHES or _looping(takes):
        return None
    return f"only {these('batch', taken)} {'was' if len(taken) == 1 else 'were'} taken{line_of(takes[0][1])}: take all"


def _looping(takes: list[tuple[int, Event]]) -> bool:
    """Tell whether the line that failed stands in the loop in which batches are taken."""
    frame = student_frame()
    if frame is None:
        return False
    found = calls(frame.f_code)
    places = {place.line for _, event in takes if (place := place_of(event)) is not None}
    return any(same_loop(found, frame.f_lineno, line) for line in places)


def not_reached(program: Running, layer: int, ops: Sequence[str] = ("allreduce", "scatterreduce")) -> str | None:
    """A sum over ranks, or a gather, that stands in the student's function, but that this rank did not come to."""
    frame = student_frame()
    if frame is None or any(event.op in ops and event.layer == layer for event in program.events):
        return None
    models = program.world.models
    for call in calls(frame.f_code):
        if call.name not in ops:
            continue
        others = [
            rank
            for rank, model in models.items()
            for event in model.program.events
            if event.op == call.name and event.layer == layer and program.rank in event.group
        ]
        title = COLLECTIVES[call.name].title
        if call.line > frame.f_lineno:
            after = "this update: sum first, then update" if "allgather" not in ops else "this line: gather first"
            return f"the {title} in line {call.line} comes only after {after}"
        if others or (call.optional and "allgather" not in ops):
            who = f", which {these('rank', set(others))} called" if others else ""
            return (
                f"rank {program.rank} did not reach the {title} in line {call.line}{who}:\n"
                "every rank of a group must call it; is it inside an `if`?"
            )
    return None


def twice(field: str, left: Value, right: Value) -> Advice | None:
    """Two values that share batches or shards, to be put together."""
    makers, mine = [maker(left), maker(right)], home(left)
    if mine is None or None in makers:
        return None
    mesh = mine.world.mesh
    if field == "shards" and not left.is_complete():
        own = f"each rank loads a shard of its own: {shard_call(mine, left.place.total)}"
        return _gather_along(mine, left, right) or own
    if field == "shards" and isinstance(left, Weight) and makers[0] is not None and makers[0].op == "allgather":
        return (
            f"this weight was gathered{line_of(makers[0])} already, and has taken the place of this rank's shard.\n"
            'Keep the shard, and gather into a key of its own, such as weights[layer, "full"]'
        )
    if field == "batches" and home(right) is not mine:
        made = makers[0] is not None and not (makers[0].op in OPERATIONS and OPERATIONS[makers[0].op].loads)
        if made and left.place is right.place and isinstance(left, Activation | ActivationGrad):
            if left.is_complete():
                return "each of these ranks has all of it already, so there is nothing to gather"
            return "these ranks have the same part of it: cut out one of its own on each, such as shard model.rank"
        both, there, summed = _both_took(left, right), home(right), makers[0]
        among = summed.group if summed is not None and summed.op in COLLECTIVES else ()
        if summed is not None and there is not None and there.rank in among and len(among) < mine.world.ranks:
            return (
                f"{these('rank', sorted([mine.rank, there.rank]))} have the same sum already, that of the "
                f"{COLLECTIVES[summed.op].title}{line_of(summed)}:\n"
                "sum this with ranks that have another one, or the gradients once over all"
            )
        if not both and all(event is not None and event.op in COLLECTIVES for event in makers):
            return f"both have been summed{line_of(makers[0])} already: sum a gradient over the ranks once"
        if left.place is right.place and (had := had_by_all(left)) is not None:
            return had
        if (shared := _same_examples(mine, left.place.batches & right.place.batches)) is not None:
            return shared
        own, ranks = "model.rank", "model.RANKS"
        if mesh is not None and "data" in mesh.axes:
            own, ranks = 'model.coord["data"]', str(mesh.axes["data"])
        count = mine.world.ranks if mesh is None or "data" not in mesh.axes else mesh.axes["data"]
        several = f"range({own}, model.BATCHES, {ranks})"
        batches = several if left.place.total_batches > count else f"[{own}]"
        if len(left.place.batches) == 1 and batches == several:
            return f"each rank works on batches of its own, one after the other: for b in {several}"
        who = f"{both}:\n" if both and makers[0] is not None and makers[0].op in COLLECTIVES else ""
        return f"{who}each rank works on batches of its own: {_data_call(mine)}({batches})"
    if field != "batches":
        return None
    shared = left.place.batches & right.place.batches
    return _taken_again(mine, shared) or _one_key(mine, right) or _half_again(mine, right.layer, shared)


def _half_again(program: Running, layer: int, batches: frozenset[int]) -> str | None:
    """A weight half that was done twice, or after the whole backward."""
    done = [e for e in program.events if e.op in BY_WEIGHT and e.layer == layer and e.batches & batches]
    if len(done) < 2 or all(event.op in BY_INPUT for event in done):
        return None
    which = these("batch", done[1].batches & batches)
    again = (
        f"{done[0].op}{line_of(done[0])} gave this gradient of {which}, and {done[1].op}{line_of(done[1])} once more"
    )
    return f"{again}:\nbackward is both halves in one, and each half is done once for a batch"


def _both_took(left: Value, right: Value) -> str:
    """The batches that the ranks of two values have both taken from the data, as a sentence; "" for none."""
    programs = [program for value in (left, right) if (program := home(value)) is not None]
    first, *others = ({b for e in p.events if feeds(e) for b in e.batches} for p in programs)
    shared = first.intersection(*others)
    return f"{these('rank', [p.rank for p in programs])} both took {these('batch', shared)}" if shared else ""


def _data_call(program: Running) -> str:
    """Return the call with which a rank takes its data."""
    return "await model.read" if _reads(program) else "model.get_activation"


def _reads(program: Running) -> bool:
    return any(event.op in READS for event in program.events)


def _same_examples(program: Running, batches: frozenset[int]) -> str | None:
    """Rows of a mesh that hold the same examples, where a run says what a row is and who reads for whom."""
    world = program.world
    if world.mesh is None or not _reads(program) or (run := world.so_far("")) is None:
        return None
    rows = rows_of(run)
    shared = rows.shared(batches)
    if shared is None:
        return None
    lost = rows.unread(frozenset(range(run.batches)))
    return f"{shared}:\neach row of data has examples of its own" + (
        f", and nobody has read {these('batch', lost)}" if lost else ""
    )


def never_read(program: Running, there: frozenset[int]) -> str | None:
    """Examples that a gradient lacks because nobody has read them; nothing where ranks still have to read."""
    if not _reads(program) or (run := program.world.so_far("")) is None:
        return None
    rows = rows_of(run)
    lost = rows.unread(frozenset(range(run.batches)))
    if not lost or len(there) + len(lost) < run.batches:
        return None
    return f"nobody has read {these('batch', lost)}: the rows of data together hold every example once.\n{rows.words()}"


def _one_key(program: Running, grad: Value) -> str | None:
    """A gradient of a batch that was there already, since all batches had one key for their activations."""
    made = maker(grad)
    if made is None or made.op not in BY_WEIGHT:
        return None
    batches = [value.place.batches for value in in_turn(program, 2, made.inputs[0])]
    if len(set(batches)) < 2:
        return None
    held = [batch for some in batches for batch in sorted(some)]
    return (
        f"one key of activations held batches {', '.join(map(str, held))} one after the other, and only the last was\n"
        "left for backward: use a key with two parts, activations[layer, b]"
    )


def _taken_again(program: Running, batches: frozenset[int]) -> str | None:
    """Batches that were worked on several times, because they were taken or used several times."""
    if any(event.op in COLLECTIVES for p in _pipeline(program) for event in p.events):
        return None
    takes = _takes(program)
    batch = min(batches)
    again = [(rank, event) for rank, event in takes if batch in event.batches]
    if len(again) > 1:
        rank, event = again[-1]
        return (
            f"rank {rank} took {these('batch', event.batches)}{line_of(event)}, {len(again)} times: "
            f"take another batch each time, {_data_call(program)}([b])"
        )
    passed = program.world.unread()
    unread = [source for source, target, _ in passed if target == program.rank]
    if unread:
        what = "1 message" if len(unread) == 1 else f"{len(unread)} messages"
        return (
            f"{what} from rank {unread[0]} to rank {program.rank} {'was' if len(unread) == 1 else 'were'} never "
            f"received, so batch {batch} was used again:\nreceive once for each batch"
        )
    return None


def meeting(first: Any, other: Any) -> Advice | None:
    """Two members of a collective that called different things: in another order, or in the wrong group?"""
    mine, theirs = home(first.value), home(other.value)
    if mine is None or theirs is None:
        return None
    for here, member, there, wanted in ((mine, first, theirs, other), (theirs, other, mine, first)):
        number = _elsewhere(_calls(here, member), member, _calls(there, wanted), wanted)
        if number is not None:
            return (
                f"rank {member.rank} makes the call of rank {wanted.rank} too, but as its collective #{number + 1}:\n"
                "every rank must make the same collective calls in the same order"
            )
    if first.op == other.op and mine.world.mesh is None and _stages(mine, theirs):
        return (
            f"ranks {mine.rank} and {theirs.rank} have different layers, so there is nothing to sum or gather between "
            "them:\neach layer is on one rank, which has all batches of it"
        )
    return _other_group(mine, first, other) if first.op == other.op else None


def _stages(mine: Running, theirs: Running) -> bool:
    """Tell whether two ranks pass messages, and have no layer in common."""
    passed = any(event.op in MESSAGES for event in (*mine.events, *theirs.events))
    return passed and not layers_of(mine) & layers_of(theirs)


def _calls(program: Running, member: Any) -> list[Event]:
    """The collectives of a rank in the group in which it is a member."""
    calls = [event for event in program.events if event.op in COLLECTIVES]
    mine = next((event for event in reversed(calls) if (event.op, event.layer) == (member.op, member.layer)), calls[-1])
    return [event for event in calls if sorted(event.group) == sorted(mine.group)]


def _elsewhere(mine: list[Event], member: Any, theirs: list[Event], wanted: Any) -> int | None:
    """The number of the collective in which a rank makes the call that another one made in this one."""

    def numbers(calls: list[Event], call: Any) -> list[int]:
        return [i for i, event in enumerate(calls) if (event.op, event.layer) == (call.op, call.layer)]

    now = max(numbers(mine, member), default=len(mine))
    later = [i for i in numbers(mine, wanted) if i > now]
    before = numbers(mine[:now], wanted)
    if len(before) > len(numbers(theirs[:now], wanted)):
        return before[-1]
    return later[0] if later else None


def _other_group(program: Running, first: Any, other: Any) -> Advice | None:
    """In a mesh: the axis along which ranks do have the same layer, or what else is wrong."""
    mesh, models = program.world.mesh, program.world.models
    if mesh is None:
        return None
    group = _calls(program, first)[-1].group
    lines = {axis: mesh.group(first.rank, axis) for axis in mesh.axes}
    own = next((axis for axis, ranks in lines.items() if ranks == group), None)
    if own is None or own in ALONG_LAYERS:
        for axis, ranks in lines.items():
            last = [[e for e in models[r].program.events if e.op in COLLECTIVES][-1:] for r in ranks if r in models]
            if axis != own and len(ranks) > 1 and {e.layer for calls in last for e in calls} == {first.layer}:
                have = f"layer {first.layer} is on {these('rank', ranks)}"
                return line(
                    program,
                    "group",
                    f"{have}: this collective is for them alone",
                    f'{have}, which are a group along the axis {axis!r}: write group="{axis}"',
                )
    where = "\n".join(f"rank {m.rank} is at {mesh.coordinates(m.rank)}" for m in (first, other))
    return f"take the layer from model.coord, not from arithmetic with the rank:\n{where}"
