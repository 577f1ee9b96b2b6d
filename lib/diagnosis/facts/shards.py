"""Facts about weights: shards that are missing, or do not fit a gradient, a state or an activation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lib.diagnosis import Running, Told, because, groups, line, words_of
from lib.diagnosis.groups import gather_call, shard_call
from lib.diagnosis.provenance import alike, is_held, is_whole, line_of, made_by, maker, named, piece, through, titled
from lib.errors.exceptions import Words, fact
from lib.errors.wording import plural, ranges, these, written
from lib.values.collectives import COLLECTIVES, STEP
from lib.values.placement import MOST, listed
from lib.values.values import Activation, OptState, Value, Weight, WeightGrad, describe

__all__ = ["Incomplete", "NoDim", "NoShard", "OtherFeatures", "OtherStep", "Stateless", "TooManyShards", "Uncovered"]

CUT_ALIKE = "cut a weight into as many shards as ranks share it, and give each rank its own:\n"
CUT_TOO = (
    ": when its backward is done,\ncut the weight to that shard too: "
    "weights[layer] = weights[layer].shard(model.rank, model.RANKS)"
)
LOAD_ALIKE = (
    "load both with one call, and update a shard of the weight with the same shard of the state:\n"
    "weights[layer], opt_states[layer] = "
)


def missing_words(noun: str, found: Sequence[tuple[int, int]]) -> str:
    """List what is missing, as runs of numbers: "; shard 3 is missing", "; batches 0, 2-5 are missing"."""
    one = sum(after - first for first, after in found) == 1
    return f"; {noun if one else plural(noun, 2)} {listed(found)} {'is' if one else 'are'} missing" if found else ""


def _part(value: Weight) -> str:
    """Name the part of a weight that a value is: "shard 0 of 4"."""
    return "the whole weight" if value.is_complete() else ", ".join(value.place.words())


@fact
def Incomplete(program: Running, weight: Weight) -> Told:
    """A shard was given where the whole weight is needed."""
    taps, part = weight.place.part("taps"), weight.place.first
    if taps is not None and not taps.whole:
        yield words_of("Incomplete", "kernel", weight=weight, taps=taps.dim.size)
        return
    missing = missing_words("shard", part.dim.whole.minus(part).shards(weight.total) or ())
    yield words_of("Incomplete", weight=weight, shards=these("shard", weight.shards), missing=missing)
    made = maker(weight)
    for value in program.values:
        if isinstance(value, Activation) and value.layer == weight.layer and not value.place.dims[-1].whole:
            yield because("has_these_features", gave=made_by(value))
    if made is not None and made.op == "allgather":
        count = len(made.group)
        why = f"{count} ranks put {len(weight.shards)} shards together, but the weight is cut into {weight.total}"
        if (own := maker(program.values[made.inputs[0]])) and own.op == "shard":
            yield f"{why}:\n{named(own)} cut what is still to be gathered: cut it after that"
        yield groups.gathered_from_few(program, weight, made)
        yield f"{why}:\ncut it into as many as there are ranks to gather from: {shard_call(program, count, made.group)}"
    if made is not None and made.op == "shard":
        yield because("cut_already", line=line_of(made))
    for number, whole in alike(program, weight):
        if whole.is_complete() and whole.step == weight.step and whole.mark is not None:
            if is_held(program, number):
                yield f"the whole weight is what the all-gather gave{line_of(maker(whole))}: use that, not the shard"
            yield f"the weight gathered{line_of(maker(whole))} is deleted by now: gather it again before this line"
    call = piece(program, "allgather") or gather_call(program)
    yield line(program, "allgather", "gather_all_shards", shards=these("shard", weight.shards), call=call)


@fact
def NoDim(dim: object) -> Words:
    """A weight can only be cut along its rows or its columns."""
    return words_of("NoDim", dim=written(dim))


@fact
def NoShard(program: Running | None, shard: Any, total: Any, loads: bool) -> Told:
    """There is no such shard. `loads`: it was to be loaded, rather than cut from a weight that the rank has."""
    counts = type(total) is int and total >= 1
    said = {"shard": written(shard), "total": written(total), "last": written(total - 1) if counts else ""}
    no_total = "no_total" * (not counts)
    if loads:
        number = describe(shard).removeprefix("the number ")
        yield words_of("NoShard", "loads", no_total, number=number, **said)
        yield CUT_ALIKE + shard_call(program, total if isinstance(total, int) else None)
    yield words_of("NoShard", no_total, "of_none" * (total == 0), **said)


@fact
def TooManyShards(shard: int, total: int) -> Words:
    """A weight is cut into more shards than are allowed."""
    return words_of("TooManyShards", shard=written(shard), total=written(total), most=MOST)


@fact
def Uncovered(program: Running, grad: WeightGrad, weight: Weight) -> Told:
    """The gradient does not cover all of the weight to be updated."""
    yield words_of("Uncovered", "whole" * weight.is_complete(), grad=grad, part=_part(weight))
    made, summed = maker(weight), through(grad, ("add", "allreduce"))[0]
    yield groups.cut_otherwise(program, grad)
    if weight.is_complete() and made is not None and made.op == "allgather":
        if cut := piece(program, "shard"):
            yield f"this weight was gathered{line_of(made)}, and is whole still: cut it again before its update, {cut}"
        if not is_held(program, made.inputs[0]):
            yield because("gathered_over_a_shard", line=line_of(made))
    if made is None or made.op != "load_weights":
        return
    if weight.is_complete() and _has_state_of(program, grad, held=False):
        yield f"this rank has the gradient and the optimizer state of {these('shard', grad.shards)} only{CUT_TOO}"
    if summed is None or summed.op != "scatterreduce":
        return
    left = f"{titled(summed)} left {these('shard', grad.shards)} of {grad.total}"
    if not weight.is_complete() and not weight.place.covers(grad.place):
        before, mine = maker(program.values[summed.inputs[0]]), f"this rank loaded {_part(weight)}"
        if is_whole(grad, "in") != is_whole(weight, "in"):
            yield f"{titled(summed)} cut the gradient along another dim, and {mine}:\nname one dim in both, or none"
        if before is not None and before.op == "scatterreduce":
            yield because("scattered_twice", left=left, line=line_of(before), mine=mine)
        whose = "member r of its group" if len(summed.group) < program.world.ranks else "rank r"
        yield f"{left}, and {mine}. It leaves {whose} shard r:\n{shard_call(program, weight.total, summed.group)}"
    if not weight.is_complete() and _has_state_of(program, weight):
        yield because("needs_the_same_sum", summed=titled(summed), part=_part(weight))
    if not weight.is_complete():
        yield f"{left}: cut the same out of the weight,\nweights[layer] = weights[layer].shard(...), and update that"
    yield because("loaded_whole", line=line_of(made))


def _has_state_of(program: Running, part: WeightGrad | Weight, held: bool = True) -> bool:
    """Tell whether the rank has (`held`: in a store) the optimizer state of exactly the shard of `part`."""
    return any(
        isinstance(value, OptState)
        and (value.layer, value.total, value.shards) == (part.layer, part.total, part.shards)
        for number, value in enumerate(program.values)
        if value is not None and (is_held(program, number) or not held) and not value.is_complete()
    )


@fact
def Stateless(program: Running, state: OptState, weight: Weight) -> Told:
    """The optimizer state does not cover all of the weight to be updated."""
    yield words_of("Stateless", "whole" * weight.is_complete(), state=state, part=_part(weight))
    made = maker(weight)
    if weight.is_complete() and made is not None and made.op == "load_weights":
        yield f"this rank has the optimizer state of {these('shard', state.shards)} only{CUT_TOO}"
    if made is not None and made.op == "shard":
        shard, total = min(weight.shards), weight.total
        yield because("cut_before", line=line_of(made), shards=these("shard", weight.shards), total=total, shard=shard)
    if not weight.is_complete() and state.total > weight.total:
        parts = state.total // weight.total
        yield because("state_of_a_part", shards=these("shard", state.shards), total=state.total, parts=parts)
    if not weight.is_complete():
        yield LOAD_ALIKE + shard_call(program, weight.total)


@fact
def OtherStep(weight: Weight, state: OptState) -> Words:
    """The weight and the optimizer state have had different numbers of updates."""
    return words_of("OtherStep", weight=weight, state=state)


@fact
def OtherFeatures(_: object, role: str, value: Value, weight: Weight, of: str) -> Told:
    """A value's features differ from those of the weight part it meets (`of`: in or out)."""
    part, side = weight.place.part(of), "takes" if of == "in" else "gives"
    needs, case = "all features", ""
    if part is not None and not part.whole:
        needs, case = f"features {ranges(part.pieces)} of {part.grid}", of
    elif of == "in":
        case = of
    if of == "in" and value.place.part("keys") is not None:
        case = "heads"
    more = ", which has all features" if value.place.dims[-1].whole else ""
    yield words_of("OtherFeatures", case, role=role, value=value, weight=weight, side=side, needs=needs, all=more)
    made, swap = maker(value), through(value, ("combine",))[0]
    if of == "in" and swap is not None and swap.op == "alltoall" and value.place.part("keys") is None:
        yield f"{titled(swap)} gave features away that this layer still needs: swap them later"
    if made is None or made.op not in COLLECTIVES or COLLECTIVES[made.op].travel is not STEP:
        return
    yield because("brought_results", made=named(made))
