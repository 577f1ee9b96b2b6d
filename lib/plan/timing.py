"""The seconds of a training step, in closed forms: of a layer, of the stages of a pipeline, and of the whole.

A matrix product reaches a share of the peak that grows with its sides; other kernels move bytes of HBM; a ring moves
(n - 1)/n of its bytes over the slowest link that it has to cross, and all cards of a host work at once. What is hidden
behind what is the software's to say (`Stack`). What each constant is, and what it was fitted to: `Cluster`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from lib.plan.memory import Memory, memory_of
from lib.plan.records import Cluster, Matrix, Plan, Transformer


def product(cluster: Cluster, plan: Plan, m: float, matrix: Matrix, times: float = 1) -> float:
    """Return the seconds of a product of m rows with a matrix (N, K): 2·m·N·K FLOP, and less of the peak where a side
    is short."""
    n, k = matrix
    peak = cluster.flops * cluster.gemm * plan.stack.fp8
    return times * 2 * m * n * k / peak * (1 + cluster.half_size * (1 / m + 1 / n + 1 / k))


def ring(size: float, ranks: int, in_a_host: int, cluster: Cluster) -> float:
    """Return the seconds of an all-gather or reduce-scatter of so many bytes, with so many of its ranks in each host.

    An all-reduce is two of them. NCCL's rings enter and leave a host by all of its cards.
    """
    if ranks <= 1:
        return 0.0
    nvlink = cluster.nvlink * cluster.link_share
    inside = ranks <= in_a_host
    rate = nvlink if inside else min(cluster.nic * in_a_host, nvlink)
    return (ranks - 1) / ranks * size / rate + cluster.collective * (0.5 if inside else 1)


class LayerTime(NamedTuple):
    """The seconds of a mean layer and a microbatch: forward, backward (`weight_half` is the part of it that nobody
    waits for), what is computed `again`, and the communication of each kind that nothing hides."""

    forward: float
    backward: float
    weight_half: float
    again: float
    tp: float
    cp: float
    ep: float

    @property
    def exposed(self) -> float:
        """All communication that nothing hides: a third of it in forward."""
        return self.tp + self.cp + self.ep

    @property
    def total(self) -> float:
        """All of the layer."""
        return self.forward + self.backward + self.again + self.exposed


def layer_time(model: Transformer, cluster: Cluster, plan: Plan) -> LayerTime:
    """Return the seconds of a mean layer and a microbatch."""
    t, stack = plan.tp, plan.stack
    tokens = plan.tokens
    rows = model.hidden / (t if plan.sp else 1)

    # The products: attention's and the MLP's, and of experts those of all tokens that come to a rank.
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

    # The square of attention: flash keeps it on the chip and skips what the mask hides; backward makes it again.
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

    # Tensor parallel: two all-reduces forward and two backward, of which the products of weights hide one.
    all_reduce = (1 - stack.tp_hidden) * 2 * _half_all_reduce(model, cluster, plan)
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


def _half_all_reduce(model: Transformer, cluster: Cluster, plan: Plan) -> float:
    """Return the seconds of a reduce-scatter or an all-gather of a microbatch's rows over tensor-parallel ranks."""
    return ring(2 * plan.tokens * model.hidden, plan.tp, min(plan.tp, cluster.host_size), cluster)


def _exchange_with_experts(model: Transformer, cluster: Cluster, plan: Plan, work: float) -> float:
    """Return the seconds of the all-to-alls of a layer that its work does not hide: tokens out and home, forward and
    backward. A token crosses the network once to each host, at most `hosts_per_token`, and NVLink to each expert."""
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


class Stages(NamedTuple):
    """What a microbatch takes on the ranks of a pipeline, in seconds: on the first, on one in the middle, on the last,
    all of their stages together; and of the layers of a middle one forward, backward and its weight half.

    A layer takes what `layer` says and `fsdp`, what FSDP adds; `head` and `table` are of the two ends, and `message` is
    what each rank waits for messages.
    """

    first: float
    middle: float
    last: float
    forward: float
    backward: float
    weight_half: float
    layer: LayerTime
    fsdp: float
    head: float
    table: float
    message: float = 0.0

    def slowest(self, ranks: int) -> float:
        """Return what the slowest of so many ranks takes: it sets the beat."""
        return max(self.first, self.last, self.middle if ranks > 2 else 0)

    def through(self, ranks: int) -> float:
        """Return what a microbatch takes through all ranks and back."""
        return self.first + self.last + (ranks - 2) * self.middle


