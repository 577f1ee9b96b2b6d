"""Lower bounds: limits that no schedule of a puzzle's family can beat, what each limit is made of, and why it holds.

`family` has the kinds of schedules that bounds apply to, and `optima` what a solver has proved besides. The full proofs
are in docs/bounds.md; each limit has one in a sentence or two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from operator import attrgetter
from typing import Final, NamedTuple

from lib.analysis.bounds.family import Family, SharedWork, WholeLayers, excuse
from lib.analysis.bounds.optima import AIMS, Aim, Optimum, Size, stored
from lib.cluster.costs import UNIT, Costs, as_written
from lib.errors.wording import counted
from lib.files import table
from lib.puzzles.puzzle import Puzzle
from lib.puzzles.records import PUZZLES
from lib.trace.trace import Trace


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


PROOFS: Final[dict[str, dict[str, str]]] = table("lib.analysis.bounds", "proofs")
NOTHING: Final = Limit(0.0, (), "work", False, "Of this nothing is known.")


@dataclass(frozen=True, slots=True)
class Bound:
    """The limits of a puzzle: the time of the true end, elements on the rank with the highest peak, elements sent by
    the rank that sends most. They apply to a family of schedules; `premise` says which, in a sentence for a student.

    A limit of 0 says nothing. Each holds on its own: different schedules may reach them. `together` are time and memory
    of a schedule that is near both, with none known to be better in both.
    """

    puzzle: str
    premise: str
    time: Limit
    memory: Limit
    sent: Limit
    family: Family | SharedWork | WholeLayers
    together: tuple[float, float] | None = None
    costs: Costs = UNIT

    def excuse(self, trace: Trace) -> str | None:
        """Say why this run is not of the family, and so may be below the limits; None if it is of the family."""
        return excuse(trace, self.family)

    @property
    def frontier(self) -> tuple[Optimum, ...]:
        """Proved optima from the fastest to the leanest in memory, if the family was solved at these costs."""
        if self.costs != UNIT or not isinstance(self.family, Family):
            return ()
        return tuple(optimum for aim in AIMS if (optimum := solved(self.family, aim)) is not None)


def has_bound(puzzle: str) -> bool:
    """Tell whether a lower bound is known for a puzzle."""
    return puzzle in PUZZLES and PUZZLES[puzzle].bound is not None


@cache
def lower_bound(puzzle: str) -> Bound:
    """Return the lower bound of a puzzle at its own size. ValueError if none is known (see has_bound)."""
    record = PUZZLES[puzzle] if has_bound(puzzle) else None
    if record is None or record.bound is None:
        known = ", ".join(name for name in PUZZLES if has_bound(name))
        raise ValueError(f"no lower bound is known for {puzzle!r}; there are those of {known}")
    premise = record.bound
    if (shared := work_bound(record)) is not None:
        return shared
    copies = premise.copies, premise.state_copies
    family = Family(*record.size, premise.stages, premise.sharded, premise.grouping, *copies)
    found = bound_of(family, record.costs, reached=True)
    return replace(found, puzzle=puzzle, premise=premise.words, together=premise.together)


def work_bound(record: Puzzle) -> Bound | None:
    """Return the lower bound, at the size of a record, from the work alone; None for a record with a Family."""
    premise = record.bound
    if premise is None or not (premise.work or premise.whole):
        return None
    work = (SharedWork if premise.work else WholeLayers)(*record.size, record.described(record.layers))
    least = work_time(work, record.costs, premise.reached)
    return Bound(record.id, work.premise, least, NOTHING, NOTHING, work, costs=record.costs)


def bound_of(family: Family, costs: Costs = UNIT, *, reached: bool = False) -> Bound:
    """Return the bound of a family of any size. `reached`: schedules that reach each limit are known."""
    limits = time(family, costs, reached), memory(family, reached, costs), sent(family, reached)
    return Bound("", "", *limits, family, costs=costs)


def solved(family: Family, aim: Aim, overlap: bool = True) -> Optimum | None:
    """Return the stored optimum of a family if it is a pipeline of single batches that was solved; else None."""
    if family.grouping != "one" or family.ranks != family.stages:
        return None
    return stored(Size(family.stages, family.layers, family.batches, overlap), aim)


def _limit(parts: Iterable[Part], kind: str, reached: bool, proof: str) -> Limit:
    parts = tuple(parts)
    return Limit(_total(parts), parts, kind, reached, proof)


def _total(parts: Iterable[Part]) -> float:
    """Return the sum of the parts without rounding errors: times are multiples of a billionth of a time unit."""
    return round(sum(part.amount for part in parts), 9)


# -- time -----------------------------------------------------------------------------------------------------------


def time(family: Family, costs: Costs, reached: bool) -> Limit:
    """Return the time of a batch's way to the last stage, of all the work there, and of the way back. With one stage
    and nothing to gather this is the work of a rank."""
    each, others = family.each, family.stages - 1
    group = family.mine if family.grouping == "all" else 1
    told_in = float(costs.least(family.layer.weight * family.state_share))
    last = float(sum(map(costs.factor, range(each * others, family.layers))))
    layers, updates = counted(each, "layer"), each * costs.update
    told = told_in + costs.update if family.replicas > 1 else 0.0
    parts: list[Part] = []
    if family.share < 1:
        collective = float(costs.least(family.layer.weight * (1 - family.share)))
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
        sent_on = float(costs.least(family.layer.weight * family.state_share, outside=True))
        parts.append(Part(sent_on, "telling the other copies what is updated last"))
    kind = "work" if len(parts) == 2 and updates >= told else "critical path"
    proof = _time_proof(family, updates >= told)
    quick, awaited = solved(family, "fastest"), solved(family, "fastest", overlap=False)
    if costs == UNIT and quick is not None and awaited is not None:
        least = f"If every message is awaited at once, no schedule ends before {awaited.end_bound:g}"
        proof += f" The solver agrees. {quick.proof}. {least}."
    return _limit(parts, kind, reached, proof)


def _way(family: Family, direction: str, layer: float, costs: Costs) -> list[Part]:
    """Return the way through all stages but the last, at `layer` time units per layer, and a message from each."""
    others = family.stages - 1
    if not others:
        return []
    group, message = counted(family.mine if family.grouping == "all" else 1, "batch"), 2 * costs.p2p
    before = float(sum(map(costs.factor, range(others * family.each))))
    through = f"{counted(others, 'stage')}: {counted(family.each, 'layer')} on {group}"
    amount = round(before * layer + others * message, 9)
    return [Part(amount, f"{direction} through {through} and a message of {message:g}")]


def _time_proof(family: Family, working: bool) -> str:
    words = PROOFS["time"]
    tail = words["updates" if working else "last_gradient"]
    if family.stages > 1:
        return words["stages"].format(tail=tail)
    if family.ranks == 1:
        return words["one_rank"]
    tail += words["copies"] if family.lends else ""
    return words["ranks"].format(start=words["start"] if family.share < 1 else "", tail=tail)


def work_time(work: SharedWork | WholeLayers, costs: Costs, reached: bool = False) -> Limit:
    """Return the least time of all schedules that share the work of layers, however they cut it; or that cut nothing.

    It is the work to be done, shared by all ranks as if none ever waited. This bounds neither memory nor what is sent:
    recomputing everything needs little memory, and ranks that have everything send nothing.
    """
    if isinstance(work, WholeLayers):
        return _whole_time(work, costs, reached)
    shape, ranks = work.shape, work.ranks
    back = min(as_written(costs.backward), as_written(costs.backward_input) + as_written(costs.backward_weight))
    computed = updates = Fraction(0)
    learns = [False]  # for each activation, whether it depends on a weight and so has a gradient
    for number, kind in enumerate(shape.kinds):
        learns.append(kind.weight is not None or any(learns[one] for one in shape.of(number)))
        once = as_written(costs.forward) + (back if learns[-1] else 0)
        computed += kind.cost * once * costs.factor(number) * work.batches
        updates += as_written(costs.update) * (kind.step * ranks if kind.step <= 1 else max(ranks, kind.step))
    speed = sum(1 / costs.slowness(rank) for rank in range(ranks))
    weights = counted(sum(kind.weight is not None for kind in shape.kinds), "layer")
    what = f"{counted(work.layers, 'layer')} x {counted(work.batches, 'batch')} forward and backward"
    parts = (
        Part(round(float(computed / speed), 9), f"{what}, shared by {counted(ranks, 'rank')}"),
        Part(round(float(updates / speed), 9), f"the updates of {weights} on each rank"),
    )
    proof = PROOFS["work"]["shared"] + ("" if reached else PROOFS["work"]["not_reached"])
    return _limit(parts, "work", reached, proof)


def _whole_time(work: WholeLayers, costs: Costs, reached: bool) -> Limit:
    """Return the least time of all schedules that leave layers whole."""
    fastest = min(map(costs.slowness, range(work.ranks)))
    back = min(as_written(costs.backward), as_written(costs.backward_input) + as_written(costs.backward_weight))
    below = sum(map(costs.factor, range(work.ranks - 1)))
    own = sum(sorted(map(costs.factor, range(work.ranks - 1, work.layers)))[: work.each])
    layers, batches = counted(work.each, "layer"), counted(work.batches, "batch")
    found = {
        "a batch forward through the layers below those of the last rank": as_written(costs.forward) * below,
        f"{layers} x {batches} forward and backward": (as_written(costs.forward) + back) * own * work.batches,
        f"update of {layers}": as_written(costs.update) * work.each,
    }
    ranks = counted(work.ranks, "rank")
    proof = PROOFS["work"]["whole"].format(ranks=ranks, layers=layers, below=work.ranks - 1)
    parts = (Part(round(float(amount * fastest), 9), what) for what, amount in found.items() if amount)
    return _limit(parts, "critical path", reached, proof)


# -- memory ---------------------------------------------------------------------------------------------------------


def memory(family: Family, reached: bool, costs: Costs = UNIT) -> Limit:
    """Return what must be alive at some moment on any rank: see `alive`."""
    moment = alive(family)
    whole = family.sharded and moment.when == "start"
    proof = PROOFS["memory"]["start_sharded" if whole else moment.when]
    lean, quick = solved(family, "leanest"), solved(family, "fastest")
    if costs == UNIT and lean is not None and quick is not None:
        both = "" if quick.peak_bound <= lean.peak else " So no schedule has the least time and the least memory."
        proof += f" The solver agrees. {lean.proof}.{both}"
    return _limit(moment.parts, "what has to be in memory", reached, proof)


class Moment(NamedTuple):
    """The activations alive in a rank's top layer: when its first backward starts ("start"), or is over ("over"), or
    when the last batch's first backward starts ("last batch") or is over ("after last batch")."""

    when: str
    parts: tuple[Part, ...]

    @property
    def total(self) -> float:
        """Elements in all."""
        return _total(self.parts)


