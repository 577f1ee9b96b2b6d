"""A dim and a kind of layer that are made up: a blur along the rows, in parts that overlap at their edges.

Run by itself (see test_made_up_layer), as a row of a table is there before anybody reads the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lib.values import facts
from lib.values import table as tables

as_it_is = tables.table


def with_more(rows: Iterable[Any], by: str = "name") -> Mapping[str, Any]:
    """The tables of dims and of kinds of layer have more rows from the beginning."""
    known, more = as_it_is(rows, by), list[Any]()
    if "batch" in known and by == "role":
        kind = type(known["batch"])
        more.append(kind("points", "point", "points", counted=True))
        more.append(kind("results", "result row", "result rows", counted=True, partial=True, owed="give the rows back"))
    elif "attention" in known:
        more.append(SimpleNamespace(name="blur", kind=Blur))
    return as_it_is([*known.values(), *more], by)


tables.table = with_more

from lib.errors.exceptions import RuleError  # noqa: E402
from lib.values.dims import Relation  # noqa: E402
from lib.values.kinds.kind import Sum, fits, part, same  # noqa: E402
from lib.values.kinds.linear import Linear  # noqa: E402
from lib.values.placement import Place  # noqa: E402

if TYPE_CHECKING:
    from lib.values.values import Value

KERNEL = 3


class Blur(Linear):
    """A blur padded with zeros: of the rows that are here it gives those with both neighbours."""

    name = "blur"

    def describe(self) -> None:
        super().describe()
        rows = self.layer.rows
        self.near = Relation(lambda row: range(max(row - 1, 0), min(row + 2, rows)))
        self.owes = ((*self.owes[0], Sum("results", self.dim("results", rows), self.near, "rows")),)
        self.weight_dims = (*self.weight_dims, ("points", self.dim("points", KERNEL)))
        self.work *= KERNEL

    def output_of(self, inp: Value, other: Value | None) -> Place:
        fits("input of forward", inp, other, "in")
        here = part(inp, "rows")
        inner = frozenset(row for row in here.pieces if here.pieces.issuperset(self.near.needs(row)))
        rows = here.dim.piece(here.dim.size, inner)
        return self.output.at({**same(inp), "rows": rows, "features": part(other, "out"), "terms": part(other, "in")})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        self.alike(op, inp, grad, "batch")
        if not part(inp, "rows").pieces.issuperset(self.near(part(grad, "rows").pieces)):
            raise RuleError(facts.OtherParts(op, "rows", inp, grad))
        fits(f"input of {op}", inp, other, "in")
        fits(f"gradient given to {op}", grad, other, "out")
        summed = {"batch": part(inp, "batch"), "rows": part(grad, "rows")}
        ends = {"in": part(other, "in"), "out": part(other, "out")}
        open_sums = {"terms": part(other, "out"), "results": part(grad, "rows")}
        by_input = self.back(0, {**same(inp), "features": part(other, "in"), **open_sums})
        return cast("Any", self.weight_gradient).at({**summed, **ends}), by_input


from drawing import draw, draw_collective, step_through  # noqa: E402
from drawing.values import picture_of_value  # noqa: E402
from lib import Layer, Model, PuzzleError, Trace, check, simulate  # noqa: E402
from tests.support.profiles import THOROUGH  # noqa: E402
from tests.values import numbers  # noqa: E402


class Math(numbers.Math):
    """Of rows that are next to each other, which is all that this program has."""

    def near(self, at: Place) -> Iterable[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Each tap, with the places of the rows that it takes and of those that it gives."""
        rows = [int(row) for row in numbers.items(at.part("rows"))]
        given = [row for row in rows if set(rows).issuperset(cast(Blur, self.kind).near.needs(row))]
        for tap in range(KERNEL):
            pairs = [(rows.index(row + tap - 1), i) for i, row in enumerate(given) if row + tap - 1 in rows]
            taken, gives = zip(*pairs, strict=True)
            yield tap, np.array(taken), np.array(gives)

    def forward(self, x: Any, other: Any, at: Place, beside: Place | None) -> Any:
        rows = [int(row) for row in numbers.items(at.part("rows"))]
        near = cast(Blur, self.kind).near
        y = np.zeros((1, x.shape[1], sum(set(rows).issuperset(near.needs(row)) for row in rows), other.shape[2]))
        for tap, taken, gives in self.near(at):
            y[:, :, gives] += np.tanh(x[:, :, taken]) @ other[..., tap]
        return y

    def backward(self, x: Any, grad: Any, other: Any, at: Place, beside: Place | None) -> tuple[Any, Any]:
        by_weight, by_input, inner = np.zeros_like(other), np.zeros_like(x), np.tanh(x)
        for tap, taken, gives in self.near(at):
            by_weight[..., tap] = np.einsum("nbri,nbro->nio", inner[:, :, taken], grad[:, :, gives])
            by_input[:, :, taken] += grad[:, :, gives] @ np.swapaxes(other[..., tap], -1, -2)
        return by_weight, by_input * (1 - inner**2)


