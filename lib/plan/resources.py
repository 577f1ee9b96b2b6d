"""What a plan demands of a GPU, in closed forms: the least bytes that it holds, and the seconds of a layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, exp, log
from typing import Any, Final, NamedTuple

from lib.plan.records import GIB, Cluster, Matrix, Plan, Transformer

# -- bytes, by kind -------------------------------------------------------------------------------------------------

# A lower bound, without caches and workspaces. State: 2 bytes a weight, a gradient, and 12 for Adam (a copy in fp32 and
# two moments), which `zero` shards (ZeRO, arXiv 1910.02054, figure 1). Activations: Korthikanti and others, Reducing
# Activation Recomputation in Large Transformer Models, arXiv 2205.05198, equations 1 to 6, and layers beyond GPT's.


class Memory(NamedTuple):
    """The bytes of the GPU of a plan that has most. `logits` counts if that is one of the last stage."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float

    @property
    def total(self) -> float:
        """The sum of all kinds."""
        return sum(self)

    def __str__(self) -> str:
        """Return the total in GiB and its parts, the largest first."""
        parts = sorted(zip(self, self._fields, strict=True), reverse=True)
        return f"{self.total / GIB:.1f} GiB: " + ", ".join(f"{name} {size / GIB:.1f}" for size, name in parts)


def layer_activations(model: Transformer, plan: Plan) -> tuple[float, float, float]:
    """Return the bytes that a mean layer keeps of a microbatch: the part that sequence parallelism shards, the part
    that tensor parallelism shards, and the square of attention. Without parallelism GPT has s·b·h·(34 + 5·a·s/h)."""
    tokens, h, t = plan.tokens, model.hidden, plan.tp
    rows = 8 * h + 2 * h * model.dropout  # two norms, the inputs of two products, 2 bytes each; two masks of dropout
    heads = (2 * model.heads + 2 * model.groups) * model.d / t  # q, k, v, and the result
    if model.kv_lora:
        heads = model.q_lora + model.kv_lora + model.heads * (4 * model.d + 2 * model.rope_dim) / t
    sorted_copies = model.sparse * 2 * model.experts_per_token * h
    mlp = 2 * model.width * (3 if model.gated else 2) + sorted_copies
    inside = tokens * (2 * heads + mlp / t)
    if plan.stack.flash and plan.recompute == "selective":  # with no square to save, norms and products go
        norms = 4 * h / (t if plan.sp else 1)
        latent = 2 * model.heads * (3 * model.d + 2 * model.rope_dim) / t if model.kv_lora else 0
        inside -= tokens * (norms + 2 * model.width * model.gated / t + latent)
    square = 0 if plan.stack.flash else 5 * model.heads * plan.sequence * tokens / t
    return tokens * rows / (t if plan.sp else 1), inside, square


def state_bytes(weights: float, shard: int, zero: int, gradient: int = 4) -> tuple[float, float, float]:
    """Return the bytes of weights, of their gradients and of Adam's state on a rank. ZeRO splits them over `shard`
    ranks, stage by stage: 1 shards Adam's state, 2 gradients too, 3 weights too.

    Adam has a copy in fp32 and two moments, 12 bytes a weight. FSDP with gradients in fp32 has weights in bf16 only
    where it gathers them: its shard is the copy.

    >>> [round(sum(state_bytes(7.5e9, 64, zero, gradient=2)) / 1e9, 1) for zero in (0, 1, 2, 3)]
    [120.0, 31.4, 16.6, 1.9]
    """
    kept, adam = (4, 8) if zero == 3 and gradient == 4 else (2, 12)
    parts = ((kept, 3), (gradient, 2), (adam, 1))
    kinds = [size * weights / (shard if zero >= sharded_from else 1) for size, sharded_from in parts]
    return kinds[0], kinds[1], kinds[2]


def layers_in_flight(model: Transformer, plan: Plan) -> int:
    """Count the most layers whose activations a rank holds at once, counting each microbatch separately.

    With v stages a rank, 1F1B holds 1 + (p - 1)/(p·v) times the model's layers (section 4.2.3 of 2205.05198).
    """
    if plan.pp == 1:
        return model.layers
    p, v, m = plan.pp, plan.v, plan.microbatches
    stages = {"gpipe": m * v, "zb-h2": min(2 * p - 1, m), "dualpipe": min(p + 1, m)}
    usual = min(p * v + p - 1, m * v) if v > 1 else min(p, m)
    return stages.get(plan.schedule, usual) * ceil(model.layers / (p * v))


def memory_of(model: Transformer, plan: Plan) -> Memory:
    """Return the bytes of the GPU that has most, by kind."""
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


# -- seconds of a layer and a microbatch ----------------------------------------------------------------------------

