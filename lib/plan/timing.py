"""The seconds of a training step: of its stages in closed forms, and of its pipeline as an order of our schedules.

The closed forms assume that stages are alike. In an order, timed by the order timer, each stage has its own layers and
its own end; all ranks of a stage are alike, so a pipeline with one rank per stage stands for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from lib.plan.records import SCHEDULES, Cluster, Plan, Transformer
from lib.plan.resources import LayerTime, Memory, half_all_reduce, layer_time, memory_of, product, ring

if TYPE_CHECKING:
    from lib.schedules.pipelines.action import Action, Order
    from lib.schedules.pipelines.timing import Timed


class Stages(NamedTuple):
    """The seconds of a microbatch on the ranks of a pipeline: on the first, on one in the middle and on the last, over
    all of their stages; and the forward, backward and weight half of the layers of a middle one.

    A layer takes `layer`, and with FSDP `fsdp` more; `head` and `table` are the ends, `message` waits for messages.
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
        """Return the seconds of the slowest of `ranks` ranks, which sets the pace."""
        return max(self.first, self.last, self.middle if ranks > 2 else 0)

    def through(self, ranks: int) -> float:
        """Return the seconds of a microbatch through all ranks and back."""
        return self.first + self.last + (ranks - 2) * self.middle


def stages(model: Transformer, cluster: Cluster, plan: Plan) -> Stages:
    """Return the times of a pipeline's stages; without a pipeline, the whole model is `first`, `middle` and `last`.

    Where layers do not fill the slots of the stages, the free slots are at the ends, as in Llama 3 (arXiv 2407.21783,
    section 3.3.2).
    """
    layer, t = layer_time(model, cluster, plan), plan.tp
    tokens, hbm = plan.tokens, cluster.hbm * cluster.hbm_share
    vocabulary, half = model.vocab / t, half_all_reduce(model, cluster, plan)
    head = plan.stack.fp8 * product(cluster, plan, tokens, (vocabulary, model.hidden), 3)  # never in fp8
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
    """Return the seconds that a rank of a pipeline waits for a microbatch's messages, there and back."""
    size = 2 * plan.tokens * model.hidden / plan.tp
    far = plan.gpus // plan.pp >= cluster.host_size
    rate = cluster.nic if far else cluster.nvlink * cluster.link_share
    return (1 - plan.stack.pp_hidden) * plan.v * (size / rate + cluster.collective)


