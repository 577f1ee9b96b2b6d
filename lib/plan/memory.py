"""The bytes of a training step on the GPU that holds most, by kind: a lower bound, without caches and workspaces.

State: 2 bytes a weight, a gradient, and 12 for Adam (a copy in fp32 and two moments), which `zero` shards (Rajbhandari
and others, ZeRO, arXiv 1910.02054, figure 1). Activations: Korthikanti and others, Reducing Activation Recomputation
in Large Transformer Models, arXiv 2205.05198, equations 1 to 6, with other shapes of layers beside GPT's.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from lib.plan.records import GIB, Plan, Transformer


class Memory(NamedTuple):
    """The bytes of the GPU of a plan that holds most. `logits` are those of the last stage, where that is the one."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float

    @property
    def total(self) -> float:
        """All of them together."""
        return sum(self)

    def __str__(self) -> str:
        """Say the total in GiB, and what it is made of, the largest first."""
        parts = sorted(zip(self, self._fields, strict=True), reverse=True)
        return f"{self.total / GIB:.1f} GiB: " + ", ".join(f"{name} {size / GIB:.1f}" for size, name in parts)


def layer_activations(model: Transformer, plan: Plan) -> tuple[float, float, float]:
    """Return the bytes that a mean layer keeps of a microbatch: what sequence parallelism shards, what tensor
    parallelism shards, and the square of attention. With no parallelism GPT's sum is s·b·h·(34 + 5·a·s/h)."""
    tokens, h, t = plan.tokens, model.hidden, plan.tp
    rows = 8 * h + 2 * h * model.dropout  # two norms, the inputs of two products, 2 bytes each; two masks of dropout
    heads = (2 * model.heads + 2 * model.groups) * model.d / t  # q, k, v, and the result
    if model.kv_lora:
        heads = model.q_lora + model.kv_lora + model.heads * (4 * model.d + 2 * model.rope_dim) / t
    sorted_copies = model.sparse * 2 * model.experts_per_token * h
    mlp = 2 * model.width * (3 if model.gated else 2) + sorted_copies
    inside = tokens * (2 * heads + mlp / t) - _cheap(model, plan)
    square = 0 if plan.stack.flash else 5 * model.heads * plan.sequence * tokens / t
    return tokens * rows / (t if plan.sp else 1), inside, square


def _cheap(model: Transformer, plan: Plan) -> float:
    """Bytes of a layer that selective recomputation does not keep, where flash attention has no square to save."""
    if not (plan.stack.flash and plan.recompute == "selective"):
        return 0.0
    tokens, t = plan.tokens, plan.tp
    norms = 4 * model.hidden / (t if plan.sp else 1)
    latent = 2 * model.heads * (3 * model.d + 2 * model.rope_dim) / t if model.kv_lora else 0
    return tokens * (norms + 2 * model.width * model.gated / t + latent)


def state_bytes(weights: float, shard: int, zero: int, gradient: int = 4) -> tuple[float, float, float]:
    """Return the bytes of so many weights, of their gradients and of Adam's state, of which each of `shard` ranks has
    its part from a stage of ZeRO on: 1 shards Adam's, 2 gradients too, 3 weights too.

    Adam has a copy in fp32 and two moments, 12 bytes a weight. FSDP with gradients in fp32 has no weights in bf16 but
    those that it gathers: its shard is the copy.

    >>> [round(sum(state_bytes(7.5e9, 64, zero, gradient=2)) / 1e9, 1) for zero in (0, 1, 2, 3)]
    [120.0, 31.4, 16.6, 1.9]
    """
    kept, adam = (4, 8) if zero == 3 and gradient == 4 else (2, 12)
    parts = ((kept, 3), (gradient, 2), (adam, 1))
    kinds = [size * weights / (shard if zero >= sharded_from else 1) for size, sharded_from in parts]
    return kinds[0], kinds[1], kinds[2]


def layers_in_flight(model: Transformer, plan: Plan) -> int:
    """Count the layers whose activations a rank holds at once at most, each microbatch for itself.

    With v stages a rank 1F1B holds 1 + (p - 1)/(p·v) times the model's layers, as in section 4.2.3 of 2205.05198.
    """
    if plan.pp == 1:
        return model.layers
    p, v, m = plan.pp, plan.v, plan.microbatches
    stages = {"gpipe": m * v, "zb-h2": min(2 * p - 1, m), "dualpipe": min(p + 1, m)}
    usual = min(p * v + p - 1, m * v) if v > 1 else min(p, m)
    return stages.get(plan.schedule, usual) * ceil(model.layers / (p * v))


def memory_of(model: Transformer, plan: Plan) -> Memory:
    """Return the bytes by kind of the GPU that holds most."""
    common, routed, _ = model.layer_weights
    t, layers = plan.tp, ceil(model.layers / plan.pp)
    copies = 2 if plan.schedule == "dualpipe" else 1  # a rank has a stage of each direction
    vocabulary = model.vocab * model.hidden / t
    ends = vocabulary * (1 if plan.pp > 1 or model.tied else 2)
    shard, gradient = plan.dp * plan.cp, plan.stack.gradient
    mine = state_bytes(copies * layers * common / t + ends, shard, plan.zero, gradient)
    experts = state_bytes(copies * layers * routed / plan.ep, max(1, shard * t // plan.ep), plan.zero, gradient)
    weights, gradients, optimizer = (sum(pair) for pair in zip(mine, experts, strict=True))
    if plan.zero == 3:  # two layers are gathered in bf16 at a time, and the two ends
        weights += 4 * (common / t + routed / plan.ep) + (2 * ends if plan.pp == 1 else 0)
    rows, inside, square = layer_activations(model, plan)
    whole, tokens = rows + inside + square, plan.tokens
    inputs = 2 * model.hidden * tokens
    kept, at_work = {
        "none": (whole, 0),
        "selective": (rows + inside, square),
        "half": ((whole + inputs) / 2, whole),
        "full": (inputs / (t if plan.sp else 1), whole),
    }[plan.recompute]
    kept *= plan.stack.stored
    logits = 10 * tokens * model.vocab / t  # bf16, a copy in fp32, and its gradient
    held = layers_in_flight(model, plan) * kept + at_work
    first, last = (held, 0.0), (kept * layers + at_work, logits)
    activations, logits = (held, logits) if plan.pp == 1 else max(first, last, key=sum)
    return Memory(weights, gradients, optimizer, activations, logits)
