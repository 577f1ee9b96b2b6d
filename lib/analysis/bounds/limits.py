"""The arguments behind the lower bounds, one for each figure: how a limit is computed, and what it is made of.

All eight puzzles are about families of one kind (see `families.Family`), so one argument for each figure will do.
Below, S stages have k layers each and D ranks each; a rank has m batches, of which g go through a layer together. W is
a weight's elements, A an activation's for one batch. Forward and backward take 1 a batch and layer, an update u, a
message p at each end, and a collective c, or two messages in its place.

**Time.** Take a rank of the last stage. Its batches came through S - 1 stages, each of which took k·g for the first of
them, and a message, 2p; before that, where weights are sharded, the first layer had to be gathered, c. Then the rank
computes all that it has, 2·k·m. Its last operation is the backward of its lowest layer (every other one is followed by
that), on g batches or more, whose gradient still goes back through S - 1 stages. When it
arrives at the first stage, that rank has still to do its backwards of these batches and all its k updates, for each of
them needs a gradient of theirs: k·u. And where the stage has more ranks, another rank has to wait until the gradient of
the layer that came last got there, and then to update: c + u. When operations are awaited changes none of this. Where
states are on fewer ranks than weights, what a rank updates last has still to get to the other copies.

Where communication has a bandwidth, c is what the missing elements take on the links of a rank that gathers.

**Memory.** See `alive`.

**Sent.** For each element of a weight, count the messages in which it, or a sum that its gradient is in, goes from one
rank to another; a collective counts as the messages of its ring. Where weights are sharded, D ranks hold 1/D each and
all need the whole: D - 1. Each of the D gradients has to get into the sum on the one rank that updates it: D - 1. Where
each part is on c ranks, D - c are enough to gather it, and c - 1 have to be told of the sum, or of what came of it.
Where they are not sharded, the sum is needed on all ranks: until one rank knows it, D - 1 others must have sent
something, and after that moment D - 1 must still be told: 2(D - 1). Between stages, each activation and each gradient
travels once. Of D equal ranks the one that sends most is at or over the average.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter
from typing import NamedTuple

from lib.analysis.bounds.family import Family
from lib.analysis.bounds.optima import Aim, Optimum, Size, stored
from lib.cluster.costs import UNIT, Costs
from lib.errors.wording import counted


class Part(NamedTuple):
    """One summand of a limit: time units or elements, and what they are for."""

    amount: float
    what: str


@dataclass(frozen=True, slots=True)
class Limit:
    """No schedule of the family is below `value`. `parts` sum to it, in the order of the argument.

    `kind` says which argument binds: "critical path", "work", "what has to be in memory", "what has to be sent".
    `optimal`: a schedule reaches it. `proof` says how it is proved, in a sentence or two.
    """

    value: float
    parts: tuple[Part, ...]
    kind: str
    optimal: bool
    proof: str


# -- time -----------------------------------------------------------------------------------------------------------


def time(family: Family, costs: Costs, reached: bool) -> Limit:
    """Return the time of the docstring above. With one stage and nothing to gather it is the work of a rank."""
    each, others = family.each, family.stages - 1
    group = family.mine if family.grouping == "all" else 1
    collective = float(costs.least(family.layer.weight * (1 - family.share)))
    told_in = float(costs.least(family.layer.weight * family.state_share))
    last = float(sum(map(costs.factor, range(each * others, family.layers))))
    layers, updates = counted(each, "layer"), each * costs.update
    told = told_in + costs.update if family.replicas > 1 else 0.0
    parts: list[Part] = []
    if family.share < 1:
        parts.append(Part(collective, "all-gather of the first layer"))
    parts += _way(family, "forward", costs.forward * group, costs)
    work = round((costs.forward + costs.backward) * last * family.mine, 9)
    where = " on the last rank" if others else ""
    parts.append(Part(work, f"{layers} x {counted(family.mine, 'batch')} forward and backward{where}"))
    parts += _way(family, "back", costs.backward * group, costs)
    if updates >= told:
        parts.append(Part(updates, f"update of {layers}" + (" on the first rank" if others else "")))
    else:
        name = "reduce-scatter" if family.sharded else "all-reduce"
        parts += [Part(told_in, f"{name} of the last gradient"), Part(costs.update, "update of that layer")]
    if family.state_copies < family.copies:
        sent_on = float(costs.least_between(family.layer.weight * family.state_share))
        parts.append(Part(sent_on, "telling the other copies what is updated last"))
    kind = "work" if len(parts) == 2 and updates >= told else "critical path"
    proof = _time_proof(family, updates >= told) + (_solved_time(family) if costs == UNIT else "")
    return Limit(_total(parts), tuple(parts), kind, reached, proof)


def _way(family: Family, direction: str, layer: float, costs: Costs) -> list[Part]:
    """Through all stages but the last, at `layer` time units a layer, and a message from each."""
    others = family.stages - 1
    if not others:
        return []
    group = counted(family.mine if family.grouping == "all" else 1, "batch")
    message = 2 * costs.p2p
    before = float(sum(map(costs.factor, range(others * family.each))))
    through = f"{counted(others, 'stage')}: {counted(family.each, 'layer')} on {group}"
    amount = round(before * layer + others * message, 9)
    return [Part(amount, f"{direction} through {through} and a message of {message:g}")]


def _time_proof(family: Family, working: bool) -> str:
    tail = (
        "all its updates need a gradient of these batches, so they come after"
        if working
        else "the last gradient has to reach the ranks that wait for it before they can update"
    )
    if family.stages > 1:
        return (
            "The last stage can begin only when the first input has come through all others; then it has all its work "
            f"to do; and its last gradient has to go all the way back. On the first stage {tail}."
        )
    start = "No rank can begin before the first layer is gathered. " if family.share < 1 else ""
    if family.lends:
        tail += "; and what it updates last still has to get to the other copies"
    if family.ranks == 1:
        return "Each layer has to take each batch forward and backward and to be updated, and there is one rank."
    return f"{start}A rank has to take its batches forward and backward through all layers; {tail}."


# -- memory ---------------------------------------------------------------------------------------------------------


def memory(family: Family, reached: bool, costs: Costs = UNIT) -> Limit:
    """Return what must be alive at one moment or another, on any rank: see `alive`."""
    moment = alive(family)
    proof = _memory_proof(family, moment.when) + (_solved_memory(family) if costs == UNIT else "")
    return Limit(moment.total, moment.parts, "what has to be in memory", reached, proof)


class Moment(NamedTuple):
    """The activations alive in a rank's top layer: when its first backward starts ("start"), or is over ("over"), or
    when the last batch's first backward starts ("last batch") or is over ("after last batch")."""

    when: str
    parts: tuple[Part, ...]

    @property
    def total(self) -> float:
        """Elements."""
        return _total(self.parts)


