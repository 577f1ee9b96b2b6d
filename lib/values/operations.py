"""The table of operations: each row defines an operation completely, except its replay kernel.

The simulator, the rebuild, the forms of a Trace, the costs, the check and the pictures read its properties. No rule
asks for a name; only advice and texts may. The collectives have a table of their own (see collectives).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from lib.record import record, table
from lib.values import rules
from lib.values.collectives import COLLECTIVES
from lib.values.dims import NAMES
from lib.values.laws import cut, gather, piece, reduce
from lib.values.layers import Shape
from lib.values.placement import Elements, give
from lib.values.values import Activation, ActivationGrad, OptState, Value, Weight, WeightGrad


@record(eq=False)
class Operation:
    """One operation that is not a collective.

    `word` is its word in the text of a schedule, `title` and `labels` what pictures call it (without a title its name;
    labels longest first, and none: the batches, with `letter` before them where there is room, or its name), `colour` a
    row of the pictures' palette (what takes time has one of its own), `signature` how a student writes it: a method of
    the model with these `arguments`, by default.

    `rule(shape, layer, *said, *values)` makes what it gives out of values of the kinds that it `takes`: one value, or
    a tuple of them; None where no rule can. Their places follow from the kind of the layer, what is said, and the
    places of values, so a check asks once for what is alike. `says`: what the call says beside its layer and values: ""
    nothing, "batches", "shard": a shard and their number (and the number of a dim, or 1 for columns of a weight that is
    loaded), or "part": the number of a dim and a range of it. `by_kind`: the kind of its layer determines what it takes
    where the table has a weight, and what it gives. `about`: where its layer comes from: the "call", its first "input",
    or its first "output". Its batches are those of its first output.

    `cost` is a field of Costs, or time units of its own, `per_batch` for each of its batches, or `per_weight` by the
    size of its layer's weight; without one it takes no time. `as_loaded`: it computes through a weight, which must not
    have been updated before. `loads`: what it gives was there before the step, once. `free_of`: a field of Costs; if
    that cost is not zero, this free operation is refused. `hands_in`: its input is this rank's result. `made_up`: what
    it gives comes from nowhere; what happened, what would be right, and how to get there. `suspect`: what it gives may
    be dishonest even if its inputs are honest.
    `kind` is "local", "message", "read" (a reader does it, beside the rank's own clock) or "wait".
    """

    name: str
    word: str
    arguments: str
    rule: Callable[..., Any] | None = None
    takes: tuple[type[Value], ...] = ()
    gives: tuple[type[Value], ...] = ()
    says: str = ""
    about: str = "call"
    by_kind: bool = False
    cost: str | float | None = None
    per_batch: bool = False
    per_weight: bool = False
    as_loaded: bool = False
    loads: bool = False
    free_of: str | None = None
    hands_in: bool = False
    made_up: tuple[str, str, str] | None = None
    signature: str = ""
    title: str = ""
    labels: tuple[str, ...] = ()
    letter: str = ""
    colour: str = ""
    kind: str = "local"
    suspect: bool = False

    def __post_init__(self) -> None:
        # Operations that take no time are only marks in a picture, and share one colour.
        own = self.name if self.cost is not None or self.kind != "local" else "other"
        give(self, title=self.title or self.name.replace("_", " "), colour=self.colour or own)
        call = f"{'' if self.kind == 'local' else 'await '}model.{self.name}({self.arguments})"
        computes = self.cost is not None and Weight in self.takes and Weight not in self.gives
        give(self, signature=self.signature or call, as_loaded=computes)
        give(self, suspect=self.made_up is not None or self.free_of is not None)

    @property
    def has_batches(self) -> bool:
        """Tell whether its batches are named in its word and in sentences about it."""
        return self.per_batch or self.says == "batches"

    def work(self, shape: Shape, layer: int | None, batches: int, values: Sequence[Value]) -> Elements:
        """Return the factor of its price: by batch, or once, in proportion to the size of its layer and to the part of
        the layer that its values are."""
        if not self.per_batch:
            return shape.kinds[layer or 0].updates(values) if self.per_weight else 1
        if not values:
            return batches
        kind = shape.kinds[layer or 0]
        # By far the most common: all of a layer of the usual size.
        if kind.usual and values[-1].place.complete and values[0].place.plain:
            return batches
        return kind.batches_of(batches, values)

    def inputs(self, shape: Shape, layer: int | None) -> int:
        """Return how many values it takes, for a layer."""
        if self.by_kind and layer is not None and 0 <= layer < shape.layers:
            return len(self.takes) - (not shape.kinds[layer].takes)
        return len(self.takes)

    def fits(self, shape: Shape, layer: int | None, count: int) -> bool:
        """Tell whether it may have `count` inputs, for a layer: backward needs no input if its kind keeps none."""
        if count == self.inputs(shape, layer):
            return True
        kinds = shape.kinds[layer : layer + 1] if layer is not None and self.by_kind else ()
        return count == 1 and ActivationGrad in self.takes and not all(kind.keeps for kind in kinds)

    def make(
        self, shape: Shape, layer: int | None, batches: frozenset[int], arg: tuple[int, ...], values: Sequence[Value]
    ) -> Sequence[Value]:
        """Return what it gives, by its rule."""
        assert self.rule is not None, f"nothing makes what {self.name} gives"
        # One signature for all rules, so that a check can call any of them by what a Trace says of an event.
        said = () if not self.says else (batches,) if self.says == "batches" else arg
        made: Any = self.rule(shape, layer, *said, *values) if said else self.rule(shape, layer, *values)
        return made if type(made) is tuple else (made,)  # pyright: ignore[reportUnknownVariableType]


# Rules of operations that do not name their layer, in the form of the others.
def _get_activation(shape: Shape, _: Any, batches: Iterable[int]) -> Activation:
    return rules.get_activation(shape, batches)


def _loss(shape: Shape, _: Any, inp: Any) -> ActivationGrad:
    return rules.loss(shape, inp)


def _add(shape: Shape, _: Any, *values: Value) -> Value:
    return reduce(*values)


def _combine(shape: Shape, _: Any, *values: Value) -> Value:
    return gather(*values)


def _cut(shape: Shape, _: Any, dim: int, low: int, high: int, value: Value) -> Value:
    return piece(value, NAMES[dim], low, high)


def _shard(shape: Shape, _: Any, shard: int, total: int, *rest: Any) -> Value:
    return cut(rest[-1], shard, total, NAMES[cast(int, rest[0])] if len(rest) > 1 else None)


ARGUMENTS = {"": (0,), "batches": (0,), "shard": (2, 3), "part": (3,)}
"""How many numbers stand in the argument of an event, for each `says` of a row."""
BACK = "layer, activation, gradient"
PASS = Activation, ActivationGrad, Weight


def _timed(
    name: str, word: str, arguments: str, rule: Any, takes: tuple[type[Value], ...], gives: Any, **more: Any
) -> Operation:
    """Return an operation of a layer whose time for a batch is the field of Costs with its name."""
    by_kind = Weight in takes
    return Operation(name, word, arguments, rule, takes, gives, cost=name, per_batch=True, by_kind=by_kind, **more)


OPERATIONS: Final = table(
    (
        Operation(
            "load_weights", "W", "layer, shard, total", rules.load_weights, (), (Weight, OptState), "shard", loads=True
        ),
        Operation(
            "get_activation", "I", "batches", _get_activation, (), (Activation,), "batches", "output",
            cost="to_device", per_batch=True, loads=True, free_of="read", colour="read",
        ),
        # No time on the rank's own clock: the reader works beside it, as a data loader's processes do.
        Operation(
            "read", "D", "batches", _get_activation, (), (Activation,), "batches", "output",
            loads=True, kind="read",
        ),
        _timed("forward", "F", "layer, activation, weight", rules.forward, (Activation, Weight), (Activation,)),
        Operation("loss", "X", "activation", _loss, (Activation,), (ActivationGrad,), about="input", cost="loss"),
        _timed("backward", "B", f"{BACK}, weight", rules.backward, PASS, (WeightGrad, ActivationGrad)),
        # Zero bubble's B and W (Qi et al. 2023): only the first of the halves keeps the stage before waiting.
        _timed(
            "backward_input", "BI", f"{BACK}, weight", rules.backward_input, PASS, (ActivationGrad,),
            title="input half", letter="I",
        ),
        _timed(
            "backward_weight", "BW", BACK, rules.backward_weight, PASS[:2], (WeightGrad,),
            title="weight half", letter="W",
        ),
        Operation(
            "update", "U", "layer, weight_gradient, weight, opt_state", rules.update,
            (WeightGrad, Weight, OptState), (Weight, OptState), cost="update", per_weight=True, labels=("update", "U"),
        ),
        Operation(
            "fake_grad", "Z", "layer, batches", rules.fake_grad, (), (WeightGrad,), "batches",
            made_up=(
                "a gradient was made up with fake_grad",
                "gradients that backward gives",
                "sum what backward gives, over the batches or over the ranks; fake_grad is for the sandbox",
            ),
        ),
        Operation("set_final_weight", "E", "layer, weight", rules.final, (Weight,), hands_in=True),
        Operation("add", "P", "", _add, (Value, Value), (Value,), about="input", signature="one + other"),
        Operation(
            "combine", "C", "", _combine, (Value, Value), (Value,), about="input", signature="one.combine(other)"
        ),
        Operation(
            "shard", "K", "", _shard, (Value,), (Value,), "shard", "input", signature="value.shard(shard, total)"
        ),
        Operation("cut", "KC", "", _cut, (Value,), (Value,), "part", "input", signature="value.cut(dim, low, high)"),
        # No rule can make it, so a Trace has to state its value; its results count only in a sandbox.
        Operation(
            "foreign", "Q", "", gives=(Value,), about="output", signature="Weight(layer, ...)",
            made_up=(
                "a value was made by hand",
                "values that come from the operations of the model",
                "take it from an operation: load_weights, forward, backward, update or a collective",
            ),
        ),
        Operation("wait", "=", "", kind="wait", signature="await work"),
        Operation("pass_to", "S", "rank, value", title="send", labels=("send",), kind="message"),
        Operation("receive", "R", "rank", labels=("recv",), kind="message"),
    )
)  # fmt: skip


def _names(holds: Callable[[Operation], bool]) -> frozenset[str]:
    return frozenset(name for name, row in OPERATIONS.items() if holds(row))


LOADS: Final = _names(lambda row: row.loads and not {Weight, OptState}.isdisjoint(row.gives))
"""The operations that load what is at rest on a rank: weights and optimizer states, but not data."""
DATA: Final = _names(lambda row: row.loads) - LOADS
"""The operations that load data."""
UPDATES: Final = _names(lambda row: OptState in row.takes and OptState in row.gives)
"""The operations that update an optimizer state."""
BY_WEIGHT: Final = _names(lambda row: row.per_batch and WeightGrad in row.gives)
"""The operations that compute gradients of weights: backward, and its weight half."""
BY_INPUT: Final = _names(lambda row: row.per_batch and ActivationGrad in row.gives)
"""Those that compute the gradient of a layer's input: backward, and its input half."""
HANDS_IN: Final = _names(lambda row: row.hands_in)
COMPUTE: Final = _names(lambda row: row.cost is not None and not row.loads)
LOCAL: Final = _names(lambda row: row.kind == "local")
MESSAGES: Final = _names(lambda row: row.kind == "message")
READS: Final = _names(lambda row: row.kind == "read")
COMMUNICATION: Final = MESSAGES | READS | COLLECTIVES.keys()
"""The operations that a call issues and an await waits for: collectives, messages and reads."""
TIMED: Final = COMPUTE | COMMUNICATION
"""The operations at whose start memory is sampled, as in the original. Loads are not among them."""


def calls() -> dict[str, str]:
    """Return the call of each operation of a Model, as in `model.allreduce(gradient, layer)`."""
    return {name: signature.removeprefix("await ") for name, signature in signatures().items()}


def signatures() -> dict[str, str]:
    """Return how a student writes each operation of a Model: first those without communication."""
    own = {row.name: row.signature for row in OPERATIONS.values() if row.signature.startswith("model.")}
    messages = {row.name: row.signature for row in OPERATIONS.values() if row.kind in ("message", "read")}
    return own | {row.name: row.signature for row in COLLECTIVES.values()} | messages