def stages(model: Transformer, cluster: Cluster, plan: Plan) -> Stages:
    """Return what the stages of a pipeline take; without a pipeline, the whole model is `first`, `middle` and `last`.

    Where layers do not fill the slots of the stages, those that are free are at the ends, as in Llama 3 (arXiv
    2407.21783, section 3.3.2).
    """
    layer, t = layer_time(model, cluster, plan), plan.tp
    tokens, hbm = plan.tokens, cluster.hbm * cluster.hbm_share
    vocabulary, half = model.vocab / t, _half_all_reduce(model, cluster, plan)
    head = plan.stack.fp8 * product(cluster, plan, tokens, (vocabulary, model.hidden), 3)  # which is never in fp8
    head += 26 * tokens * vocabulary / hbm + 4 * half
    table = 12 * tokens * model.hidden / hbm + 2 * half
    fsdp = _gathers(model, cluster, plan, layer)
    each = layer.total + fsdp
    if plan.pp == 1:
        whole = model.layers * each + head + table
        return Stages(whole, whole, whole, 0, 0, 0, layer, fsdp, head, table)
    in_stages = plan.pp * plan.v
    slots = ceil(model.layers / in_stages) * in_stages
    free = slots - model.layers
    fewer = min(free, max(1, round(head / each)))  # slots that the last rank leaves to the head
    message = _message(model, cluster, plan)
    middle = slots / plan.pp * each + message
    per_rank = model.layers / plan.pp
    return Stages(
        middle - (free > fewer) * each + table,
        middle,
        middle - fewer * each + head,
        per_rank * (layer.forward + layer.exposed / 3),
        per_rank * (layer.backward + layer.again + 2 * layer.exposed / 3),
        per_rank * layer.weight_half,
        layer,
        fsdp,
        head,
        table,
        message,
    )


def _message(model: Transformer, cluster: Cluster, plan: Plan) -> float:
    """Return the seconds for which a rank of a pipeline waits for messages of a microbatch, there and back."""
    size = 2 * plan.tokens * model.hidden / plan.tp
    far = plan.gpus // plan.pp >= cluster.host_size
    rate = cluster.nic if far else cluster.nvlink * cluster.link_share
    return (1 - plan.stack.pp_hidden) * plan.v * (size / rate + cluster.collective)