def _shards(cluster: Cluster, plan: Plan) -> tuple[int, int]:
    """Return how many ranks share gradients, and how many of them are in a host."""
    ranks = plan.dp * plan.cp
    return ranks, max(1, min(ranks, cluster.host_size // plan.tp))


def gathers_gradients_at_once(plan: Plan) -> bool:
    """Tell whether each layer and microbatch has a reduce-scatter, as in FSDP: zero 3, or 2 without a pipeline."""
    return plan.zero == 3 or (plan.zero == 2 and plan.pp == 1)


def _gathers(model: Transformer, cluster: Cluster, plan: Plan, layer: LayerTime) -> float:
    """Return the seconds that FSDP's gathers and scatters add to a layer: they slow its work, and hosts delay them."""
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
    """Return the seconds that the slowest rank waits. For these schedules, with equal stages, the order timer agrees
    (tests/plan/test_timing.py), except for ZB-H2, whose zero is measured over the span of a rank.

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
    and microbatch, and its share of communication that nothing hides, by kind."""

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

    `tokens` are tokens per second and GPU. `mfu` counts the whole square of attention, `mfu_causal` the half that the
    mask leaves, `hfu` also recomputation: say which one you compare. `parts` are the slowest rank's seconds by kind;
    `uneven` is its wait because stages are not alike.
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
    `plan.problems(model)` first. `run` is the seconds of its pipeline, where they are known better than from the
    closed forms (`step_in_order`).

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
    """Return the unhidden seconds of gradient sums, and of gathering weights again where updates are sharded."""
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
    """Return the seconds of Adam, which moves 38 bytes for each weight of a rank's shard."""
    mine, experts, experts_on = _rank_weights(model, plan)
    ranks = plan.dp * plan.cp
    shard = mine / ranks + experts / experts_on if plan.zero else mine + experts
    return 38 * shard / (cluster.hbm * 0.8)


# -- the pipeline as an order ---------------------------------------------------------------------------------------


MS: Final = 1e3
MOST: Final = 20_000
"""The most stages times microbatches that are timed one by one: a second of work."""


def order_of(plan: Plan) -> Order:
    """Return the order of a plan's pipeline, with one rank for each of `pp`; without a pipeline, that is one rank.

    DualPipe is two DualPipe-V, each with half of the ranks and of the microbatches (github.com/deepseek-ai/DualPipe).
    """
    from lib.schedules.pipelines.catalogue import SCHEDULES as ORDERS  # here and not above: a search needs no order

    if plan.v > 1:
        return ORDERS["interleaved"].order(plan.pp, plan.microbatches, chunks=plan.v)
    halves = 2 if plan.schedule == "dualpipe" else 1
    return ORDERS[SCHEDULES[plan.schedule]].order(plan.pp // halves, plan.microbatches // halves)


def layers_of_stages(model: Transformer, plan: Plan, fewer_last: int) -> list[int]:
    """Return the layers of each stage. The last has up to `fewer_last` free places, the first ones have one each."""
    count = plan.pp * plan.v
    each, free = -(-model.layers // count), -model.layers % count
    last = min(fewer_last, free, each)
    return [each - (stage < free - last) - last * (stage == count - 1) for stage in range(count)]


def time_pipeline(model: Transformer, cluster: Cluster, plan: Plan) -> Timed:
    """Return the order of a plan's pipeline with its times, in ms."""
    from lib.schedules.pipelines.timing import time_order

    pipeline = stages(model, cluster, plan)
    layer, head, table = pipeline.layer, pipeline.head, pipeline.table
    each, weight = layer.total + pipeline.fsdp, layer.weight_half
    forward = layer.forward + (layer.exposed + pipeline.fsdp) / 3
    message = pipeline.message / plan.v / 2
    # By stage: forward, and the halves of backward, the first of which gives what the stage before waits for.
    take = [
        {"F": count * forward + message, "I": count * (each - forward - weight) + message, "W": count * weight}
        for count in layers_of_stages(model, plan, max(1, round(head / each)))
    ]
    take[0]["F"] += table / 3
    take[0]["W"] += 2 * table / 3
    for kind in take[-1]:  # a matrix at an end takes a third in forward, and a third in its weight half
        take[-1][kind] += head / 3

    def cost(action: Action, rank: int) -> float:
        one = take[action.stage]
        return MS * (one[action.kind] if action.kind in one else one["I"] + one["W"])

    return time_order(order_of(plan), cost=cost)


def step_in_order(model: Transformer, cluster: Cluster, plan: Plan) -> Step:
    """Return one step as `step` does, with the pipeline's time from the order timer.

    DualPipe keeps the closed form of its paper, as an order cannot express a forward beside a backward. So does a
    pipeline with more than `MOST` passes, where the ends of the stages no longer matter.
    """
    if plan.pp == 1 or plan.schedule == "dualpipe" or plan.pp * plan.v * plan.microbatches > MOST:
        return step(model, cluster, plan)
    return step(model, cluster, plan, time_pipeline(model, cluster, plan).end / MS)


def timeline(model: Transformer, cluster: Cluster, plan: Plan) -> list[Span]:
    """Return the passes of one step; without a pipeline, those of its single stage, microbatch by microbatch."""
    pipeline = stages(model, cluster, plan)
    layer = pipeline.layer
    share = {
        kind: time / (layer.total + pipeline.fsdp)
        for kind, time in (("tp", layer.tp), ("cp", layer.cp), ("ep", layer.ep), ("fsdp", pipeline.fsdp))
        if time > 0
    }
    timed = time_pipeline(model, cluster, plan)
    return [
        Span(rank, start, end, part.kind, part.stage, part.microbatch, {} if part.kind == "W" else share)
        for rank, (actions, starts, ends) in enumerate(zip(timed.order, timed.starts, timed.ends, strict=True))
        for action, start, end in zip(actions, starts, ends, strict=True)
        for part in (action.parts or (action,))[:1]
        if part.kind in ("F", "B", "I", "W")
    ]