def alive(family: Family) -> Moment:
    """Return the moment that limits memory, and its parts: around the last backward of the top layer of a rank's stage.
    Messages in flight are not counted, for there need not be any then.

    Unless all batches went together, the rank also holds something of the others: some layers have had no backward yet,
    the rest have sums of gradients. The limit is the least over their number, and over how many batches go together.
    """
    weight = family.layer.weight
    gradient = Part(weight, "gradient of a weight")
    options = [_moments(family, family.mine, ("start", "over"), "the first backward", (), gradient)]
    if family.grouping != "all" and family.mine > 1:
        # Each backward is on one batch, and some layers have had none. Its gradient is whole until a collective cuts
        # it.
        shards = f", 1/{family.replicas} of each" if family.replicas > 1 else ""
        rest = Part(float(weight * (1 - Fraction(1, family.replicas))), "the rest of the gradient of a weight")
        apart: list[Moment] = []
        for open_ in range(family.each):
            closed, others = family.each - open_, family.mine - 1
            sums = f"sums of gradients of {counted(closed, 'layer')}{shards}"
            kept = [Part(closed * weight / family.replicas, sums)]
            if open_:
                what = f"{counted(open_, 'activation')} and a gradient of {counted(others, 'other batch')} each"
                kept.append(Part(others * (open_ + 1) * family.layer.batch, what))
            names = "last batch", "after last batch"
            apart.append(_moments(family, 1, names, "the last batch's first backward", kept, rest))
        options = apart if family.grouping == "one" else [*apart, *options]
    return min(options, key=attrgetter("total"))


