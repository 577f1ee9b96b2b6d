"""Random training steps, each a correct one: what is computed where, how gradients come together, who updates.

A plan is a graph: operations of one rank or of several (a collective), and the values that go from one to the next.
Nothing is said of when, of stores, or of waiting: any order that respects the graph is the same training step.
`programs` makes programs of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lib import LINKS, UNIT, Costs, Links, Mesh, Uneven

COSTS = [
    UNIT,
    UNIT,
    LINKS,
    Links(host_size=2, ratio=3, latency=0.07),
    Links(host_size=2, ratio=3, cards=1),
    Costs(p2p=0, collective=0),
    Costs(0.5, 1.5, 0.25),
    Costs(backward_input=0.75, backward_weight=0.125),
    Uneven(layers=(1, 2.5), ranks=(1, 1.25, 1.5)),
]


@dataclass
class Call:
    """What one rank does in a node: an operation on values, given by their numbers. `more` is what else it is told."""

    rank: int
    op: str
    layer: int | None
    inputs: list[int]
    outputs: list[int]
    more: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Node:
    """Operations that happen together: one, or those of all members of a collective."""

    calls: list[Call]
    after: list[int] = field(default_factory=list[int])
    """Nodes that come before it besides those that make what it uses."""


@dataclass
class Plan:
    """One training step. `ends` are the values that have to be there when the step is over."""

    ranks: int
    layers: int
    batches: int
    mesh: Mesh | None
    costs: Costs
    nodes: list[Node] = field(default_factory=list[Node])
    homes: list[int] = field(default_factory=list[int])
    kinds: list[str] = field(default_factory=list[str])
    about: list[tuple[int, frozenset[int]]] = field(default_factory=list[tuple[int, frozenset[int]]])
    ends: list[int] = field(default_factory=list[int])

    def makers(self) -> dict[int, int]:
        return {value: n for n, node in enumerate(self.nodes) for call in node.calls for value in call.outputs}

    # -- operations ---------------------------------------------------------------------------------------------

    def value(self, rank: int, kind: str, layer: int, batches: Iterable[int] = ()) -> int:
        self.homes.append(rank)
        self.kinds.append(kind)
        self.about.append((layer, frozenset(batches)))
        return len(self.homes) - 1

    def like(self, rank: int, value: int, batches: Iterable[int] | None = None) -> int:
        layer, mine = self.about[value]
        return self.value(rank, self.kinds[value], layer, mine if batches is None else batches)

    def do(
        self, rank: int, op: str, layer: int | None, inputs: Sequence[int], outputs: Sequence[int], **more: Any
    ) -> None:
        self.nodes.append(Node([Call(rank, op, layer, list(inputs), list(outputs), more)]))

    def load(self, rank: int, layer: int, shard: int = 0, total: int = 1) -> tuple[int, int]:
        pair = self.value(rank, "W", layer), self.value(rank, "O", layer)
        self.do(rank, "load_weights", layer, (), pair, shard=shard, total=total)
        return pair

    def data(self, rank: int, batches: Iterable[int]) -> int:
        out = self.value(rank, "A", 0, batches)
        self.do(rank, "get_activation", 0, (), (out,), batches=self.about[out][1])
        return out

    def forward(self, rank: int, layer: int, inp: int, weight: int) -> int:
        out = self.value(rank, "A", layer + 1, self.about[inp][1])
        self.do(rank, "forward", layer, (inp, weight), (out,))
        return out

    def loss(self, rank: int, inp: int) -> int:
        out = self.value(rank, "D", self.layers - 1, self.about[inp][1])
        self.do(rank, "loss", None, (inp,), (out,))
        return out

    def backward(self, rank: int, layer: int, inp: int, grad: int, weight: int) -> tuple[int, int]:
        batches = self.about[inp][1]
        pair = self.value(rank, "G", layer, batches), self.value(rank, "D", layer - 1, batches)
        self.do(rank, "backward", layer, (inp, grad, weight), pair)
        return pair

    def back(
        self, rank: int, layer: int, inp: int, grad: int, weight: int, random: Random, *, data: bool = False
    ) -> tuple[int, int]:
        """Backward, whole or in halves. `data`: the gradient of the data is used, too; else it may be left out."""
        if random.random() > 0.3:
            return self.backward(rank, layer, inp, grad, weight)
        batches = self.about[inp][1]
        made, before = self.value(rank, "G", layer, batches), self.value(rank, "D", layer - 1, batches)
        if layer or data or random.random() < 0.5:
            self.do(rank, "backward_input", layer, (inp, grad, weight), (before,))
        self.do(rank, "backward_weight", layer, (inp, grad), (made,))
        return made, before

    def nothing(self, rank: int, layer: int) -> int:
        out = self.value(rank, "G", layer)
        self.do(rank, "fake_grad", layer, (), (out,), batches=frozenset[int]())
        return out

    def add(self, left: int, right: int) -> int:
        rank, (_, batches) = self.homes[left], self.about[left]
        out = self.like(rank, left, batches | self.about[right][1])
        self.do(rank, "add", None, (left, right), (out,))
        return out

    def combine(self, left: int, right: int) -> int:
        out = self.like(self.homes[left], left, self.about[left][1] | self.about[right][1])
        self.do(self.homes[left], "combine", None, (left, right), (out,))
        return out

    def shard(self, value: int, shard: int, total: int) -> int:
        out = self.like(self.homes[value], value)
        self.do(self.homes[value], "shard", None, (value,), (out,), shard=shard, total=total)
        return out

    def update(self, layer: int, grad: int, weight: int, state: int) -> tuple[int, int]:
        rank = self.homes[weight]
        pair = self.value(rank, "W", layer), self.value(rank, "O", layer)
        self.do(rank, "update", layer, (grad, weight, state), pair)
        self.ends.append(pair[1])
        return pair

    def final(self, layer: int, weight: int) -> None:
        self.do(self.homes[weight], "set_final_weight", layer, (weight,), ())

    def send(self, values: Sequence[int], target: int) -> list[int]:
        """All of them in one message."""
        source, number = self.homes[values[0]], len(self.nodes)
        outs = [self.like(target, value) for value in values]
        self.do(source, "pass_to", None, values, (), peer=target)
        self.do(target, "receive", None, (), outs, peer=source, sent=number)
        self.nodes[-1].after.append(number)
        return outs

    def bring(self, value: int, target: int) -> int:
        """The value on another rank, if it is not there already."""
        return value if self.homes[value] == target else self.send([value], target)[0]

    def meet(
        self, op: str, layer: int, group: Sequence[int], brought: Sequence[list[int]], root: int = 0
    ) -> list[list[int]]:
        """A collective. What each member gets, in the order of the group."""
        everybody: set[int] = set()
        for row in brought:
            for value in row:
                everybody |= self.about[value][1]
        calls: list[Call] = []
        for place, rank in enumerate(group):
            mine = brought[place]
            if op == "alltoall":
                outs = [self.like(rank, row[place]) for row in brought]
            elif op == "broadcast":
                outs = [self.like(rank, brought[root][0])]
            else:
                outs = [self.like(rank, mine[0], everybody)]
            more: dict[str, Any] = {"group": tuple(group)} | ({"root": root} if op == "broadcast" else {})
            calls.append(Call(rank, op, layer, list(mine), outs, more))
        self.nodes.append(Node(calls))
        return [call.outputs for call in calls]

    def one_each(self, op: str, layer: int, group: Sequence[int], values: Sequence[int], root: int = 0) -> list[int]:
        return [outs[0] for outs in self.meet(op, layer, group, [[value] for value in values], root)]


def sums(plan: Plan, random: Random, values: Sequence[int]) -> int:
    """The sum of gradients on one rank, in any order and with any brackets."""
    return _folded(plan.add, random, values)


def unions(plan: Plan, random: Random, values: Sequence[int]) -> int:
    return _folded(plan.combine, random, values)


def _folded(join: Callable[[int, int], int], random: Random, values: Sequence[int]) -> int:
    left = list(values)
    while len(left) > 1:
        random.shuffle(left)
        left.append(join(left.pop(), left.pop()))
    return left[0]


class _Layer:
    """Where the weight of a layer is at rest, where it is needed, and what its gradients are."""

    def __init__(self, step: _Step, layer: int) -> None:
        self.step, self.plan, self.random, self.layer = step, step.plan, step.random, layer
        self.computers = sorted(
            {rank for routes in (step.there, step.back) for route in routes for rank in [route[layer]]}
        )
        self.full: dict[int, list[int]] = defaultdict(list)
        self.grads: dict[int, list[int]] = defaultdict(list)
        self.pieces: dict[int, list[tuple[int, int, list[int], int]]] = defaultdict(list)
        """Of each rank: its weight, its state, and which shards of how many they are."""
        self.groups: list[tuple[int, ...]] = []
        self.states: dict[int, int] = {}
        self.lay_out()

    # -- at rest ------------------------------------------------------------------------------------------------

    def lay_out(self) -> None:
        random, ranks = self.random, self.plan.ranks
        styles = ["replicated", "sharded", "sharded", "owner"]
        if self.plan.mesh is not None or ranks >= 4:
            styles += ["hybrid"] * 3
        self.style = random.choice(styles)
        if self.style == "hybrid" and not self.hybrid_groups():
            self.style = "sharded"
        if self.style == "replicated":
            self.holders = self.more(self.computers)
            for rank in self.holders:
                weight, state = self.plan.load(rank, self.layer)
                self.full[rank], self.states[rank] = [weight], state
        elif self.style == "owner":
            self.owner = random.randrange(ranks)
            weight, state = self.plan.load(self.owner, self.layer)
            self.full[self.owner], self.states[self.owner] = [weight], state
            for rank in self.computers:
                if rank != self.owner:
                    self.full[rank] = [self.plan.bring(weight, rank) for _ in range(random.choice([1, 1, 2]))]
        else:
            if self.style == "sharded":
                self.groups = [tuple(self.more(self.computers))]
            self.load_shards()

    def more(self, ranks: Iterable[int]) -> list[int]:
        """These ranks and perhaps idle ones, in any order."""
        random = self.random
        found = sorted(set(ranks) | {rank for rank in range(self.plan.ranks) if random.random() < 0.3})
        if random.random() < 0.4:
            random.shuffle(found)
        return found

    def hybrid_groups(self) -> bool:
        mesh, ranks = self.plan.mesh, self.plan.ranks
        if mesh is not None and len(mesh.axes) > 1:
            axis = self.random.choice(sorted(mesh.axes))
            self.groups = sorted({mesh.group(rank, axis) for rank in range(ranks)})
            return True
        if ranks < 4:
            return False
        order = list(range(ranks))
        self.random.shuffle(order)
        cut = self.random.randint(1, ranks - 1)
        self.groups = [tuple(order[:cut]), tuple(order[cut:])]
        return True

    def load_shards(self) -> None:
        """Shard i to member i, or an uneven cut: any shards to any members, some of them to nobody's surprise none."""
        random = self.random
        for group in self.groups:
            total, owners = len(group), list(range(len(group)))
            if random.random() < 0.35:
                total = len(group) + random.randint(0, 2)
                owners = [*range(len(group)), *(random.randrange(len(group)) for _ in range(total - len(group)))]
                random.shuffle(owners)
            for place, rank in enumerate(group):
                mine = [shard for shard, owner in enumerate(owners) if owner == place]
                loaded = [(*self.plan.load(rank, self.layer, shard, total), [shard], total) for shard in mine]
                if len(loaded) > 1 and random.random() < 0.5:
                    weight = unions(self.plan, random, [pair[0] for pair in loaded])
                    state = unions(self.plan, random, [pair[1] for pair in loaded])
                    loaded = [(weight, state, mine, total)]
                self.pieces[rank].extend(loaded)
            for _ in range(random.choice([1, 2, 2])):
                self.gather(group)

    def gather(self, group: tuple[int, ...]) -> None:
        brought = [unions(self.plan, self.random, [piece[0] for piece in self.pieces[rank]]) for rank in group]
        for rank, whole in zip(group, self.plan.one_each("allgather", self.layer, group, brought), strict=True):
            self.full[rank].append(whole)

    def weight(self, rank: int) -> int:
        return self.random.choice(self.full[rank])

    # -- gradients ----------------------------------------------------------------------------------------------

    def summed(self) -> dict[int, int]:
        """One gradient on each rank that has any, perhaps with nothing added."""
        found: dict[int, int] = {}
        for rank, grads in sorted(self.grads.items()):
            if self.random.random() < 0.15:
                grads = [*grads, self.plan.nothing(rank, self.layer)]
            found[rank] = sums(self.plan, self.random, grads)
        return found

    def whole(self, ranks: Iterable[int]) -> dict[int, int]:
        """The whole gradient of all batches on each of these ranks."""
        plan, random, layer = self.plan, self.random, self.layer
        mine, ranks = self.summed(), sorted(set(ranks))
        if len(mine) == 1 and random.random() < 0.6:
            (grad,) = mine.values()
            return {rank: plan.bring(grad, rank) for rank in ranks}
        group = self.more([*mine, *ranks])
        ways = ["allreduce", "star", "ring", "halves", "messages", "exchange"]
        mesh = plan.mesh
        if mesh is not None and len(mesh.axes) > 1:
            ways += ["axes"] * 3
        way = random.choice(ways)
        if way == "axes":
            assert mesh is not None
            group = list(range(plan.ranks))
        for rank in group:
            if rank not in mine and way != "messages":
                mine[rank] = plan.nothing(rank, layer)
        if way == "axes" and mesh is not None:
            axes = sorted(mesh.axes)
            random.shuffle(axes)
            for axis in axes:
                for line in sorted({mesh.group(rank, axis) for rank in group}):
                    reduced = plan.one_each("allreduce", layer, line, [mine[rank] for rank in line])
                    mine |= dict(zip(line, reduced, strict=True))
            return mine
        if way == "allreduce":
            return dict(zip(group, plan.one_each("allreduce", layer, group, [mine[r] for r in group]), strict=True))
        if way == "halves":
            parts = plan.one_each("scatterreduce", layer, group, [mine[rank] for rank in group])
            return dict(zip(group, plan.one_each("allgather", layer, group, parts), strict=True))
        if way == "exchange":
            n = len(group)
            parts = plan.meet("alltoall", layer, group, [[plan.shard(mine[r], i, n) for i in range(n)] for r in group])
            added = [sums(plan, random, row) for row in parts]
            return dict(zip(group, plan.one_each("allgather", layer, group, added), strict=True))
        if way == "messages":
            return {r: sums(plan, random, [plan.bring(grad, r) for grad in mine.values()]) for r in ranks}
        if way == "ring":
            total = mine[group[0]]
            for rank in group[1:]:
                total = plan.add(plan.bring(total, rank), mine[rank])
            found = {group[-1]: total}
            for rank in group[:-1]:
                total = found[rank] = plan.bring(total, rank)
            return found
        root = random.randrange(len(group))
        total = sums(plan, random, [plan.bring(mine[rank], group[root]) for rank in group])
        brought = [total if rank == group[root] else mine[rank] for rank in group]
        return dict(zip(group, plan.one_each("broadcast", layer, group, brought, root), strict=True))

    def scattered(self) -> bool:
        """Whether shard i is all that member i of each group has, so that a reduce-scatter brings what it needs."""
        if set(self.grads) - {rank for group in self.groups for rank in group}:
            return False
        return all(
            [piece[2:] for piece in self.pieces[rank]] == [([place], len(group))]
            for group in self.groups
            for place, rank in enumerate(group)
        )

    def by_shard(self) -> dict[int, int]:
        """Of each rank its shard of the sum: a reduce-scatter in each group, then an all-reduce over the groups."""
        plan, mine = self.plan, self.summed()
        found: dict[int, int] = {}
        for group in self.groups:
            brought = [mine[rank] if rank in mine else plan.nothing(rank, self.layer) for rank in group]
            found |= dict(zip(group, plan.one_each("scatterreduce", self.layer, group, brought), strict=True))
        if len(self.groups) > 1:
            for place in range(len(self.groups[0])):
                across = [group[place] for group in self.groups]
                reduced = plan.one_each("allreduce", self.layer, across, [found[rank] for rank in across])
                found |= dict(zip(across, reduced, strict=True))
        return found

    # -- updates ------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        if self.style == "replicated":
            self.finish_replicas()
        elif self.style == "owner":
            grad = self.whole([self.owner])[self.owner]
            self.updated(grad, self.full[self.owner][0], self.states[self.owner], must=True)
        else:
            self.finish_shards()

    def finish_replicas(self) -> None:
        plan, random, layer = self.plan, self.random, self.layer
        way = random.choice(["each", "each", "one", "shards"])
        old = {rank: self.full[rank][0] for rank in self.holders}
        if way == "each":
            grads = self.whole(self.holders)
            needed = random.choice(self.holders)
            for rank in self.holders:
                self.updated(grads[rank], old[rank], self.states[rank], must=rank == needed)
            return
        if way == "one":
            root = random.randrange(len(self.holders))
            rank = self.holders[root]
            new, _ = plan.update(layer, self.whole([rank])[rank], old[rank], self.states[rank])
            if random.random() < 0.5:
                everywhere = [new if r == rank else old[r] for r in self.holders]
                news = plan.one_each("broadcast", layer, self.holders, everywhere, root)
            else:
                news = [plan.bring(new, r) for r in self.holders]
        else:
            total = len(self.holders)
            grads = self.whole(self.holders)
            parts: list[int] = []
            for place, rank in enumerate(self.holders):
                _, state = plan.load(rank, layer, place, total)
                piece = plan.shard(old[rank], place, total)
                grad = grads[rank] if random.random() < 0.5 else plan.shard(grads[rank], place, total)
                parts.append(plan.update(layer, grad, piece, state)[0])
            news = plan.one_each("allgather", layer, self.holders, parts)
        needed = random.randrange(len(news))
        for place, new in enumerate(news):
            self.hand_in(new, must=place == needed)

    def finish_shards(self) -> None:
        plan, random, layer = self.plan, self.random, self.layer
        even = len({len(group) for group in self.groups}) == 1
        if even and self.scattered() and random.random() < 0.7:
            grads = self.by_shard()
            whole = False
        else:
            grads = self.whole([rank for group in self.groups for rank in group])
            whole = True
        needed = random.randrange(len(self.groups))
        for number, group in enumerate(self.groups):
            for rank in group:
                for weight, state, shards, total in self.pieces[rank]:
                    grad = grads[rank]
                    if whole and random.random() < 0.4:
                        grad = unions(plan, random, [plan.shard(grad, shard, total) for shard in shards])
                    helper = random.randrange(plan.ranks)
                    if helper != rank and random.random() < 0.1:
                        new = plan.update(layer, *plan.send([grad, weight, state], helper))
                        back = plan.send(new, rank)
                        plan.ends.append(back[1])
                        self.hand_in(back[0], must=number == needed)
                    else:
                        self.updated(grad, weight, state, must=number == needed)

    def updated(self, grad: int, weight: int, state: int, must: bool) -> None:
        self.hand_in(self.plan.update(self.layer, grad, weight, state)[0], must)

    def hand_in(self, new: int, must: bool) -> None:
        """Hands in what was updated, or only keeps it: at the end, as a rank hands in one weight of a layer."""
        rank = self.plan.homes[new]
        self.step.news[rank, self.layer].append((new, must))