numbers.MATH["blur"] = Math
ENDS = (0, 4, 7, 16)


def program(mistake: str = "") -> Any:
    """Layers of rows in unequal parts: edges are exchanged before each, and their gradients go back."""

    async def swap(model: Model, *sent: tuple[int, Any]) -> list[Any]:
        there = [(model.rank + step, value) for step, value in sent if 0 <= model.rank + step < model.RANKS]
        works = [model.pass_to(rank, value) for rank, value in there]
        got = [await model.receive(rank) for rank, _ in there]
        for work in works:
            await work
        return got

    async def step(model: Model) -> Model:
        low, high = ENDS[model.rank], ENDS[model.rank + 1]
        inner = low + (low > 0), high - (high < ENDS[-1])
        x, taken = model.get_activation(range(model.BATCHES)).cut("rows", low, high), {}
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
            if mistake != "no edges":
                for edge in await swap(model, (-1, x.cut("rows", low, low + 1)), (1, x.cut("rows", high - 1, high))):
                    x = x.combine(edge)
            taken[layer] = x
            x = model.forward(layer, x, model.weights[layer])
        g = model.loss(x)
        for layer in reversed(range(model.LAYERS)):
            dw, g = model.backward(layer, taken[layer], g, model.weights[layer])
            if layer and mistake == "cut off":
                g = g.cut("rows", low, high)
            elif layer and mistake != "not given back":
                edges = [(-1, low, low - 1)] * (low > 0) + [(1, high - 1, high)] * (high < ENDS[-1])
                back = await swap(model, *[(step, g.cut("rows", out, out + 1)) for step, _, out in edges])
                own = g.cut("rows", *inner)  # done by itself
                for (_, at, _), more in zip(edges, back, strict=True):
                    own = own.combine(g.cut("rows", at, at + 1) + more)
                g = own
            if mistake != "no all-reduce":
                dw = await model.allreduce(dw, layer)
            weight, state = model.update(layer, dw, model.weights[layer], model.opt_states[layer])
            model.weights[layer], model.opt_states[layer] = weight, state
            model.set_final_weight(layer, weight)
        return model

    return step


def run(mistake: str = "") -> list[Model]:
    layers = [Layer("blur", 4, 6, ENDS[-1]), Layer("blur", 6, 4, ENDS[-1])]
    return simulate(program(mistake), layers=layers, batches=2, ranks=3)


def replay_it(trace: Trace) -> None:
    """A real layer is a row: what forward does, which torch differentiates; and the truth, which torch has."""
    from torch import Tensor, tanh
    from torch.nn import functional

    from lib.replay import replay
    from lib.replay.grids import REAL_LAYERS
    from lib.replay.layers import Held, RealLayer

    class Real(RealLayer):
        def forward(self, x: Held, other: Held) -> Tensor:
            rows = x.numbers("rows")
            edges = int(rows[0] == 0), int(rows[-1] == self.described.rows - 1)
            padded = functional.pad(tanh(x.tensor).transpose(1, 2), edges)
            return functional.conv1d(padded, other.tensor.permute(1, 0, 2)).transpose(1, 2)

        def whole(self, x: Held, other: Held) -> Tensor:
            weight = other.tensor.permute(1, 0, 2)
            return functional.conv1d(tanh(x.tensor).transpose(1, 2), weight, padding=1).transpose(1, 2)

    REAL_LAYERS["blur"] = Real
    result = replay(trace, transport="local")
    assert result.ok, result.text()
    assert all(measured == simulated for one in result.ranks for _, simulated, measured in one.by_event)


def main(folder: Path) -> None:
    models = run()
    verdict = check(models)
    assert verdict.correct, verdict.faults
    assert numbers.play(models[0].trace) > 30
    trace = models[0].trace
    if THOROUGH and find_spec("torch") is not None:
        replay_it(trace)
    trace.save(folder / "run.json")
    for again in (Trace.load(folder / "run.json"), Trace.parse(trace.text())):
        assert again.text() == trace.text()
        assert check(again).correct
        assert check(again).time == verdict.time
    assert "forward" in draw(models).svg()
    assert "peak" in step_through(models).html()
    assert "All-reduce" in repr(draw_collective(models, "allreduce"))
    shown = {str(value): value for value in models[1].program.values if value is not None}
    assert any("result rows 4-6 of 16 of a sum" in words for words in shown), sorted(shown)
    assert all(picture_of_value(value).svg() for value in shown.values())
    for mistake in ("no edges", "not given back", "cut off", "no all-reduce"):
        try:
            faults = "\n".join(check(run(mistake)).faults)
        except PuzzleError as error:
            faults = str(error)
        assert "fix: " in faults, mistake
        assert mistake != "cut off" or "give the rows back" in faults, faults


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    print("made up, and right")