def _moments(
    family: Family, group: int, names: tuple[str, str], backward: str, kept: Sequence[Part], gradient: Part
) -> Moment:
    """Return the moment when the top layer's backward of a group starts or is over, whichever holds more. `kept`: what
    the rank holds of other batches; `gradient`: what backward adds to hold of a weight's gradient."""
    each, size = family.each, family.layer.batch * group
    of = f" of {group} batches each" if group > 1 else ""
    missing, shards = float(family.layer.weight * (1 - family.share)), family.share.denominator
    start = [
        _states(family),
        *kept,
        Part(missing, f"the other shards of a layer ({shards - 1} of {shards})"),
        Part((each + 1) * size, f"{counted(each, 'activation')} and a gradient{of}, at {backward}"),
    ]
    left = each if each > 1 else int(family.stages > 1)
    what = f"{counted(each - 1, 'activation')} and a gradient{of}" if each > 1 else f"the gradient to be sent{of}"
    over = [_states(family, over=True), *kept, gradient, Part(left * size, f"{what}, after {backward}")]
    moments = zip(names, (start, over), strict=True)
    both = (Moment(name, tuple(part for part in parts if part.amount)) for name, parts in moments)
    return max(both, key=attrgetter("total"))


def _states(family: Family, over: bool = False) -> Part:
    """Return what was given. `over`: the top layer has had its last backward, so the part of its weight that the rank
    does not update may go."""
    amount = family.each * family.layer.weight * (family.share + family.state_share)
    layers = counted(family.each, "layer")
    if family.lends:
        gone = family.layer.weight * (family.share - family.state_share) if over else 0
        cut = f", but {family.state_share} of one weight" if over else ""
        weights = "the weights" if family.share == 1 else f"{family.share} of the weights"
        return Part(float(amount - gone), f"{weights} and {family.state_share} of the states of {layers}{cut}")
    shards = f", {family.share} of each" if family.sharded else ""
    return Part(float(amount), f"weights and optimizer states of {layers}{shards}")


