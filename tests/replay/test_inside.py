"""The inside of a layer with real tensors: the gradients of one process, and every value that is done its part of the
undivided computation, in programs by hand and in those of chance."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lib import Activation, ActivationGrad, Layer, Model, Trace, Weight, WeightGrad, route_by_loads, simulate
from lib.replay import ReplayResult, UnfitTrace, replay
from lib.values.dims import RunSet
from tests.replay.hooks import hooked
from tests.replay.schedules import compared
from tests.support.inside import ATTENTION, PROGRAMS, load, update
from tests.support.profiles import THOROUGH, sample
from tests.support.said import Said
from tests.values.fuzz import NETS, ROWS, fuzzed
from tests.values.numbers import Undivided

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

from lib.replay.options import ReplayOptions  # noqa: E402
from lib.replay.rank.kernels import Call  # noqa: E402
from lib.replay.sizes import Sizes  # noqa: E402
from lib.replay.training import InitialNumbers, select, undivided  # noqa: E402


def run(name: str, **more: Any) -> Trace:
    return Trace.of(PROGRAMS[name].run(**more))


def right(result: ReplayResult) -> None:
    """Ordinary training in numbers, in the simulated memory at every event, with the simulated bytes sent."""
    assert result.ok, result.text()
    assert {error.what for error in result.errors} >= {"gradient", "weight", "optimizer state", "final weight"}
    for one in result.ranks:
        assert all(measured == simulated for _, simulated, measured in one.by_event)
        assert one.sent == pytest.approx(one.simulated_sent)  # thirds are rounded
    assert all(measured == alive for _, measured, alive in compared(result))


@pytest.mark.parametrize(("optimizer", "backward"), [("sgd", "explicit"), ("adam", "autograd")])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_trains_what_ordinary_training_trains(name: str, optimizer: str, backward: str) -> None:
    """And every value that is done is its part of the whole."""
    result, count = values_compared(run(name), optimizer=optimizer, backward=backward)
    right(result)
    assert count > 20


@pytest.mark.parametrize("name", sample(PROGRAMS))
def test_so_it_does_with_half_the_digits(name: str) -> None:
    right(replay(run(name), transport="local", dtype="float32"))


@pytest.mark.parametrize("name", PROGRAMS if THOROUGH else ["vocabulary", "zigzag"])
def test_so_do_processes(name: str) -> None:
    result = replay(run(name), transport="gloo", timeout=120)
    right(result)
    assert "layers as they are described" in result.text()


EVEN, SKEWED = route_by_loads([1] * 8, top=2), route_by_loads([9, 5, 4, 3, 2, 2, 1, 1], top=2)
EXPERTS: list[tuple[int, int | None, Any]] = [(2, None, EVEN), (4, 3, SKEWED), (8, 1, EVEN)]


@pytest.mark.parametrize(
    ("ranks", "capacity", "route"), [*EXPERTS, (8, 1, SKEWED), (4, 3, EVEN), (2, None, SKEWED)] if THOROUGH else EXPERTS
)
def test_experts_on_any_number_of_ranks_train_what_a_loop_over_them_trains(
    ranks: int, capacity: int | None, route: Any
) -> None:
    layers = [replace(layer, experts=8) if layer.experts else layer for layer in PROGRAMS["experts"].layers]
    layers[1] = replace(layers[1], route=route, capacity=capacity)
    result = replay(run("experts", layers=layers, ranks=ranks, batches=8), transport="local")
    right(result)
    assert max(error.relative for error in result.errors) <= 1e-12


def gathered(how: str) -> Any:
    """Attention where queries are gathered, and keys stay: each rank has a part of the sum for all rows."""

    async def step(model: Model) -> Model:
        rank, ranks = model.rank, model.RANKS
        load(model, 0)
        load(model, 2)
        data = model.shard(model.get_activation(range(model.BATCHES)), "rows", rank, ranks)
        x = model.forward(0, data, model.weights[0])
        queries = await model.allgather(x, 1)
        out = model.forward(1, queries, x)
        if how == "reduced":
            out = await model.allreduce(out, 2)
        elif how == "in a bucket":
            (out,) = await model.allreduce_bucket([out])
        else:
            out = await model.scatterreduce(out, 2, dim="rows")
        dw2, g = model.backward(2, out, model.loss(model.forward(2, out, model.weights[2])), model.weights[2])
        if how == "scattered":
            dkeys, dx = model.backward(1, x, g, queries)
            dkeys = await model.scatterreduce(dkeys, 0, dim="rows")
        else:
            g = await model.allgather(g, 1) if how == "elsewhere" else g
            dkeys, dx = model.backward(1, queries, g, x)
            dx = await model.scatterreduce(dx, 0, dim="rows")
        dw0, _ = model.backward(0, data, dx + dkeys, model.weights[0])
        await update(model, 0, dw0)
        await update(model, 2, dw2, reduce=how in ("scattered", "elsewhere"))
        return model

    return step


SUMS = ["reduced", "in a bucket", "scattered"]


@pytest.mark.parametrize(
    ("how", "transport"), [*product(SUMS, ["local"]), *product(SUMS if THOROUGH else SUMS[1:2], ["gloo"])]
)
def test_softmaxes_are_added_up_by_every_collective_that_adds(how: str, transport: str) -> None:
    right(replay(simulate(gathered(how), layers=ATTENTION, ranks=4, batches=2), transport=transport, timeout=120))


REFUSED = Said(Path(__file__).with_name("said") / "inside.txt", kinds=True)


@pytest.mark.parametrize("call", REFUSED.texts)
def test_what_has_no_tensors_is_refused_in_words(call: str) -> None:
    table = [Layer("embedding", 30, 8, 16), *PROGRAMS["vocabulary"].layers[1:]]
    known = {
        "elsewhere": simulate(gathered("elsewhere"), layers=ATTENTION, ranks=4, batches=2),
        "rows": run("grid", layers=[Layer()] * 2),
        "table": run("vocabulary", layers=table),
    }
    assert replay(known["rows"], transport="local", hidden=8, length=4).ok
    REFUSED.check(call, globals() | known)


async def padded(model: Model) -> Model:
    """Data parallel with a batch a rank, of which the last one is padding."""
    x = [model.get_activation([model.rank])]
    for layer in range(3):
        if layer < 2:
            load(model, layer)
        x.append(model.forward(layer, x[layer], *([model.weights[layer]] if layer < 2 else [])))
    g = model.backward(2, x[2], model.loss(x[3]))
    dw, g = model.backward(1, x[1], g, model.weights[1])
    await update(model, 1, dw)
    await update(model, 0, model.backward(0, x[0], g, model.weights[0]))
    return model


def test_tokens_that_are_padding_have_no_gradient() -> None:
    right(replay(simulate(padded, layers=NETS["vocabulary"], ranks=3, batches=2, padding=1), transport="local"))


NO_MATTER = {("ulysses", "backward", 4), ("ulysses", "add", -1), ("vocabulary", "allreduce", 4)}
"""The gradient of the data; and the losses of the rows, of which the gradient does not depend."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_that_is_off_is_seen(name: str) -> None:
    """What each operation gives on rank 1, the first time that anybody needs it."""
    trace = run(name)
    program = trace.rebuilt().run.programs[1]
    used = {number for event in program.events for number in event.inputs}
    first: dict[tuple[str, int | None], int] = {}
    for event in program.events:
        for number in event.outputs:
            value = program.values[number]
            if value is not None and not value.place.zero and number in used and event.op != "get_activation":
                first.setdefault((event.op, event.layer), number)
    for what, number in sample(first.items()):

        def nudge(rank: int, index: int, event: Any, tensors: dict[int, Any], number: int = number) -> None:
            made = program.events[event.arg[0]].outputs if event.op == "wait" else event.outputs
            if rank == 1 and number in made:
                tensors[number] *= 1.01

        assert hooked(trace, nudge, transport="local").ok == ((name, *what) in NO_MATTER), what