def alive(family: Family) -> Moment:
    """Return the moment of the memory's limit, and its parts. No message in flight is among them: there need not be one
    then.

    Take the last backward of the top layer of a rank's stage, on g batches. No layer has been updated, since all
    updates need a gradient of these batches: weights and states are there, 2kW (sharded: 2kW/D, and the rest of this
    layer's weight, W - W/D). The inputs of all k layers are there and one gradient, for nothing is computed twice:
    (k + 1)gA. When it is over, and the next operation starts, there is its gradient, W, in place of the rest of the
    weight (and of what the rank has of it but does not update, for that may be gone now), the inputs of the k - 1
    layers below and one gradient, kgA; with k = 1 the gradient that is to be sent.

    A rank has the gradients of its other batches, too, if not all went together: of o layers there has been no
    backward yet, of any batch; then of the sums of the k - o others there is at least a shard, (k - o)W/D, for
    gradients travel in collectives, which leave no rank with less; and of each of the other batches, whose backward of
    the top layer was before, at least o inputs and one gradient (if o > 0). When that last backward is over, the
    gradient that it made is there in full, W, whatever has been added to it. The least over o and over g (1, or all: in
    between it is more) counts.
    """
    options = [_together(family, family.mine)]
    if family.grouping != "all" and family.mine > 1:
        apart = [_apart(family, open_) for open_ in range(family.each)]
        options = apart if family.grouping == "one" else [*apart, *options]
    return min(options, key=attrgetter("total"))


