"""What can be wrong with values, as data: the fact that a rule or a law raises, in a RuleError or a MismatchError.

A fact says which rule was broken and by which values, in typed fields, and nothing in English: `diagnosis.rule_words`
has the words for each, and `diagnosis.likely_cause` looks for what the student probably meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lib.errors.facts import Fact, Words

if TYPE_CHECKING:
    from lib.values.collectives import Collective
    from lib.values.placement import Part
    from lib.values.rules import Member
    from lib.values.values import OptState, Value, Weight, WeightGrad

# -- the laws -----------------------------------------------------------------------------------------------------


class OtherKind(Fact):
    """Two values of different kinds are to be put together (`verb`: gather or sum)."""

    verb: str
    first: Value
    other: object


class Different(Fact):
    """Two values differ in a field (layer, batches, shards, total or step) in which they have to be alike."""

    verb: str
    field: str
    first: Value
    other: Value


class Twice(Fact):
    """Some batches or shards (`field`) are in two of the values that are to be put together."""

    verb: str
    field: str
    items: frozenset[int]
    both: tuple[Value, ...]


class NoSum(Fact):
    """What is to be summed is not a sum over anything, so there is nothing to add up."""

    thing: object


class Undivided(Fact):
    """So many things (`what`: batches, columns) cannot be cut into `total` equal parts."""

    value: Value | None
    what: str
    size: int
    total: int


class NoShard(Fact):
    """There is no such shard. `loads`: of a weight that is loaded, and not cut out of one that is there."""

    shard: Any
    total: Any
    loads: bool


class TooManyShards(Fact):
    """A weight is cut into more shards than there may be."""

    shard: int
    total: int


class Gaps(Fact):
    """Shards that do not lie side by side are to be cut."""

    value: Value


class NoKind(Fact):
    """A value is of none of the five kinds, but of a class of the student's."""

    value: Value


class NoValue(Fact):
    """There cannot be a value with these fields: `field` has to be a number from `low` up, or some of `most`."""

    value: Value
    field: str
    low: int | None
    most: object


# -- one operation ------------------------------------------------------------------------------------------------


class WrongKind(Fact):
    """What was given in a role of an operation is not of the kind that it needs."""

    role: str
    wanted: type[Value]
    value: object
    op: str


class NoLayer(Fact):
    """The model has no layer of that number."""

    layer: int
    layers: int


class NotALayer(Fact):
    """Something else stands where the layer belongs; or a rank, where a message goes (`layers` 0)."""

    op: str
    layer: object
    layers: int


class WrongLayer(Fact):
    """A value belongs to another layer than `layer`, the one that the operation needs in this role."""

    op: str
    role: str
    value: Value
    layer: int


class Incomplete(Fact):
    """A shard where the whole weight is needed."""

    weight: Weight


class NoDim(Fact):
    """A weight is cut along its rows or its columns, and along nothing else."""

    dim: object


class Owes(Fact):
    """A partial sum, where an operation needs the sum."""

    role: str
    value: Value


class OtherFeatures(Fact):
    """What an operation takes has other features than the part of the weight that it is for (`of`: in or out)."""

    role: str
    value: Value
    weight: Weight
    of: str


class NotBatches(Fact):
    """What names batches is not a collection of numbers."""

    batches: object


class NoBatch(Fact):
    """Some of the batches that are named are not there, nor among the `padding` after them."""

    wrong: frozenset[Any]
    named: frozenset[Any]
    batches: int
    padding: int


class EndlessBatches(Fact):
    """More than `most` batches are named, which does not end."""

    batches: int
    most: int


class NothingToGet(Fact):
    """The input data of no batch at all is asked for."""


class Unread(Fact):
    """Input data is taken for nothing (`op`) where reading it costs something."""

    op: str


class OtherBatches(Fact):
    """The input and the gradient that backward, or half of it (`op`), got are of different batches."""

    op: str
    inp: Value
    grad: Value


class OtherParts(Fact):
    """Two values that an operation takes are of different parts of a dim (`role`)."""

    op: str
    role: str
    one: Value
    other: Value


class Broken(Fact):
    """An operation mixes what belongs together along a dim (`number` pieces of it), and got a part of a piece."""

    op: str
    role: str
    value: Value
    number: int


class NotCut(Fact):
    """A value is to be cut along a dim (`role`) that it does not have, or where it has not all of `wanted`."""

    value: Value
    role: object
    wanted: tuple[object, object] | None


class NothingBeside(Fact):
    """Something is given beside the input to a layer of a kind that takes nothing besides."""

    op: str
    kind: str
    other: object


class Unweighted(Fact):
    """A layer of a kind without a weight is asked for one."""

    op: str
    layer: int
    kind: str


class Unsummed(Fact):
    """A gradient lacks batches in an update."""

    grad: WeightGrad
    batches: int


class Lacks(Fact):
    """A gradient has all batches in an update, but only `part` of something else that it is a sum over."""

    grad: WeightGrad
    part: Part


class Uncovered(Fact):
    """The gradient is not that of all of the weight that is to be updated."""

    grad: WeightGrad
    weight: Weight


class Stateless(Fact):
    """The optimizer state is not that of all of the weight that is to be updated."""

    state: OptState
    weight: Weight


class OtherStep(Fact):
    """The weight and the optimizer state have had different numbers of updates."""

    weight: Weight
    state: OptState


# -- stores -----------------------------------------------------------------------------------------------------


class Deleted(Fact):
    """A value is asked for that was in a store under a key, and was deleted. `fix`: what to do about that alone."""

    store: int
    key: object
    number: int
    fix: str


class Missing(Fact):
    """A value is asked for that never was in a store under this key."""

    store: int
    key: object


class NotStored(Fact):
    """What is no value at all was put into a store of values of a kind."""

    kind: type[Value]
    thing: object


# -- collectives --------------------------------------------------------------------------------------------------


class NotOneForEach(Fact):
    """An exchange takes a value for each member, and got something else."""

    row: Collective
    value: object
    count: int
    members: int


class NoBucket(Fact):
    """A bucket is a list of values, and this is none, or an empty one."""

    row: Collective
    value: object


class OtherBucket(Fact):
    """Two members bring buckets of different lengths."""

    count: int
    other: int


class ToldLayer(Fact):
    """A collective was told another layer than that of the value."""

    op: str
    value: Value
    layer: object


class Disagree(Fact):
    """Two members of a group call different collectives, or the same one of different things."""

    first: Member
    other: Member


class NotSized(Fact):
    """What a member brings to be overwritten is not as large as what the root brings."""

    value: Value
    root: Value


class Unlawful(Fact):
    """What two members bring cannot be put together: `why` is the law's own complaint."""

    row: Collective
    left: Member
    right: Member
    why: Fact | Words