# A matrix product reaches a share of the peak that grows with its sides; other kernels move bytes of HBM; a ring moves
# (n - 1)/n of its bytes over the slowest link that it has to cross, and all cards of a host work at once. The software
# decides what hides behind what (`Stack`). `Cluster` explains each constant, and what it was fitted to.


def product(cluster: Cluster, plan: Plan, m: float, matrix: Matrix, times: float = 1) -> float:
    """Return the seconds of a product of m rows with a matrix (N, K): 2·m·N·K FLOP, slower where a side is short."""
    n, k = matrix
    peak = cluster.flops * cluster.gemm * plan.stack.fp8
    return times * 2 * m * n * k / peak * (1 + cluster.half_size * (1 / m + 1 / n + 1 / k))


def ring(size: float, ranks: int, in_a_host: int, cluster: Cluster) -> float:
    """Return the seconds of an all-gather or reduce-scatter of `size` bytes, with `in_a_host` ranks in each host.

    An all-reduce is two of them. NCCL's rings enter and leave a host through all of its cards.
    """
    if ranks <= 1:
        return 0.0
    nvlink = cluster.nvlink * cluster.link_share
    inside = ranks <= in_a_host
    rate = nvlink if inside else min(cluster.nic * in_a_host, nvlink)
    return (ranks - 1) / ranks * size / rate + cluster.collective * (0.5 if inside else 1)


class LayerTime(NamedTuple):
    """The seconds of a mean layer and a microbatch: forward, backward (`weight_half` is the part that no other stage
    waits for), recomputation (`again`), and the communication of each kind that nothing hides."""

    forward: float
    backward: float
    weight_half: float
    again: float
    tp: float
    cp: float
    ep: float

    @property
    def exposed(self) -> float:
        """All communication that nothing hides, a third of it in forward."""
        return self.tp + self.cp + self.ep

    @property
    def total(self) -> float:
        """The whole layer."""
        return self.forward + self.backward + self.again + self.exposed