def _states(family: Family, over: bool = False) -> Part:
    """Return what was given. `over`: the top layer has had its last backward, so what is not updated of its weight may
    go."""
    amount = family.each * family.layer.weight * (family.share + family.state_share)
    layers = counted(family.each, "layer")
    if family.lends:
        gone = family.layer.weight * (family.share - family.state_share) if over else 0
        cut = f", but {family.state_share} of one weight" if over else ""
        weights = "the weights" if family.share == 1 else f"{family.share} of the weights"
        return Part(float(amount - gone), f"{weights} and {family.state_share} of the states of {layers}{cut}")
    shards = f", {family.share} of each" if family.sharded else ""
    return Part(float(amount), f"weights and optimizer states of {layers}{shards}")


def _own(family: Family, group: int, when: str = "the first backward") -> Part:
    """Return what the top layer's backward finds of its own batches."""
    inputs = counted(family.each, "activation")
    of = f" of {group} batches each" if group > 1 else ""
    return Part((family.each + 1) * group * family.layer.batch, f"{inputs} and a gradient{of}, at {when}")


def _together(family: Family, group: int) -> Moment:
    """Return when the top layer's backward starts, or when it is over: whichever is more."""
    start = [_states(family), *_rest(family), _own(family, group)]
    over = [
        _states(family, over=True),
        Part(family.layer.weight, "gradient of a weight"),
        *_left(family, group, "the first backward"),
    ]
    return max(Moment("start", tuple(start)), Moment("over", tuple(over)), key=attrgetter("total"))


def _rest(family: Family) -> list[Part]:
    """Return what a rank with a shard of a weight needs besides, to use it."""
    missing, shards = float(family.layer.weight * (1 - family.share)), family.share.denominator
    others = f"the other shards of a layer ({shards - 1} of {shards})"
    return [Part(missing, others)] if missing else []


def _left(family: Family, group: int, when: str) -> list[Part]:
    """Return what is left of its own batches when the top layer's backward is over."""
    each = family.each
    left = each if each > 1 else int(family.stages > 1)
    of = f" of {group} batches each" if group > 1 else ""
    what = f"{counted(each - 1, 'activation')} and a gradient{of}" if each > 1 else f"the gradient to be sent{of}"
    return [Part(left * group * family.layer.batch, f"{what}, after {when}")] if left else []


def _apart(family: Family, open_: int) -> Moment:
    """Return the last of the top layer's backwards, each on one batch, when `open_` layers have had none: when it
    starts, or when it is over, whichever is more. Then the gradient that it made is whole, until a collective has cut
    it."""
    closed, weight = family.each - open_, family.layer.weight
    shards = f", 1/{family.replicas} of each" if family.replicas > 1 else ""
    sums = Part(closed * weight / family.replicas, f"sums of gradients of {counted(closed, 'layer')}{shards}")
    kept = [sums]
    if open_:
        others = family.mine - 1
        what = f"{counted(open_, 'activation')} and a gradient of {counted(others, 'other batch')} each"
        kept.append(Part(others * (open_ + 1) * family.layer.batch, what))
    last = "the last batch's first backward"
    start = [_states(family), *kept, *_rest(family), _own(family, 1, last)]
    uncut = float(family.layer.weight * (1 - Fraction(1, family.replicas)))
    over = [
        _states(family, over=True),
        *kept,
        *([Part(uncut, "the rest of the gradient of a weight")] if uncut else []),
        *_left(family, 1, last),
    ]
    return max(Moment("last batch", tuple(start)), Moment("after last batch", tuple(over)), key=attrgetter("total"))