CLOSE = 1e-12
"""Of the largest number of a tensor."""
Initial = tuple[InitialNumbers, dict[int, Any], Any]


def initial_of(trace: Trace) -> Initial:
    """The numbers that training starts from, and weights and data in which autograd is interested."""
    initial = InitialNumbers(Sizes.of(trace, ReplayOptions()), torch.float64)
    data = initial.rows("data", range(trace.batches)).requires_grad_()
    return initial, {i: initial.matrix(i).clone().requires_grad_() for i in initial.sizes.weighted}, data


def on_line(initial: InitialNumbers, number: int, tensor: Any) -> Any:
    """An activation, or its gradient, with a place for each row at each expert, where some are at each."""
    batches, schema = initial.sizes.shape.batches, initial.sizes.shape.schema_of("activation", number)
    if schema is None or schema.route is None or tensor is None:
        return tensor
    full = torch.zeros(batches, *[dim.size for dim in schema.spaces[1 : schema.ndim]], dtype=tensor.dtype)
    rows, pairs = RunSet.span(0, full.shape[2]), product(range(batches), range(full.shape[1]))
    there = [(batch, expert, row) for batch, expert in pairs for row in schema.route.rows_of(expert, batch, rows)]
    return full.index_put_(tuple(torch.tensor(there).t()), tensor)