# -- sent -----------------------------------------------------------------------------------------------------------


def sent(family: Family, reached: bool) -> Limit:
    """Return the elements that each rank has to send: of weights, of their gradients, and from stage to stage."""
    ranks, whole = family.replicas, family.each * family.layer.weight
    layers = counted(family.each, "layer")
    once, share = Fraction(whole * (ranks - 1), ranks), f"{ranks - 1}/{ranks} of {layers}"
    parts: list[Part] = []
    if family.sharded:
        others, told = 1 - family.share, Fraction(family.copies - 1, ranks)
        parts += [
            Part(float(whole * others), f"all-gather: {others} of {layers}"),
            Part(float(once), f"reduce-scatter of the gradients: {share}"),
            Part(float(whole * told), f"telling the other copies: {told} of {layers}"),
        ]
    else:
        parts.append(Part(float(2 * once), f"all-reduce of the gradients: 2 x {share}"))
    one = "activations to the next stage", "gradients to the stage before"
    amount, mine = family.mine * family.layer.batch, counted(family.mine, "batch")
    parts += [Part(amount, f"{what}: {mine}") for what in one[: family.stages - 1]]
    return _limit((part for part in parts if part.amount), "what has to be sent", reached, _sent_proof(family))


def _sent_proof(family: Family) -> str:
    words, found = PROOFS["sent"], list[str]()
    if family.sharded:
        found.append(words["states" if family.share == 1 else "sharded"])
        if family.share < 1 < family.copies:
            found.append(words["copies"])
    elif family.replicas > 1:
        found.append(words["whole"])
    if family.stages > 1:
        found.append(words["stages"])
    return " ".join(found) or words["alone"]