def _memory_proof(family: Family, when: str) -> str:
    if when == "last batch":
        return (
            "At the last batch's first backward nothing has been updated yet, so all that was given is there; so are "
            "the sums of the gradients of the batches before, and what the backward itself needs."
        )
    if when == "after last batch":
        return (
            "When the last batch's first backward is over, nothing has been updated yet, so all that was given is "
            "there; so are the sums of the gradients of the batches before, a whole gradient, and what the layers "
            "below need."
        )
    gathered = ", the weight that it uses has to be whole," if family.sharded and when == "start" else ""
    return (
        f"When a rank's first backward {'starts' if when == 'start' else 'is over'}, nothing has been updated yet, so "
        f"all that was given is there{gathered} "
        "and every layer below still needs its input."
    )


# -- sent -----------------------------------------------------------------------------------------------------------


def sent(family: Family, reached: bool) -> Limit:
    """Return the elements of the docstring above, a rank."""
    ranks, each = family.replicas, family.each
    layers = counted(each, "layer")
    parts: list[Part] = []
    if ranks > 1:
        whole = each * family.layer.weight
        share = f"{ranks - 1}/{ranks} of {layers}"
        if family.sharded:
            others, told = 1 - family.share, Fraction(family.copies - 1, ranks)
            if others:
                parts.append(Part(float(whole * others), f"all-gather: {others} of {layers}"))
            parts.append(Part(whole * (ranks - 1) / ranks, f"reduce-scatter of the gradients: {share}"))
            if told:
                parts.append(Part(float(whole * told), f"telling the other copies: {told} of {layers}"))
        else:
            parts.append(Part(2 * whole * (ranks - 1) / ranks, f"all-reduce of the gradients: 2 x {share}"))
    ways = min(family.stages - 1, 2)
    if ways:
        one = "activations to the next stage", "gradients to the stage before"
        mine = counted(family.mine, "batch")
        amount = family.mine * family.layer.batch
        parts += [Part(amount, f"{what}: {mine}") for what in one[:ways]]
    return Limit(_total(parts), tuple(parts), "what has to be sent", reached, _sent_proof(family))


def _sent_proof(family: Family) -> str:
    found: list[str] = []
    if family.sharded and family.share == 1:
        found.append(
            "The gradient of each shard has to be summed where the shard is updated, and every rank needs the new "
            "shards of all others: each element is sent 2(n - 1) times, by the n ranks together."
        )
    elif family.sharded:
        found.append(
            "Every rank needs the shards of all others, and the gradient of each shard has to be summed where the "
            "shard is: each element is sent n - 1 times, by the n ranks together."
        )
        if family.copies > 1:
            found.append("Of n ranks with c copies n - c need a part, and c - 1 have to be told of its sum.")
    elif family.replicas > 1:
        found.append(
            "Before one rank has the sum, each other rank has sent its part; after that each other rank still has to "
            "be told: each element is sent 2(n - 1) times, by the n ranks together."
        )
    if family.stages > 1:
        found.append("Each activation and each gradient crosses each border between stages once.")
    return " ".join(found) or "There is no other rank to send anything to."


# -- what the solver says of it -------------------------------------------------------------------------------------


def solved(family: Family, aim: Aim, overlap: bool = True) -> Optimum | None:
    """Return the stored optimum of a family, where it is a pipeline of single batches that was solved; else None."""
    if family.grouping != "one" or family.ranks != family.stages:
        return None
    return stored(Size(family.stages, family.layers, family.batches, overlap), aim)


def _solved_time(family: Family) -> str:
    quick, awaited = solved(family, "fastest"), solved(family, "fastest", overlap=False)
    if quick is None or awaited is None:
        return ""
    return (
        f" The solver agrees. {quick.proof}. If every message is awaited at once, no schedule ends before "
        f"{awaited.end_bound:g}."
    )


def _solved_memory(family: Family) -> str:
    lean, quick = solved(family, "leanest"), solved(family, "fastest")
    if lean is None or quick is None:
        return ""
    both = "" if quick.peak_bound <= lean.peak else " So no schedule has the least time and the least memory."
    return f" The solver agrees. {lean.proof}.{both}"


def _total(parts: Iterable[Part]) -> float:
    """Return the sum of the parts, without the dust of binary fractions: times are multiples of a billionth of a time
    unit."""
    return round(sum(part.amount for part in parts), 9)
