"""Facts of collectives: what their members bring does not fit."""

from __future__ import annotations

from lib.errors.arguments import written
from lib.errors.exceptions import Fact, Words
from lib.errors.wording import amount, counted, with_article
from lib.values.collectives import COLLECTIVES, Collective
from lib.values.dims import NAMES
from lib.values.rules import Member
from lib.values.values import Activation, Value, describe

__all__ = ["Disagree", "NoBucket", "NotOneForEach", "NotSized", "OtherBucket", "ToldLayer", "Unlawful"]

SAME_BUCKETS = "every rank fills its buckets with the same layers, in the same order"


class NotOneForEach(Fact):
    """An exchange takes a value for each member, and got something else."""

    row: Collective
    value: object
    count: int
    members: int
    place: int

    def words(self) -> Words:
        title, got = with_article(self.row.title), counted(self.count, "value") if self.count else describe(self.value)
        wanted = self.row.takes(self.place, self.members)
        if not wanted:
            return Words(
                f"{title} is between neighbours, and a group of one member has none",
                expected="a group of two members or more",
                got=f"a group of {self.members}",
                fix="leave the exchange out where there is one rank: if model.RANKS > 1",
            )
        if self.row.origins is not None:
            beside = ["before", "after"] if wanted > 1 else ["before" if self.place else "after"]
            return Words(
                f"{title} takes one value for each neighbour of a member",
                expected=f"a list of {counted(wanted, 'value')}, for the member {' and for the one '.join(beside)} it",
                got=got,
                fix="the first and the last member of a group have one neighbour, and bring one edge",
            )
        return Words(
            f"an {self.row.title} takes one value for each of the {self.members} members",
            expected=f"a list of {self.members} values, in the order of the group",
            got=got,
            fix="value number i goes to member number i",
        )


class NoBucket(Fact):
    """A bucket is a list of values, and this is none, or an empty one."""

    row: Collective
    value: object

    def words(self) -> Words:
        single = isinstance(self.value, Value)
        return Words(
            f"a {self.row.title} takes a list of gradients, and got {'a single one' if single else 'none'}",
            expected="a list of gradients, of as many layers as you like",
            got=describe(self.value),
            fix="put brackets round it: model.allreduce_bucket([gradient, another])"
            + ("; for one gradient\nthere is model.allreduce(gradient, layer)" if single else ""),
        )


class OtherBucket(Fact):
    """Two members bring buckets of different lengths."""

    count: int
    other: int

    def words(self) -> Words:
        return Words(
            "the buckets have different lengths",
            expected=f"as many gradients in both: {self.count}",
            got=f"{self.count} and {self.other}",
            fix=SAME_BUCKETS,
        )


class ToldLayer(Fact):
    """A collective was told another layer than that of the value."""

    op: str
    value: Value
    layer: object

    def words(self) -> Words:
        value = self.value
        layer = written(self.layer) if isinstance(self.layer, int) else self.layer
        return Words(
            f"{self.op} was told layer {layer}, but the value is of another layer",
            expected=f"a value of layer {layer}",
            got=describe(value),
            fix=f"say the layer of the value, which is {value.layer}, or bring the value of layer {layer}",
        )


class Disagree(Fact):
    """Two members of a group call different collectives, or the same one of different things."""

    first: Member
    other: Member

    def words(self) -> Words:
        first, other = self.first, self.other
        fix = "every rank must make the same collective calls in the same order; look for one that is skipped or extra"
        if first.op != other.op:
            but, same = "call different ones", "the same operation"
        elif first.layer != other.layer:
            but, same = "for different layers", "the same layer"
            if COLLECTIVES[first.op].bucket:
                fix = SAME_BUCKETS
        elif first.group != other.group:
            but, same = "name its group in different orders", "the same order of ranks"
            fix = "write the group in the same way on every rank: as an axis of the mesh, or as one list of ranks;\n"
            fix += "its order says whose shard is which"
        elif first.said != other.said and COLLECTIVES[first.op].along:
            but, same = "cut along different dims", "the same dim"
            fix = "name the same dim on every rank, or on none"
        elif first.said != other.said:
            but, same = "with different roots", "the same root"
            what = (COLLECTIVES[first.op].root or ("",))[0]
            fix = f"the root is the rank {what}: name the same one on every rank"
        else:
            but, same = "with different kinds of value", "the same kind of value"
            fix = "bring the value of the same store on every rank"
        return Words(
            f"ranks {first.rank} and {other.rank} meet in a collective, but {but}",
            expected=f"{same} from every member of the group",
            got=f"rank {first.rank}: {_call(first, other)}\nrank {other.rank}: {_call(other, first)}",
            fix=fix,
        )


def _call(member: Member, beside: Member) -> str:
    row = COLLECTIVES[member.op]
    what = describe(member.value) if isinstance(member.value, Value) or row.bucket else type(member.value).__name__
    root = f", root={member.said}" if row.root else f', dim="{NAMES[member.said]}"' if member.said else ""
    group = "" if member.group == beside.group else f", group={list(member.group)}"
    what = what if row.bucket or isinstance(member.value, Activation) else with_article(what)
    return f"{member.op}(layer={member.layer}{root}{group}) with {what}"


class NotSized(Fact):
    """A member brings a value to be overwritten that is not as large as the root's."""

    value: Value
    root: Value

    def words(self) -> Words:
        return Words(
            "what a member brings is not as large as what the root brings",
            expected=f"a value of {amount(self.root.elements())} elements, to be overwritten by the root's",
            got=f"{describe(self.value)}: {amount(self.value.elements())} elements",
            fix="bring the value that the root's replaces, of the same shape: the old weight for a new one",
        )


class Unlawful(Fact):
    """The values of two members cannot be put together: `why` is the law's own complaint."""

    row: Collective
    left: Member
    right: Member
    why: Fact | Words

    def words(self) -> Words:
        left, right = self.left, self.right
        pair = self.why if isinstance(self.why, Words) else self.why.words()
        return Words(
            f"the {self.row.title} of layer {left.layer} cannot be done: {pair.what}",
            expected=pair.expected,
            got=f"rank {left.rank}: {describe(left.value)}\nrank {right.rank}: {describe(right.value)}",
            fix=pair.fix,
        )
