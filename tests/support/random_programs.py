"""Random schedules that always run to their end: what each rank does, drawn in one order that everybody can follow.

They train nothing. They mix computing, storing, every collective on any group, and messages, each awaited at once or
later, so that what must hold for every run can be tried on many.
"""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from lib import LINKS, UNIT, Costs, Links, Mesh, Model, Trace, Weight, simulate
from tests.support.schedules import EVERYTHING, Case

LAYERS, BATCHES = 2, 3
COSTS = [
    UNIT,
    Costs(to_device=0.3),
    Costs(p2p=0, collective=0),
    LINKS,
    Links(host_size=2, ratio=3, latency=0.07, cards=1),
]


@dataclass
class Step:
    """One thing that some ranks do: `what` they do, in order of their group, and whether each awaits it at once."""

    what: str
    ranks: tuple[int, ...]
    at_once: tuple[bool, ...]
    number: int
    keep: bool


@dataclass
class Schedule:
    ranks: int
    steps: list[Step]
    costs: Costs
    bare: frozenset[int] = frozenset()
    """Ranks that receive from anybody. What is sent to them is awaited at the end, so that nobody waits for room."""
    mesh: Mesh | None = None
    sizes: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = {"ranks": self.ranks, "layers": LAYERS, "batches": BATCHES, "costs": self.costs, "mesh": self.mesh}

    async def __call__(self, model: Model) -> None:
        await self.follow(model, self.steps)

    async def follow(self, model: Model, steps: list[Step]) -> None:
        pending: list[tuple[int, Awaitable[Any]]] = []
        for step in steps:
            if model.rank not in step.ranks:
                continue
            place = step.ranks.index(model.rank)
            work = self.start(model, step, place)
            if work is None:
                continue
            to_bare = step.what.startswith("message") and place == 0 and step.ranks[1] in self.bare
            if step.at_once[place] and not to_bare:
                self.store(model, step, await work)
            else:
                pending.append((step.number, work))
        for number, work in pending:
            self.store(model, self.steps[number], await work)

    def start(self, model: Model, step: Step, place: int) -> Awaitable[Any] | None:
        layer, group = step.number % LAYERS, step.ranks
        zero = model.fake_grad(layer, [])
        match step.what:
            case "compute":
                whole, _ = model.load_weights(layer)
                inp = model.get_activation(range(1 + step.number % BATCHES))
                model.activations[step.number] = model.forward(0, inp, model.load_weights(0)[0])
                if step.keep:
                    model.weights[layer] = whole
                return None
            case "drop":
                for store in model.storage():
                    if store and (step.keep or len(store) > 2):
                        store.popitem()
                return None
            case "read":
                return model.read({step.number % BATCHES, len(group) % BATCHES})
            case "sum":
                total = zero + model.fake_grad(layer, [step.number % BATCHES])
                model.grad_weights[layer] = total.shard(0, 2).combine(total.shard(1, 2))
                return None
            case "allreduce":
                mine = [place] if len(group) <= BATCHES else []
                return model.allreduce(model.fake_grad(layer, mine), layer, group)
            case "allgather" | "allgather_padded":
                shard, _ = model.load_weights(layer, place, len(group))
                return getattr(model, step.what)(shard, layer, group)
            case "scatterreduce":
                return model.scatterreduce(zero, layer, group)
            case "alltoall" | "alltoall_padded":
                return getattr(model, step.what)([zero.shard(i, len(group)) for i in range(len(group))], layer, group)
            case "broadcast":
                root = group[step.number % len(group)]
                return model.broadcast(model.load_weights(layer, place, len(group))[0], layer, root, group)
            case _:
                return self.message(model, step, place)

    def message(self, model: Model, step: Step, place: int) -> Awaitable[Any]:
        source, target = step.ranks
        if place == 1:
            return model.receive() if model.rank in self.bare else model.receive(source)
        size = step.number % 3
        weight = model.load_weights(0, 0, 1 + step.number)[0]
        contents: dict[str, Any] = {
            "message": model.get_activation(range(1 + size)),
            "message of many": {"values": [weight, model.fake_grad(1, [])], "from": source},
            "message of none": ("hello", step.number),
        }
        return model.pass_to(target, contents[step.what])

    def store(self, model: Model, step: Step, result: Any) -> None:
        if isinstance(result, Weight) and step.keep:
            model.weights[step.number] = result


OPS = ["compute", "compute", "drop", "sum", "read", "allreduce", "allgather", "scatterreduce", "alltoall", "broadcast"]
OPS += ["allgather_padded", "alltoall_padded"]
MESSAGES = ["message", "message of many", "message of none"]


@st.composite
def schedules(draw: st.DrawFn, messages: bool = True) -> Schedule:
    ranks = draw(st.integers(1, 4))
    bare = draw(st.frozensets(st.integers(0, ranks - 1))) if messages else frozenset[int]()
    steps: list[Step] = []
    for number in range(draw(st.integers(0, 12))):
        what = draw(st.sampled_from(OPS + (MESSAGES if ranks > 1 and messages else [])))
        order = draw(st.permutations(range(ranks)))
        if what in MESSAGES:
            members = order[:2]
        elif what in ("compute", "drop", "sum", "read"):
            members = order[:1]
        else:
            members = order[: draw(st.integers(1, ranks))] if draw(st.booleans()) else list(range(ranks))
        at_once = draw(st.tuples(*[st.booleans()] * len(members)))
        steps.append(Step(what, tuple(members), at_once, number, draw(st.booleans())))
    pairs = [[rank for rank in (first, first + 1) if rank < ranks] for first in range(0, ranks, 2)]
    mesh = Mesh({"all": ranks}, host_size=2, processes=draw(st.sampled_from([None, pairs])))
    mesh = mesh if draw(st.booleans()) else None
    return Schedule(ranks, steps, draw(st.sampled_from(COSTS)), bare, mesh)


def run(schedule: Schedule, driver: Any = simulate, **more: Any) -> list[Model]:
    return driver(schedule, **(schedule.sizes | more))


RUNS: st.SearchStrategy[Case | Schedule] = st.sampled_from(EVERYTHING) | schedules()
"""Known schedules and random ones: what holds for every run is tried on both."""


def traced(one: Case | Schedule) -> Trace:
    return Trace.of(run(one) if isinstance(one, Schedule) else one.run(simulate))
