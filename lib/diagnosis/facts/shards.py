"""Facts of weights: shards that are not there, or do not fit a gradient, a state or an activation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lib.diagnosis import Running, Told, groups, line
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
    """List what is not there, as runs of numbers: "; shard 3 is missing", "; batches 0, 2-5 are missing"."""
    one = sum(after - first for first, after in found) == 1
    return f"; {noun if one else plural(noun, 2)} {listed(found)} {'is' if one else 'are'} missing" if found else ""


def _part(value: Weight) -> str:
    """Name the part of a weight that a value is: "shard 0 of 4"."""
    return "the whole weight" if value.is_complete() else ", ".join(value.place.words())


@fact
def Incomplete(program: Running, weight: Weight) -> Told:
    """A shard where the whole weight is needed."""
    taps, part = weight.place.part("taps"), weight.place.first
    if taps is not None and not taps.whole:
        what = f"the weight of layer {weight.layer} lacks a part of its kernel"
        fix = "a kernel is used whole: cut a weight along in or out, and not along its taps"
        yield Words(what, f"all {taps.dim.size} taps", describe(weight), fix)
        return
    missing = missing_words("shard", part.dim.whole.minus(part).shards(weight.total) or ())
    got = f"{these('shard', weight.shards)} of {weight.total}{missing}"
    fix = "put its shards together first, with an all-gather"
    yield Words(f"the weight of layer {weight.layer} is not complete", f"all {weight.total} shards", got, fix)
    made = maker(weight)
    for value in program.values:
        if isinstance(value, Activation) and value.layer == weight.layer and not value.place.dims[-1].whole:
            why = f"this rank has the rows of the weight for the features that {made_by(value)}"
            yield f"{why}:\ngive forward these features as they are, without a gather"
    if made is not None and made.op == "allgather":
        count = len(made.group)
        why = f"{count} ranks put {len(weight.shards)} shards together, but the weight is cut into {weight.total}"
        if (own := maker(program.values[made.inputs[0]])) and own.op == "shard":
            yield f"{why}:\n{named(own)} cut what is still to be gathered: cut it after that"
        yield groups.gathered_from_few(program, weight, made)
        yield f"{why}:\ncut it into as many as there are ranks to gather from: {shard_call(program, count, made.group)}"
    if made is not None and made.op == "shard":
        why = f"the whole weight was cut{line_of(made)} already: cut it when nothing needs it whole any more"
        yield f"{why},\nwhich is after its last backward"
    for number, whole in alike(program, weight):
        if whole.is_complete() and whole.step == weight.step and whole.mark is not None:
            if is_held(program, number):
                yield f"the whole weight is what the all-gather gave{line_of(maker(whole))}: use that, not the shard"
            yield f"the weight gathered{line_of(maker(whole))} is deleted by now: gather it again before this line"
    idea = f"this rank has {these('shard', weight.shards)} only: all shards have to be put together first"
    call = piece(program, "allgather") or gather_call(program)
    yield line(program, "allgather", idea, f"gather all shards first:\n{call}")


@fact
def NoDim(dim: object) -> Words:
    """A weight is cut along its rows or its columns, and along nothing else."""
    expected = 'dim="in" for rows, or dim="out" for columns'
    fix = 'write dim="out" for a column shard; without dim it is a row shard'
    return Words("a weight is cut along its rows or along its columns", expected, f"dim={written(dim)}", fix)


@fact
def NoShard(program: Running | None, shard: Any, total: Any, loads: bool) -> Told:
    """There is no such shard. `loads`: of a weight that is loaded, and not cut out of one that is there."""
    what = f"there is no shard {written(shard)} of {written(total)}"
    expected = f"{'a shard' if loads else 'a shard number'} from 0 to "
    expected = "total >= 1" if type(total) is not int or total < 1 else expected + written(total - 1)
    if loads:
        got = f"shard {describe(shard).removeprefix('the number ')}"
        yield Words(what, expected, got, f"{CUT_ALIKE}model.load_weights(layer, model.rank, model.RANKS)")
        yield CUT_ALIKE + shard_call(program, total if isinstance(total, int) else None)
    fix = "shards are counted from 0; a rank's own shard is usually its place in the group"
    if total == 0:
        fix = "first which shard, and then of how many: model.rank, model.RANKS"
    yield Words(what, expected, fix=fix)


@fact
def TooManyShards(shard: int, total: int) -> Words:
    """A weight is cut into more shards than there may be."""
    expected = f"a weight cut into at most {MOST} shards: a Trace file holds no more"
    got, fix = f"shard {written(shard)} of {written(total)}", "cut a weight into as many shards as ranks share it"
    return Words(f"{written(total)} shards are too many", expected, got, fix)


@fact
def Uncovered(program: Running, grad: WeightGrad, weight: Weight) -> Told:
    """The gradient is not that of all of the weight that is to be updated."""
    expected = f"a gradient of {_part(weight)}, or of the whole weight"
    fix = "a rank updates the shard whose gradient it has: cut both in the same way"
    if weight.is_complete():
        expected = "a gradient of the whole weight"
        fix = "after scatterreduce a rank has the gradient of one shard: update the shard of the weight that it "
        fix += "loaded,\nnot the gathered weight; or use allreduce, and every rank updates the whole weight"
    yield Words("the gradient does not cover the weight", expected, describe(grad), fix)
    made, summed = maker(weight), through(grad, ("add", "allreduce"))[0]
    yield groups.cut_otherwise(program, grad)
    if weight.is_complete() and made is not None and made.op == "allgather":
        if cut := piece(program, "shard"):
            yield f"this weight was gathered{line_of(made)}, and is whole still: cut it again before its update, {cut}"
        if not is_held(program, made.inputs[0]):
            why = f"this weight was gathered{line_of(made)}, and took the place of the shard that is to be updated"
            yield f'{why}:\nkeep what is gathered under a key of its own, such as weights[layer, "full"]'
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
            why = f"{left}, of what the one{line_of(before)} had cut, and {mine}"
            yield f"{why}.\nA single reduce-scatter over all of these ranks leaves member r shard r"
        whose = "member r of its group" if len(summed.group) < program.world.ranks else "rank r"
        yield f"{left}, and {mine}. It leaves {whose} shard r:\n{shard_call(program, weight.total, summed.group)}"
    if not weight.is_complete() and _has_state_of(program, weight):
        why = f"{titled(summed)} left a part of {_part(weight)}, and this rank has the weight and the optimizer\nstate "
        yield f"{why}of all of it, as other ranks of that group have: they need the same sum, which an all-reduce gives"
    if not weight.is_complete():
        yield f"{left}: cut the same out of the weight,\nweights[layer] = weights[layer].shard(...), and update that"
    why = f"this rank loaded the whole weight{line_of(made)}, and updates all of it: it needs the whole sum.\n"
    yield f"{why}A reduce-scatter leaves each rank one shard of the sum; an all-reduce brings all of it to every rank"


def _has_state_of(program: Running, part: WeightGrad | Weight, held: bool = True) -> bool:
    """Tell whether the rank has (`held`: in a store) the optimizer state of just the shard that something is of."""
    return any(
        isinstance(value, OptState)
        and (value.layer, value.total, value.shards) == (part.layer, part.total, part.shards)
        for number, value in enumerate(program.values)
        if value is not None and (is_held(program, number) or not held) and not value.is_complete()
    )


@fact
def Stateless(program: Running, state: OptState, weight: Weight) -> Told:
    """The optimizer state is not that of all of the weight that is to be updated."""
    fix = LOAD_ALIKE + "model.load_weights(layer, model.rank, model.RANKS)"
    if weight.is_complete():
        fix = "update the shard of the weight that this rank loaded with its optimizer state, not the gathered\n"
        fix += "weight: model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])"
    expected = f"the optimizer state of {_part(weight)}"
    yield Words("the optimizer state does not cover the weight", expected, describe(state), fix)
    made = maker(weight)
    if weight.is_complete() and made is not None and made.op == "load_weights":
        yield f"this rank has the optimizer state of {these('shard', state.shards)} only{CUT_TOO}"
    if made is not None and made.op == "shard":
        shard, total = min(weight.shards), weight.total
        why = f"the weight was cut{line_of(made)} to {these('shard', weight.shards)} of {total}:\nload the optimizer "
        yield f"{why}state of the same shard: model.load_weights(layer, {shard}, {total}) on this rank"
    if not weight.is_complete() and state.total > weight.total:
        parts = state.total // weight.total
        why = f"this rank has the optimizer state of {these('shard', state.shards)} of {state.total}, a part of this "
        yield f"{why}one:\ncut the weight into {parts}, too, with weights[layer].shard(..., {parts}), and update that"
    if not weight.is_complete():
        yield LOAD_ALIKE + shard_call(program, weight.total)


@fact
def OtherStep(weight: Weight, state: OptState) -> Words:
    """The weight and the optimizer state have had different numbers of updates."""
    got = f"the optimizer state is at step {state.step}"
    fix = "keep both results of update, and update each layer once"
    what = "the weight and the optimizer state are not at the same step"
    return Words(what, f"step {weight.step} for both", got, fix)


@fact
def OtherFeatures(_: object, role: str, value: Value, weight: Weight, of: str) -> Told:
    """A value has other features than the part of the weight that it is for (`of`: in or out)."""
    part, side = weight.place.part(of), "takes" if of == "in" else "gives"
    whole = part is None or part.whole
    needs = "all features" if part is None or part.whole else f"features {ranges(part.pieces)} of {part.grid}"
    fix = "gather the features first: await model.allgather(value, layer, group=...)"
    if of == "in" and value.place.part("keys") is not None:
        fix = "attention gave some heads of all rows: swap them for all heads of some rows, by an all-to-all"
    elif of == "in":
        fix += ";\nor use a row shard of the weight, which takes just these: "
        fix += 'load_weights(layer, shard, total, dim="in")'
    elif not whole:
        fix = "backward takes the gradient of what this shard gave in forward: do not gather or sum more than "
        fix += 'forward did,\nor cut this rank\'s features out of it, with model.shard(gradient, "features", ...)'
    what = f"the {role} does not have the features that the weight {side}"
    got = describe(value) + (", which has all features" if value.place.dims[-1].whole else "")
    yield Words(what, f"{needs}, which the {describe(weight)} {side}", got, fix)
    made, swap = maker(value), through(value, ("combine",))[0]
    if of == "in" and swap is not None and swap.op == "alltoall" and value.place.part("keys") is None:
        yield f"{titled(swap)} gave features away that this layer still needs: swap them later"
    if made is None or made.op not in COLLECTIVES or COLLECTIVES[made.op].travel is not STEP:
        return
    why = f"{named(made)} brought what another rank's part of a weight gave: pass on what went into that layer"
    yield f"{why},\nand multiply it with this rank's part"
