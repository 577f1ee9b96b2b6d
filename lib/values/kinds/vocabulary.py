"""The two ends of a language model: an embedding, and the loss of each row over a vocabulary.

Either may be cut along the vocabulary, as Megatron does: an embedding gives a partial sum, as does the loss, which has
the logarithm of its sum of exponentials besides. The layer between them, a linear one, gives the features that are the
logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib.values.kinds.kind import Layer, LayerKind, Sum, part
from lib.values.kinds.linear import same
from lib.values.placement import Place

if TYPE_CHECKING:
    from lib.values.values import Value

__all__ = ["CrossEntropy", "Embedding"]


class Embedding(LayerKind):
    """The rows of a table that the tokens name, one number a row; nobody needs a gradient of those."""

    name = "embedding"

    @classmethod
    def width(cls, layer: Layer) -> int:
        return 1

    def describe(self) -> None:
        vocabulary, features = self.layer.inputs, self.layer.outputs
        self.opens = (Sum("vocabulary", self.dim("vocabulary", vocabulary)),)
        self.weight_dims = (("in", self.dim("in", vocabulary)), ("out", self.dim("out", features)))
        self.work = self.layer.points * features

    def output_of(self, inp: Value, other: Value | None) -> Place:
        return self.output.at({**same(inp), "features": part(other, "out"), "vocabulary": part(other, "in")})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place | None]:
        self.alike(op, inp, grad, *same(inp))
        assert self.weight_gradient is not None, "an embedding has a table"
        parts = {**same(inp), "out": grad.place.dims[-1]}
        if other is not None:
            parts["in"] = part(other, "in")
        return self.weight_gradient.at(parts), None


class CrossEntropy(LayerKind):
    """The loss of each row, of its logits: partial over a vocabulary that is not all here. It takes no time, as any
    loss."""

    name, takes, softmax = "cross_entropy", "", True

    def describe(self) -> None:
        if self.layer.outputs != 1:
            raise ValueError("cross_entropy gives one number for each row: outputs=1")
        self.opens = (Sum("vocabulary", self.dim("vocabulary", self.layer.inputs)),)
        self.running = 1  # beside the logit of the target the logarithm of the sum of exponentials
        self.work = 0

    def output_of(self, inp: Value, other: Value | None) -> Place:
        return self.output.at({**same(inp), "vocabulary": part(inp, "features")})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        self.alike(op, inp, grad, *same(inp))
        return None, self.back(0, inp.place.named)