def _shards(cluster: Cluster, plan: Plan) -> tuple[int, int]:
    """Return how many ranks share gradients, and how many of them are in a host."""
    ranks = plan.dp * plan.cp
    return ranks, max(1, min(ranks, cluster.host_size // plan.tp))


def gathers_gradients_at_once(plan: Plan) -> bool:
    """Tell whether gradients are reduce-scattered a layer and a microbatch at a time, as in FSDP: they are with zero 3,
    and with zero 2 where no pipeline keeps several microbatches on the way."""
    return plan.zero == 3 or (plan.zero == 2 and plan.pp == 1)


def _gathers(model: Transformer, cluster: Cluster, plan: Plan, layer: LayerTime) -> float:
    """Return what the gathers and scatters of FSDP add to a layer: they run beside its work, which they slow down, and
    each further host makes them late."""
    if not gathers_gradients_at_once(plan):
        return 0.0
    common, routed, _ = model.layer_weights
    ranks, in_a_host = _shards(cluster, plan)
    gather = ring(2 * common / plan.tp, ranks, in_a_host, cluster)
    if routed:
        gather += ring(2 * routed / plan.ep, ranks, in_a_host, cluster)
    scatter = gather * plan.stack.gradient / 2

    def beside(work: float, communication: float) -> float:
        return max(work, communication) + cluster.interference * min(work, communication)

    forward = layer.forward + layer.tp / 3
    both = beside(forward, gather) + beside(layer.total - forward, gather * (plan.zero == 3) + scatter)
    return both + plan.zero * cluster.hop * max(0, ranks / in_a_host - 1) - layer.total


def bubble(plan: Plan, pipeline: Stages) -> float:
    """Return the seconds for which the slowest rank waits. For these schedules, with stages that are alike, it is what
    the order timer says (tests/plan/test_timing.py), but for ZB-H2, whose zero is of the span of a rank.

    The formulas: GPipe and 1F1B arXiv 2104.04473, zero bubble 2401.10241, DualPipe 2412.19437.
    """
    if plan.pp == 1:
        return 0.0
    f, b, w = pipeline.forward, pipeline.backward, pipeline.weight_half
    idle = pipeline.through(plan.pp) - pipeline.slowest(plan.pp)
    if plan.schedule == "dualpipe":
        return (plan.pp / 2 - 1) * max(0, f + 2 * b - 3 * w)
    if (halves := {"zb-h1": 2, "zb-h2": 3}.get(plan.schedule)) is not None:
        return idle * max(0, f + b - halves * w) / (f + b)
    return idle / (plan.v if plan.schedule == "1f1b" else 1)


class Span(NamedTuple):
    """A pass in the timeline of a step: the rank of the pipeline, start and end in ms, its kind (F, B, I or W), stage
    and microbatch, and the share of it that is communication which nothing hides, by kind."""

    rank: int
    start: float
    end: float
    kind: str
    stage: int
    microbatch: int
    exposed: dict[str, float]


@dataclass(frozen=True)
class Step:
    """One training step of a plan: its `seconds`, what they are made of, and its bytes.

    `tokens` are tokens a second and GPU. `mfu` counts the whole square of attention, `mfu_causal` the half that the
    mask leaves, `hfu` also what is computed again: say which one, when you compare. `parts` are seconds of the slowest
    rank by kind; `uneven` is what it waits for because stages are not alike.
    """

    seconds: float
    tokens: float
    mfu: float
    mfu_causal: float
    hfu: float
    parts: dict[str, float]
    memory: Memory


def step(model: Transformer, cluster: Cluster, plan: Plan, run: float | None = None) -> Step:
    """Return the time, the share of the peak and the memory of one step. The plan has to be possible: ask
    `plan.problems(model)` first. `run` is what its pipeline takes in seconds, where something better than the closed
    forms knows (`lib.plan.pipeline`).

    >>> from lib.plan import CLUSTERS, MODELS, STACKS, Plan
    >>> plan = Plan(64, batch=64, tp=8, pp=8, v=3, zero=0, recompute="selective", stack=STACKS["megatron"])
    >>> one = step(MODELS["gpt3-175b"], CLUSTERS["a100"], plan)
    >>> print(f"{one.seconds:.1f} s, {one.mfu:.0%} of the peak, {one.memory}")
    13.8 s, 51% of the peak, 59.5 GiB: optimizer 31.3, activations 12.6, gradients 10.4, weights 5.2, logits 0.0
    """
    pipeline, m = stages(model, cluster, plan), plan.microbatches
    layer, per_rank = pipeline.layer, model.layers / plan.pp
    slowest = pipeline.first if plan.pp == 1 else pipeline.slowest(plan.pp)
    idle = bubble(plan, pipeline) if run is None else run - m * slowest
    run = m * slowest + idle
    dp = _sums(model, cluster, plan, run)
    update = _update(model, cluster, plan)
    total = run + dp + update
    again, fsdp = m * per_rank * layer.again, m * per_rank * pipeline.fsdp
    compute = m * (per_rank * (layer.forward + layer.backward) + (pipeline.head + pipeline.table) / plan.pp)
    seen = {kind: m * per_rank * time for kind in ("tp", "cp", "ep") if (time := getattr(layer, kind))}
    parts = {"compute": compute, "again": again, **seen, "fsdp": fsdp, "bubble": idle, "dp": dp, "update": update}
    parts["uneven"] = total - sum(parts.values())
    tokens = plan.batch * plan.sequence / plan.gpus / total

    def share(*, causal: bool) -> float:
        return model.flops(plan.sequence, causal=causal) * tokens / cluster.flops

    mfu = share(causal=False)
    more = {"full": 1 / 3, "half": 1 / 6}.get(plan.recompute, 0)
    return Step(total, tokens, mfu, share(causal=True), mfu * (1 + more), parts, memory_of(model, plan))


def _rank_weights(model: Transformer, plan: Plan) -> tuple[float, float, int]:
    """Return the weights of a rank outside experts and in them, and how many ranks have the same experts."""
    common, routed, _ = model.layer_weights
    layers = model.layers / plan.pp
    experts_on = max(1, plan.dp * plan.cp * plan.tp // plan.ep)
    return layers * common / plan.tp + model.vocab * model.hidden / plan.tp, layers * routed / plan.ep, experts_on


def _sums(model: Transformer, cluster: Cluster, plan: Plan, run: float) -> float:
    """Return the seconds of data parallelism that are seen: sums of gradients out, and weights back where each rank
    updates a shard. What is hidden is hidden behind a microbatch."""
    if gathers_gradients_at_once(plan):
        return 0.0
    mine, experts, experts_on = _rank_weights(model, plan)
    ranks, in_a_host = _shards(cluster, plan)
    gradient = plan.stack.gradient
    size = (gradient + (2 if plan.zero else gradient)) / 2
    wire = 2 * ring(size * mine, ranks, in_a_host, cluster)
    if experts:
        wire += 2 * ring(size * experts, experts_on, 1, cluster)
    if plan.pp > 1 and model.tied:  # the two ends have the same embeddings, and sum their gradients
        wire += 2 * ring(gradient * model.vocab * model.hidden / plan.tp, 2, 1, cluster)
    hidden, m = plan.stack.dp_hidden, plan.microbatches
    return max(wire - hidden * 0.5 * run / max(m, 1) * min(m, 2), (1 - hidden) * wire)


def _update(model: Transformer, cluster: Cluster, plan: Plan) -> float:
    """Return the seconds of Adam, which moves 38 bytes a weight of a rank's shard."""
    mine, experts, experts_on = _rank_weights(model, plan)
    ranks = plan.dp * plan.cp
    shard = mine / ranks + experts / experts_on if plan.zero else mine + experts
    return 38 * shard / (cluster.hbm * 0.8)