def truth(trace: Trace, start: Initial, back: Any) -> dict[tuple[type[Any], int], Any]:
    """All of each tensor, by kind and layer, as autograd has it of one process; flat. `back` begins at the output."""
    initial, weights, data = start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(initial, "rows", lambda kind, batches: data)
        found = undivided(initial, weights, range(trace.batches))
    for tensor in found[1:]:
        tensor.retain_grad()
    back(found[-1])
    true = {(Activation, i): on_line(initial, i, tensor.detach()) for i, tensor in enumerate(found)}
    true |= {(ActivationGrad, i - 1): on_line(initial, i, tensor.grad) for i, tensor in enumerate(found)}
    true |= {(Weight, i): tensor.detach() for i, tensor in weights.items()}
    true |= {(WeightGrad, i): tensor.grad for i, tensor in weights.items()}
    return {key: tensor.reshape(-1) for key, tensor in true.items() if tensor is not None}


def values_compared(trace: Trace, transport: str = "local", **more: Any) -> tuple[ReplayResult, int]:
    """Replays a run, and compares each value that is done with its part of the truth: how many they were here, and not
    in other processes."""
    initial, _, _ = start = initial_of(trace)
    target = initial.rows("target", range(trace.batches))
    true = truth(trace, start, lambda y: initial.layers[-1].loss(y, target, len(target)).backward())
    count = 0

    def look(rank: int, index: int, event: Any, tensors: dict[int, Any]) -> None:
        nonlocal count
        program = trace.rebuilt().run.programs[rank]
        for number in program.events[event.arg[0]].outputs if event.op == "wait" else event.outputs:
            value = program.values[number]
            known = None if value is None else true.get((type(value), value.layer))
            if known is None or value is None or value.place.open or value.updates or number not in tensors:
                continue
            part = select(known, RunSet.span(0, known.numel()), initial.sizes.elements(value))
            off = (tensors[number] - part).abs().max().item() if part.numel() else 0.0
            assert off <= CLOSE * known.abs().max().item(), f"{value} is off by {off}"
            count += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "is_used", lambda call, place: True)  # gradients that nobody uses are worked out, too
        return hooked(trace, look, transport=transport, **more), count


@pytest.fixture
def anything_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are no training step, too."""
    monkeypatch.setattr("lib.replay.plan._must_be_a_training_step", lambda trace: None)


@pytest.mark.parametrize("net", NETS)
def test_whatever_is_accepted_is_right(net: str, anything_goes: None) -> None:
    """Few programs have no tensors: they cut a weight into more shards than it has numbers, or within a row or head."""
    seeds, count, unfit = 40 if THOROUGH else 2, 0, 0
    for seed in range(seeds):
        trace, backward = fuzzed(net, seed, 60).model.trace, ("explicit", "autograd")[seed % 2]
        try:
            count += values_compared(trace, backward=backward, verify=False)[1]
        except UnfitTrace:
            unfit += 1
    assert count > 50 * seeds
    assert unfit <= max(1, seeds // 5)


@pytest.mark.parametrize("net", NETS)
def test_torch_and_the_formulas_on_arrays_agree(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The truth of a replay, and that of the fuzz: written twice."""
    monkeypatch.setattr("lib.replay.layers.EPS", 0.1)
    trace = fuzzed(net, 0, 1).model.trace
    initial, weights, data = start = initial_of(trace)
    for layer in initial.layers:
        layer.classes = lambda batch: torch.arange(ROWS) * 3 + batch * 7
    true = truth(trace, start, lambda y: y.backward(torch.sin(y.detach())))
    arrays = {i: weight.detach().numpy()[None] for i, weight in weights.items()}
    shape = initial.sizes.shape
    scale = 10 if shape.descriptions[0].kind == "embedding" else 1  # tokens are tenths there
    x = data.detach().numpy().reshape(1, trace.batches, *shape.descriptions[0].space.values(), -1) / scale
    other = Undivided(shape, weights=arrays, data=x)
    pairs = [(other.x, Activation, 0), (other.g, ActivationGrad, 1), (other.dw, WeightGrad, 0)]
    for found, kind, off in pairs:
        assert found
        for number, array in found.items():
            if (kind, number - off) in true and (kind, number) != (Activation, 0):
                assert true[kind, number - off].numpy() == pytest.approx(array.reshape(-1), abs=1e-12), (kind, number)