class _Step:
    def __init__(self, random: Random, ranks: int, layers: int, batches: int, mesh: Mesh | None, costs: Costs) -> None:
        self.random = random
        self.plan = Plan(ranks, layers, batches, mesh, costs)
        self.news: dict[tuple[int, int], list[tuple[int, bool]]] = defaultdict(list)
        self.there: list[list[int]] = []
        self.back: list[list[int]] = []
        self.micro = self.microbatches()
        for _ in self.micro:
            route = self.route()
            self.there.append(route)
            self.back.append(self.route() if random.random() < 0.08 else route)
        self.layers = [_Layer(self, layer) for layer in range(layers)]
        self.compute()
        order = list(self.layers)
        random.shuffle(order)
        for layer in order:
            layer.finish()
        self.end()
        if random.random() < 0.3:
            self.idle()

    def microbatches(self) -> list[frozenset[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        for batch in range(self.plan.batches):
            found[self.random.choice([batch, batch, 0])].add(batch)
        return [frozenset(part) for part in found.values()]

    def route(self) -> list[int]:
        """The rank that computes each layer of a microbatch."""
        random, ranks, layers = self.random, self.plan.ranks, self.plan.layers
        way = random.choice(["data", "data", "pipeline", "any"])
        if way == "data":
            return [random.randrange(ranks)] * layers
        if way == "pipeline":
            return [layer * ranks // layers if ranks < layers else layer for layer in range(layers)]
        return [random.randrange(ranks) for _ in range(layers)]

    def compute(self) -> None:
        plan = self.plan
        inputs: list[list[int]] = []
        outputs: list[int] = []
        for batches, route in zip(self.micro, self.there, strict=True):
            at = plan.data(route[0], batches)
            mine: list[int] = []
            for layer, rank in enumerate(route):
                at = plan.bring(at, rank)
                mine.append(at)
                at = plan.forward(rank, layer, at, self.layers[layer].weight(rank))
            inputs.append(mine)
            outputs.append(at)
        merged = self.merge(inputs, outputs)
        for number in merged:
            self.backward(number, inputs[number], outputs[number])

    def merge(self, inputs: list[list[int]], outputs: list[int]) -> list[int]:
        """Two microbatches that took the same way may go back as one. The numbers of those that go."""
        left = list(range(len(inputs)))
        if len(left) > 1 and self.random.random() < 0.2:
            one, two = self.random.sample(left, 2)
            if self.there[one] == self.there[two] == self.back[one] == self.back[two]:
                plan = self.plan
                inputs[one] = [plan.combine(a, b) for a, b in zip(inputs[one], inputs[two], strict=True)]
                outputs[one] = plan.combine(outputs[one], outputs[two])
                left.remove(two)
        return left

    def backward(self, number: int, inputs: list[int], output: int) -> None:
        plan, random, back = self.plan, self.random, self.back[number]
        grad = plan.loss(plan.homes[output], output)
        again: int | None = None
        for layer in reversed(range(plan.layers)):
            rank = back[layer]
            inp, grad = inputs[layer], plan.bring(grad, rank)
            if layer and random.random() < 0.2:  # computed again, from what went into the layer before
                before = plan.bring(inputs[layer - 1], rank)
                if self.layers[layer - 1].full[rank]:
                    again = plan.forward(rank, layer - 1, before, self.layers[layer - 1].weight(rank))
                    inp = again
            inp = plan.bring(inp, rank)
            made, grad = plan.back(rank, layer, inp, grad, self.layers[layer].weight(rank), random)
            self.layers[layer].grads[rank].append(made)

    def end(self) -> None:
        """Hands in what has to be, at the most one weight of a layer on a rank: shards are put together before."""
        plan, random = self.plan, self.random
        for (rank, layer), news in sorted(self.news.items()):
            must = any(needed for _, needed in news)
            totals = {piece[3] for piece in self.layers[layer].pieces[rank]}
            if len(news) > 1 and (must or random.random() < 0.5):
                assert len(totals) == 1
                news = [(unions(plan, random, [new for new, _ in news]), must)]
            for new, _ in news:
                if must or random.random() < 0.6:
                    plan.final(layer, new)
                else:
                    plan.ends.append(new)

    def idle(self) -> None:
        """What nobody asked for, and nobody minds: a forward for nothing, loads, words, shards."""
        plan, random = self.plan, self.random
        layer = random.choice(self.layers)
        for rank in random.sample(range(plan.ranks), random.randint(1, plan.ranks)):
            way = random.choice(["load", "zero", "word", "forward"])
            if way == "load":
                plan.load(rank, layer.layer, 0, random.randint(1, 3))
            elif way == "zero":
                value = plan.nothing(rank, layer.layer)
                plan.combine(plan.shard(value, 0, 2), plan.shard(value, 1, 2))
            elif way == "word" and plan.ranks > 1:
                number = len(plan.nodes)
                target = random.choice([r for r in range(plan.ranks) if r != rank])
                plan.do(rank, "pass_to", None, (), (), peer=target)
                plan.do(target, "receive", None, (), (), peer=rank, sent=number)
                plan.nodes[-1].after.append(number)
            elif self.layers[0].full[rank]:
                inputs = [
                    v for v, (of, _) in enumerate(plan.about) if (plan.kinds[v], of, plan.homes[v]) == ("A", 0, rank)
                ]
                if inputs:
                    plan.forward(rank, 0, random.choice(inputs), self.layers[0].weight(rank))


def meshes(random: Random, ranks: int) -> Mesh | None:
    """A mesh of these ranks in any order, or none."""
    if random.random() < 0.5:
        return None
    order = list(range(ranks))
    if random.random() < 0.6:
        random.shuffle(order)
    pairs = [(a, ranks // a) for a in range(1, ranks + 1) if ranks % a == 0]
    rows, columns = random.choice(pairs)
    axes = {"row": rows, "column": columns} if random.random() < 0.8 else {"all": ranks}
    return Mesh(axes, ranks=order, host_size=random.choice([None, 2]))


SIZES = {"ranks": [1, 2, 2, 3, 3, 4, 4, 6], "layers": [1, 1, 1, 2, 2, 3], "batches": [1, 2, 2, 3]}


def training_step(random: Random, ranks: int = 0, layers: int = 0, batches: int = 0) -> Plan:
    """A random correct training step, of these sizes or of random ones."""
    ranks = ranks or random.choice(SIZES["ranks"])
    layers = layers or random.choice(SIZES["layers"])
    batches = batches or random.choice(SIZES["batches"])
    return _Step(random, ranks, layers, batches, meshes(random, ranks), random.choice(COSTS)).plan