def layer_time(model: Transformer, cluster: Cluster, plan: Plan) -> LayerTime:
    """Return the seconds of a mean layer and a microbatch."""
    t, stack = plan.tp, plan.stack
    tokens = plan.tokens
    rows = model.hidden / (t if plan.sp else 1)

    # The products: those of attention and the MLP, and those of experts for all tokens that come to a rank.
    def all_of(matrices: Iterable[Matrix], rows: float = tokens, times: float = 1) -> float:
        return sum([product(cluster, plan, rows, matrix, times) for matrix in matrices])

    attention = model.attention(t)
    products = all_of(attention)
    if model.sparse < 1:
        products += (1 - model.sparse) * all_of(model.mlp(model.ffn, t))
    if model.experts:
        here = model.experts / plan.ep
        routed = all_of(model.mlp(model.expert_ffn), tokens / t * model.experts_per_token / here, here)
        shared = model.mlp(model.shared_experts * model.expert_ffn, t) if model.shared_experts else ()
        products += model.sparse * (routed + all_of(shared))

    # The square of attention: flash keeps it on the chip and skips what the mask hides; backward recomputes it.
    hbm = cluster.hbm * cluster.hbm_share
    pairs = plan.tokens * plan.sequence * model.heads / t
    if stack.flash:
        square = pairs * (2 * model.d + model.rope_dim) / (cluster.flops * cluster.attention)
    else:
        score = [(plan.sequence, model.d)]
        square = 2 * all_of(score, plan.sequence, plan.micro * model.heads / t / plan.cp) + 9 * pairs / hbm

    # Everything else reads and writes HBM: norms, residuals, activations, and the sorting of tokens for experts.
    sorting = model.sparse * 8 * model.experts_per_token * model.hidden
    other = (6 if model.gated else 4) * model.width + 4 * model.hidden + sorting
    rest = tokens * (22 * rows + other / t) / hbm

    # Tensor parallel: two all-reduces forward and two backward, one of them hidden by the products of weights.
    all_reduce = (1 - stack.tp_hidden) * 2 * half_all_reduce(model, cluster, plan)
    tp, again = 3 * all_reduce, 0.0
    if plan.recompute == "full":
        again = products + square + rest
        tp += 2 * all_reduce
    elif plan.recompute == "half":
        again = products / 2 + rest
    elif plan.recompute == "selective" and not stack.flash:
        again = square
        tp += 0.5 * all_reduce * plan.sp  # rows are gathered once more
    elif plan.recompute == "selective":
        again = rest / 2 + all_of(attention[1:4:2] if model.kv_lora else ())

    # Context parallel gathers keys and values: forward, again in backward, and sums their gradients.
    keys = model.kv_lora + model.rope_dim if model.kv_lora else 2 * model.groups * model.d / t
    in_a_host = max(1, min(plan.cp, cluster.host_size // t))
    gather = ring(2 * keys * plan.micro * plan.sequence, plan.cp, in_a_host, cluster)
    cp = (1 - stack.cp_hidden) * 3 * gather
    forward, backward = products + square + rest, 2 * products + (2.5 if stack.flash else 2) * square + 2 * rest
    ep = _exchange_with_experts(model, cluster, plan, forward + backward + again)
    return LayerTime(forward, backward, products, again, tp, cp, ep)


def half_all_reduce(model: Transformer, cluster: Cluster, plan: Plan) -> float:
    """Return the seconds of a reduce-scatter or an all-gather of a microbatch's rows over tensor-parallel ranks."""
    return ring(2 * plan.tokens * model.hidden, plan.tp, min(plan.tp, cluster.host_size), cluster)


def _exchange_with_experts(model: Transformer, cluster: Cluster, plan: Plan, work: float) -> float:
    """Return the seconds of a layer's all-to-alls that its work does not hide: tokens out and home, forward and
    backward. A token crosses the network once per host, at most `hosts_per_token`, and NVLink once per expert."""
    if plan.ep == 1:
        return 0.0
    in_a_host = min(plan.ep, cluster.host_size)
    hosts, tokens = plan.ep / in_a_host, plan.tokens / plan.tp
    reached = min(model.hosts_per_token or hosts, hosts, model.experts_per_token)
    network = reached * (1 - 1 / hosts) * tokens * model.hidden / cluster.nic
    nvlink = model.experts_per_token * tokens * model.hidden * (1 - 1 / in_a_host)
    slower = max(network, nvlink / (cluster.nvlink * cluster.link_share))
    each = (1.5 if plan.stack.fp8 > 1 else 2) * slower + cluster.collective * 0.5  # bytes: fp8 out, bf16 home
    wire = each * model.sparse * (6 if plan.recompute == "full" else 4)
    hidden = plan.stack.ep_hidden if plan.schedule == "dualpipe" else 0.0  # a forward beside each backward
    return (1 - hidden) * wire + hidden * max(0, wire - work)


# -- roofline -------------------------------------------------------------------------------------------------------


# Data parallelism sends weights, so more tokens a GPU help; tensor and expert parallelism send tokens, so they do not:
# there the width of the matrices counts (Austin and others, How to Scale Your Model, 2025, on training, GPUs).

Curve = list[tuple[int, float]]
HOSTS: Final = 64
"""The number of hosts over which weights are gathered."""
SEQUENCE: Final = 4096
"""Tokens of a sequence: the width of the square of attention, however many tokens a GPU has."""


def roofline(
    model: Transformer,
    cluster: Cluster,
    tokens: Sequence[int],
    tp: Sequence[int] = (4, 8, 16),
    ep: Sequence[int] = (64,),
) -> dict[str, Curve]:
    """Return for each kind of parallelism a layer's forward time over its communication time, by `tokens` a GPU. Above
    1 the work takes longer, so it can hide the communication; below 1 it cannot."""
    gpus = HOSTS * cluster.host_size
    base, common = Plan(gpus, gpus, SEQUENCE), model.layer_weights[0]

    def layer_of(count: int, **sizes: int) -> LayerTime:
        shares: dict[str, Any] = {"micro": count / SEQUENCE, **sizes}  # a layer can take part of a sequence
        return layer_time(model, cluster, replace(base, **shares))

    gather = ring(2 * common, gpus, cluster.host_size, cluster)
    curves: dict[str, Curve] = {"data": [(count, layer_of(count).forward / gather) for count in tokens]}
    for size in (size for size in tp if model.heads % size == 0):  # the ranks share `size` times the tokens
        layers = [(count, layer_of(size * count, tp=size)) for count in tokens]
        curves[f"tensor {size}"] = [(count, layer.forward / (2 * layer.tp / 3)) for count, layer in layers]
    for size in ep if model.experts else ():
        layers = [(count, layer_of(count, ep=size)) for count in tokens]
        curves[f"expert {size}"] = [(count, layer.forward / (layer.ep / 2)) for count, layer in layers]
    return curves


def hides_from(curve: Curve) -> int | None:
    """Return the tokens from which a curve is at least 1, interpolated by logarithms; None where it never is.

    >>> hides_from([(512, 0.5), (1024, 1.0), (2048, 2.0)])
    1024
    """
    if curve[0][1] >= 1:
        return curve[0][0]
    for (low, below), (high, above) in pairwise(curve):
        if below < 1 <= above:
            share = log(1 / below) / log(above / below)
            return round(exp(log(low) + share * (log(high) - log(low))))
    return None
