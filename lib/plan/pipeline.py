"""The pipeline of a plan as an order of our schedules: timed by the order timer, run by the simulator.

`lib/plan/timing.py` has closed forms for stages that are alike; here each stage has its own layers and its own end. All
ranks of a stage are alike, so a pipeline of a rank a stage stands for all of them. Times are milliseconds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lib.plan.records import SCHEDULES, Cluster, Plan, Transformer
from lib.plan.timing import Span, Step, stages, step
from lib.schedules.pipelines.action import Action, Order
from lib.schedules.pipelines.catalogue import SCHEDULES as ORDERS
from lib.schedules.pipelines.timing import Timed, time_order

MS: Final = 1e3
MOST: Final = 20_000
"""Stages times microbatches, at most, that are timed one by one: a second of work."""


def order_of(plan: Plan) -> Order:
    """Return the order of a plan's pipeline, a rank for each of its stages. ValueError without a pipeline, or for more
    actions than the order timer takes.

    DualPipe is two DualPipe-V, each with half of the ranks and of the microbatches (github.com/deepseek-ai/DualPipe).
    """
    if plan.pp == 1:
        raise ValueError("a plan with pp 1 has no pipeline")
    if plan.v > 1:
        return ORDERS["interleaved"].order(plan.pp, plan.microbatches, chunks=plan.v)
    halves = 2 if plan.schedule == "dualpipe" else 1
    return ORDERS[SCHEDULES[plan.schedule]].order(plan.pp // halves, plan.microbatches // halves)


def layers_of_stages(model: Transformer, plan: Plan, fewer_last: int) -> list[int]:
    """Return how many layers each stage has. Of places that no layer fills the last stage, which has the head, leaves
    so many, and each of the first stages one."""
    count = plan.pp * plan.v
    each, free = -(-model.layers // count), -model.layers % count
    last = min(fewer_last, free, each)
    return [each - (stage < free - last) - last * (stage == count - 1) for stage in range(count)]


class Pass(NamedTuple):
    """What the passes of a microbatch over a stage take, in ms: forward, and the two halves of backward, of which the
    first gives the gradient that the stage before waits for."""

    forward: float
    input_half: float
    weight_half: float


def passes(model: Transformer, cluster: Cluster, plan: Plan) -> list[Pass]:
    """Return the passes of each stage of the pipeline."""
    pipeline = stages(model, cluster, plan)
    layer, head, table = pipeline.layer, pipeline.head, pipeline.table
    each, weight = layer.total + pipeline.fsdp, layer.weight_half
    forward = layer.forward + (layer.exposed + pipeline.fsdp) / 3
    message = pipeline.message / plan.v / 2
    found = [
        Pass(count * forward + message, count * (each - forward - weight) + message, count * weight)
        for count in layers_of_stages(model, plan, max(1, round(head / each)))
    ]
    first, last = found[0], found[-1]  # of a matrix at an end a third is forward, and a third is its weight half
    found[0] = Pass(first.forward + table / 3, first.input_half, first.weight_half + 2 * table / 3)
    found[-1] = Pass(last.forward + head / 3, last.input_half + head / 3, last.weight_half + head / 3)
    return [Pass(*(MS * time for time in stage)) for stage in found]


def time_pipeline(model: Transformer, cluster: Cluster, plan: Plan) -> Timed:
    """Return the order of a plan's pipeline with its times, in ms."""
    take = passes(model, cluster, plan)

    def cost(action: Action, rank: int) -> float:
        one = take[action.stage]
        halves = {"F": one.forward, "I": one.input_half, "W": one.weight_half}
        return halves.get(action.kind, one.input_half + one.weight_half)

    return time_order(order_of(plan), cost=cost)


def step_in_order(model: Transformer, cluster: Cluster, plan: Plan) -> Step:
    """Return one step as `step` does, with a pipeline that takes what the order timer says.

    DualPipe stays with the closed form of its paper: a forward beside a backward is more than an order says. So does a
    pipeline of more than `MOST` passes, where the ends of the stages no longer matter.
    """
    if plan.pp == 1 or plan.schedule == "dualpipe" or plan.pp * plan.v * plan.microbatches > MOST:
        return step(model, cluster, plan)
    return step(model, cluster, plan, time_pipeline(model, cluster, plan).end / MS)


def timeline(model: Transformer, cluster: Cluster, plan: Plan) -> list[Span]:
    """Return the passes of one step. Without a pipeline they are those of its one stage, microbatch by microbatch."""
    pipeline = stages(model, cluster, plan)
    layer = pipeline.layer
    share = {
        kind: time / (layer.total + pipeline.fsdp)
        for kind, time in (("tp", layer.tp), ("cp", layer.cp), ("ep", layer.ep), ("fsdp", pipeline.fsdp))
        if time > 0
    }
    if plan.pp == 1:
        forward = layer.forward + (layer.exposed + pipeline.fsdp) / 3
        first = pipeline.first * forward / (layer.total + pipeline.fsdp)
        spans: list[Span] = []
        for microbatch in range(plan.microbatches):
            start = MS * pipeline.first * microbatch
            spans.append(Span(0, start, start + MS * first, "F", 0, microbatch, share))
            spans.append(Span(0, start + MS * first, start + MS * pipeline.first, "B", 0, microbatch, share))
        return spans
    timed = time_pipeline(model, cluster, plan)
    return [
        Span(rank, start, end, part.kind, part.stage, part.microbatch, {} if part.kind == "W" else share)
        for rank, (actions, starts, ends) in enumerate(zip(timed.order, timed.starts, timed.ends, strict=True))
        for action, start, end in zip(actions, starts, ends, strict=True)
        for part in (action.parts or (action,))[:1]
        if part.kind in ("F", "B", "I", "W")
    ]
