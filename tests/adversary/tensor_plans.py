"""Random training steps with parts of weights: columns and rows, features, sums that are done late, by any means.

Ranks are rows of data, and members among whom layers are cut. A layer is cut into columns, then the next into rows, or
it is whole on every member, or cut into row shards that are gathered. The rest is that of `plans`.
"""

from random import Random

from lib import Mesh
from tests.adversary.plans import COSTS, Plan, sums

__all__ = ["tensor_step"]

SIZES = [(1, 2), (1, 2), (2, 2), (2, 2), (1, 4), (3, 2)]
"""Rows of data, and members of each."""


class _Step:
    def __init__(self, random: Random) -> None:
        rows, members = random.choice(SIZES)
        order = list(range(rows * members))
        random.shuffle(order)
        mesh = Mesh({"data": rows, "model": members}, ranks=order)
        layers, each = random.choice([1, 2, 2, 3, 4]), random.choice([1, 2])
        self.random = random
        self.plan = Plan(rows * members, layers, rows * each, mesh, random.choice(COSTS))
        self.lines = [mesh.group(mesh.rank(data=row, model=0), "model") for row in range(rows)]
        self.across = [mesh.group(mesh.rank(data=0, model=member), "data") for member in range(members)]
        self.members, self.each = members, each
        self.styles = self.cut()
        self.weights: list[dict[int, int]] = []
        self.states: list[dict[int, int]] = []
        for layer in range(layers):
            self.load(layer)
        self.grads: list[dict[int, int]] = [{} for _ in range(layers)]
        for row, line in enumerate(self.lines):
            self.compute(row, line)
        for layer in random.sample(range(layers), layers):
            self.finish(layer)

    def cut(self) -> list[str]:
        """How each layer is cut: rows come behind columns."""
        found: list[str] = []
        while len(found) < self.plan.layers:
            pair = self.random.random() < 0.7 and len(found) + 1 < self.plan.layers
            found += ["columns", "rows"] if pair else [self.random.choice(["whole", "gathered", "columns gathered"])]
        return found

    def load(self, layer: int) -> None:
        plan, style = self.plan, self.styles[layer]
        weights: dict[int, int] = {}
        states: dict[int, int] = {}
        for line in self.lines:
            for member, rank in enumerate(line):
                part = (0, 1) if style == "whole" else (member, self.members)
                weights[rank], states[rank] = plan.load(rank, layer, *part)
                if style.startswith("columns"):
                    plan.nodes[-1].calls[0].more["dim"] = "out"
        self.weights.append(weights)
        self.states.append(states)

    def compute(self, row: int, line: tuple[int, ...]) -> None:
        plan, random = self.plan, self.random
        batches = frozenset(range(row * self.each, (row + 1) * self.each))
        at = {rank: self.data(line, number, rank, batches) for number, rank in enumerate(line)}
        if self.split:
            at = dict(zip(line, plan.one_each("allgather", 0, line, [at[rank] for rank in line]), strict=True))
        inputs: list[dict[int, int]] = []
        used: list[dict[int, int]] = []
        for layer, style in enumerate(self.styles):
            weights = self.weights[layer]
            if style.endswith("gathered"):
                whole = plan.one_each("allgather", layer, line, [weights[rank] for rank in line])
                weights = dict(zip(line, whole, strict=True))
            inputs.append(at)
            used.append(weights)
            at = {rank: plan.forward(rank, layer, at[rank], weights[rank]) for rank in line}
            if style == "rows":
                at = self.summed(layer, line, at, batches)
        grad = {rank: plan.loss(rank, at[rank]) for rank in line}
        for layer, style in reversed(list(enumerate(self.styles))):
            before: dict[int, int] = {}
            for rank in line:
                made = plan.back(rank, layer, inputs[layer][rank], grad[rank], used[layer][rank], random, data=True)
                self.grads[layer][rank], before[rank] = made
            grad = before
            if style == "columns" and (layer or random.random() < 0.5):
                grad = self.summed(layer, line, grad, batches)

    def data(self, line: tuple[int, ...], number: int, rank: int, batches: frozenset[int]) -> int:
        """All of them, or all that there are, cut; or some, that are gathered later."""
        if not number:
            self.split = len(batches) == len(line) and self.random.random() < 0.5
        if self.split:
            return self.plan.data(rank, [sorted(batches)[number]])
        return self.plan.data(rank, batches)

    def summed(
        self, layer: int, line: tuple[int, ...], parts: dict[int, int], batches: frozenset[int]
    ) -> dict[int, int]:
        plan, random = self.plan, self.random
        ways = (
            ["allreduce", "allreduce", "messages", "halves"]
            if len(batches) % len(line) == 0
            else ["allreduce", "messages"]
        )
        way = random.choice(ways)
        if way == "messages":
            return {rank: sums(plan, random, [plan.bring(parts[other], rank) for other in line]) for rank in line}
        if way == "allreduce":
            done = plan.one_each("allreduce", layer, line, [parts[rank] for rank in line])
        else:
            cut = plan.one_each("scatterreduce", layer, line, [parts[rank] for rank in line])
            done = plan.one_each("allgather", layer, line, cut)
        return dict(zip(line, done, strict=True))

    def finish(self, layer: int) -> None:
        plan, style = self.plan, self.styles[layer]
        grads = self.grads[layer]
        for group in self.across:
            if len(group) > 1:
                done = plan.one_each("allreduce", layer, group, [grads[rank] for rank in group])
                grads |= dict(zip(group, done, strict=True))
        for line in self.lines:
            news: list[int] = []
            for rank in line:
                new, _ = plan.update(layer, grads[rank], self.weights[layer][rank], self.states[layer][rank])
                news.append(new)
            if style != "whole" and self.random.random() < 0.3:
                news = plan.one_each("allgather", layer, line, news)
            for new in news:
                plan.final(layer, new)


def tensor_step(random: Random) -> Plan:
    """A random correct training step in which weights are cut along both of their dims."""
    return _Step(random).plan
