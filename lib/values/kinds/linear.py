"""Layers that work on each row by itself: linear ones, norms, a residual connection, and the two ends of a language
model.

Linear layers are parallel as in Megatron: a shard of the weight's columns gives a shard of the features, a shard of
its rows a partial sum. Backwards it is the other way round: the gradient of the input is partial over the columns that
are not here.

An embedding and a loss may be cut along the vocabulary, as in Megatron: the embedding gives a partial sum, and so does
the loss, with the logarithm of its sum of exponentials. The linear layer between them gives the logits, as features.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from lib.values.dims import DIMS
from lib.values.kinds.kind import Layer, LayerKind, Sum, fits, fraction, part
from lib.values.placement import Place

if TYPE_CHECKING:
    from lib.values.values import Value


class Linear(LayerKind):
    """y = x W: rows of features."""

    name, free = "linear", ("features",)

    def describe(self) -> None:
        inputs, outputs = self.layer.inputs, self.layer.outputs
        # y = x W is a sum over the rows of W, dx = dy W^T over its columns: those that are not here are missing terms.
        self.opens = (Sum(self.dim("terms", inputs)),)
        self.owes = ((Sum(self.dim("terms", outputs)),),)
        self.weight_dims = self.dim("in", inputs), self.dim("out", outputs)
        self.work *= outputs

    def output_of(self, inp: Value, other: Any) -> Place:
        if other.place.complete and inp.place.plain and inp.place.schema is self.output:
            return inp.place  # nothing is cut: by far the most common case
        fits("input of forward", inp, other, "in")
        parts = {**inp.place.named, **self.given("forward", inp)}
        return self.output.at({**parts, "features": part(other, "out"), "terms": part(other, "in")})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Any) -> tuple[Place | None, Place]:
        whole = other is not None and other.place.complete and inp.place is grad.place and inp.place.plain
        if whole and inp.place.schema is self.gradients[0]:  # only batches are cut: by far the most common case
            return self.by_weight(inp.place.named), inp.place
        sums = self.sums_of(op, inp, grad)
        # dW = x^T dy has the features of x as rows, and those of dy as columns. It is a sum over dy's part of a grid: a
        # halo makes rows of x overlap, but not those of dy.
        by_weight = self.by_weight({**grad.place.named, "in": inp.place.dims[-1], "out": grad.place.dims[-1]})
        if other is None:  # the weight half alone
            return by_weight, inp.place
        fits(f"input of {op}", inp, other, "in")
        fits(f"gradient given to {op}", grad, other, "out")
        parts = {**inp.place.named, **sums, "features": part(other, "in"), "terms": part(other, "out")}
        return by_weight, self.back(0, parts)

    def share(self, places: Sequence[Place]) -> Fraction:
        weight = places[-1]
        columns = weight.part("out") or weight.dims[-1]  # without the weight, those of the gradient
        rows = weight.part("in") or places[0].dims[-1]
        return self.share_of_points(places) * fraction(rows) * fraction(columns)


class Norm(LayerKind):
    """Each row divided by the root of the mean of its squares, times a gain for each feature."""

    name, square = "norm", True

    def describe(self) -> None:
        self.weight_dims = (self.dim("in", self.layer.inputs),)

    def fit(self, op: str, inp: Value, other: Any) -> None:
        # The mean is over the whole row; a norm of features that are cut would need a collective within the layer.
        self.unbroken(op, inp, "features", 1)
        if other is not None:
            fits(f"input of {op}", inp, other, "in")

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Any) -> tuple[Place | None, Place]:
        return self.by_weight(inp.place.named), self.back(0, inp.place.named)


class LayerNorm(Norm):
    """Each row less its mean, divided by the root of its variance, times a gain for each feature."""

    name = "layer_norm"


class Add(LayerKind):
    """A residual connection: its input and an earlier activation, added."""

    name, takes, square, free = "add", "activation", True, tuple(DIMS)

    def describe(self) -> None:
        if self.dims != self.other:
            raise ValueError("add takes two activations of one size")

    def output_of(self, inp: Value, other: Any) -> Place:
        self.alike("forward", inp, other, *inp.place.named)
        return super().output_of(inp, other)

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Any) -> tuple[Place | None, Place]:
        # The derivative of a sum: both get the gradient as it is.
        return self.back(1, grad.place.named), self.back(0, grad.place.named)


class Embedding(LayerKind):
    """The rows of a table that the tokens name, one number a row. Those numbers have no gradient."""

    name, free = "embedding", ("features",)

    @classmethod
    def width(cls, layer: Layer) -> int:
        return 1

    def describe(self) -> None:
        vocabulary, features = self.layer.inputs, self.layer.outputs
        self.opens = (Sum(self.dim("vocabulary", vocabulary)),)
        self.weight_dims = self.dim("in", vocabulary), self.dim("out", features)
        self.work = self.layer.points * features

    def output_of(self, inp: Value, other: Any) -> Place:
        return self.output.at({**inp.place.named, "features": part(other, "out"), "vocabulary": part(other, "in")})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Any) -> tuple[Place | None, Place | None]:
        rows = {} if other is None else {"in": part(other, "in")}
        # Only rows of the table that are here have been looked up, so the gradient has these.
        return self.by_weight({**inp.place.named, "out": grad.place.dims[-1], **rows}), None


class CrossEntropy(LayerKind):
    """The loss of each row, from its logits: partial if only part of the vocabulary is here. It takes no time, like any
    loss."""

    name, takes, softmax, free = "cross_entropy", "", True, ("features",)

    def describe(self) -> None:
        if self.layer.outputs != 1:
            raise ValueError("cross_entropy gives one number for each row: outputs=1")
        self.opens = (Sum(self.dim("vocabulary", self.layer.inputs)),)
        self.running = 1  # beside the logit of the target the logarithm of the sum of exponentials
        self.work = 0

    def output_of(self, inp: Value, other: Any) -> Place:
        logits = part(inp, "features")
        return self.output.at({**inp.place.named, "features": self.gives["features"].whole, "vocabulary": logits})

    # softmax - one-hot: each part of the vocabulary has its own part, once the sum of exponentials is known.
