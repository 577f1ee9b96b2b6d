"""A new operation and a new collective are a row, a method and a kernel: here some are made up (see made_up_rows), and
everything that reads a Trace takes them as they are. Run by test_made_up, in a process whose tables have the rows."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from drawing import draw, draw_collective, step_through
from drawing.canvas.palette import LOOKS, Colour, Look
from lib import UNIT, ActivationGrad, Links, MismatchError, Model, RankFailed, Trace, WeightGrad, check, simulate
from lib.analysis import figures
from lib.analysis.memory import whereabouts
from lib.errors.exceptions import TraceError
from lib.trace.event import event_words
from lib.trace.retiming import retime
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION, LOADS, OPERATIONS
from tests.made_up_rows import RENAMED

HALVES = [OPERATIONS[name] for name in ("weight_gradient_half", "input_gradient_half")]
MADE_UP = [COLLECTIVES[name] for name in ("reduce_to", "permute", "gather_unequal")]


def weight_gradient_half(model: Model, layer: int, inp: Any, grad: Any, weight: Any) -> WeightGrad:
    return model._compute("weight_gradient_half", layer, inp, grad, weight)


def input_gradient_half(model: Model, layer: int, inp: Any, grad: Any, weight: Any) -> ActivationGrad:
    return model._compute("input_gradient_half", layer, inp, grad, weight)


def reduce_to(model: Model, value: Any, layer: int, root: int = 0, group: Any = None) -> Any:
    return model._communicate("reduce_to", value, layer, group, root)


def permute(model: Model, value: Any, layer: int, group: Any = None) -> Any:
    return model._communicate("permute", value, layer, group)


def gather_unequal(model: Model, value: Any, layer: int, group: Any = None) -> Any:
    return model._communicate("gather_unequal", value, layer, group)


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The methods, and a colour. The rows are in the tables."""
    for method in (weight_gradient_half, input_gradient_half, reduce_to, permute, gather_unequal):
        monkeypatch.setattr(Model, method.__name__, method, raising=False)
    half = Colour("#ffe0d0", "#503020"), Colour("#a05030", "#d09070")
    monkeypatch.setitem(LOOKS, "half", Look("half of backward", *half))


async def step(model: Any) -> None:
    """One training step: weights in unequal parts, and each rank works on the batches of its neighbour."""
    for layer in range(model.LAYERS):
        parts = [model.rank, model.RANKS][: 1 + (model.rank == model.RANKS - 1)]  # the last one has twice as much
        pairs = [model.load_weights(layer, part, model.RANKS + 1) for part in parts]
        weight, state = pairs[0]
        for other, other_state in pairs[1:]:
            weight, state = weight.combine(other), state.combine(other_state)
        model.weights[layer], model.opt_states[layer] = weight, state
    model.activations[0] = await model.permute(model.get_activation(range(model.rank, model.BATCHES, model.RANKS)), 0)
    for layer in range(model.LAYERS):
        whole = await model.gather_unequal(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], whole)
    grad = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        whole = await model.gather_unequal(model.weights[layer], layer)
        inp = model.activations.pop(layer)
        mine = model.weight_gradient_half(layer, inp, grad, whole)
        grad = model.input_gradient_half(layer, inp, grad, whole)
        total = await model.reduce_to(mine, layer, root=1)
        total = await model.broadcast(mine if total is None else total, layer, root=1)
        new, state = model.update(layer, total, model.weights.pop(layer), model.opt_states.pop(layer))
        model.weights[layer], model.opt_states[layer] = new, state
        model.set_final_weight(layer, new)


@pytest.fixture(params=[UNIT, Links()], ids=["unit", "links"])
def models(request: pytest.FixtureRequest) -> list[Model]:
    return simulate(step, ranks=3, layers=2, batches=3, costs=request.param)


def test_it_is_one_correct_training_step(models: list[Model]) -> None:
    verdict = check(models)
    assert verdict.correct, verdict.faults
    ops = {event.op for _, event in Trace.of(models).events()}
    assert ops >= {row.name for row in (*HALVES, *MADE_UP)}


def test_times_follow_from_the_rows() -> None:
    """Six compute steps (forward, and two halves of a half step each), two updates, and each collective by its way."""
    unit = Trace.of(simulate(step, ranks=3, layers=2, batches=3))
    collectives = 1 + 2 * 2 + 2 * 2
    assert figures.end(unit) == pytest.approx(2 * (1 + 0.5 + 0.5) + 2 * 0.5 + collectives * UNIT.collective)
    # A permutation sends a batch over one link; a weight is two batches, of which a ring of 3 with a half and two
    # quarters of it sends the half twice, and a chain, to the root or from it, all of it.
    assert figures.end(retime(unit, Links())) == pytest.approx(5 + 0.2 * (1 + 4 * 2 * 2 / 2 + 4 * 2))
    whole, batch = 512 * 512, 512 * 256
    parts = [whole // 4, whole // 4, whole // 2]
    chains = 2 * 2 * whole * 2 / 3
    sent = [batch + 4 * (whole - parts[(rank + 1) % 3]) + chains for rank in range(3)]
    assert [float(elements) for elements, _ in figures.traffic(unit)] == pytest.approx(sent)


def test_it_is_saved_loaded_printed_and_parsed(models: list[Model], tmp_path: Path) -> None:
    trace = Trace.of(models)
    trace.save(tmp_path / "made_up.json")
    loaded = Trace.load(tmp_path / "made_up.json")
    parsed = Trace.parse(trace.text())
    for word in ("HW1:0", "HI1:0", "RT1@1", "PM0", "AU0"):
        assert word in trace.text()
    for again in (loaded, parsed):
        assert again.text() == trace.text()
        assert check(again).correct
        assert figures.end(again) == figures.end(trace)
        assert figures.traffic(again) == figures.traffic(trace)


def test_an_argument_of_its_own_is_in_every_form(tmp_path: Path) -> None:
    def half(model: Any) -> None:
        model._compute("half_of", None, model.load_weights(0)[0], said=(1,))

    trace = Trace.of(simulate(half, ranks=1, layers=1, batches=1))
    trace.save(tmp_path / "half.json")
    for again in (trace, Trace.load(tmp_path / "half.json"), Trace.parse(trace.text())):
        assert str(again.rebuilt().run.programs[0].values[2]) == "weight of layer 0, shard 1 of 2"
    for wrong in ("HO/", "HO@1.2/"):
        with pytest.raises(TraceError, match=r"half_of has . numbers in its argument, not 1"):
            Trace.parse(trace.text().replace("HO@1/", wrong))


def test_it_is_drawn_stepped_through_and_reviewed(models: list[Model]) -> None:
    picture = draw(models).svg()
    for words in ("input gradient half, layer 1, batch 0", "unequal all-gather, layer 0", "half of backward"):
        assert words in picture
    page = step_through(models).html()
    for words in ("weight gradient half", "unequal all-gather", "permute"):
        assert words in page
    trace = Trace.of(models)
    words = {event_words(event, 3) for _, event in trace.events()}
    assert {"weight gradient half, layer 0, batch 0", "reduce, layer 0, batch 0, all ranks"} <= words


def test_what_it_does_is_drawn_over_all_ranks(models: list[Model]) -> None:
    """By the law and the places alone: a sum for the root, a value for the neighbour, parts of unequal size."""
    reduced, permuted, gathered = (draw_collective(models, row.name) for row in MADE_UP)
    assert "They are added up, and rank 1 gets the sum" in reduced.words
    assert "Rank 0 brings batch 2, gets nothing" in reduced.words
    assert "Rank 0 brings batch 0, gets batch 2. Rank 1 brings batch 1, gets batch 0." in permuted.words
    assert "Rank 2 brings shards 2, 3 of 4, gets all 4 shards." in gathered.words
    assert "In a ring, each rank sends between 131,072 and 196,608 elements." in gathered.words


def test_a_gradient_through_an_updated_weight_is_found_whatever_the_operation_is_called() -> None:
    """The operation's row says that it uses a weight as loaded: no list of names has to know it."""

    async def too_early(model: Any) -> None:
        weights, states = {}, {}
        for layer in range(2):
            weights[layer], states[layer] = model.load_weights(layer)
        data = model.get_activation([0])
        hidden = model.forward(0, data, weights[0])
        grad = model.loss(model.forward(1, hidden, weights[1]))
        weights[1], _ = model.update(1, model.weight_gradient_half(1, hidden, grad, weights[1]), weights[1], states[1])
        grad = model.input_gradient_half(1, hidden, grad, weights[1])
        weights[0], _ = model.update(0, model.weight_gradient_half(0, data, grad, weights[0]), weights[0], states[0])
        for layer in range(2):
            model.set_final_weight(layer, weights[layer])

    verdict = check(simulate(too_early, ranks=1, layers=2, batches=1))
    assert not verdict.correct
    assert "input_gradient_half of layer 1 used a weight that was updated before" in "\n".join(verdict.faults)


def test_what_is_dishonest_travels_by_the_row() -> None:
    """Of a permutation only the neighbour has the made-up gradient; to the root of a reduce comes whatever anybody
    brings."""

    async def pass_on(model: Any) -> None:
        mine = model.fake_grad(0, [0]) if model.rank == 0 else model.fake_grad(0, [])
        model.grad_weights[0] = await model.permute(mine, 0)
        model.grad_weights[1] = await model.reduce_to(model.fake_grad(1, [0] if model.rank == 2 else []), 1) or mine

    trace = Trace.of(simulate(pass_on, ranks=3, layers=2, batches=1))
    flaws = trace.rebuilt().flaws
    results = {
        (program.rank, event.op)
        for program in trace.programs
        for event in program.events
        for number in event.outputs
        if event.op in COMMUNICATION and (program.rank, number) in flaws
    }
    assert results == {(1, "permute"), (0, "reduce_to")}


def test_mistakes_are_told_in_the_words_of_the_row() -> None:
    async def elsewhere(model: Any) -> None:
        await model.reduce_to(model.fake_grad(0, []), 0, root=7)

    async def each_its_own(model: Any) -> None:
        await model.reduce_to(model.fake_grad(0, []), 0, root=model.rank)

    async def twice(model: Any) -> None:
        await model.reduce_to(model.fake_grad(0, [0] if model.rank else []), 0, root=0)

    async def misspelled(model: Any) -> None:
        model.input_gradient_halfs(0, 0, 0, 0)

    def error(function: Any) -> Any:
        with pytest.raises((RankFailed, MismatchError, AssertionError)) as caught:
            simulate(function, ranks=3, layers=1, batches=1)
        return caught.value

    assert "rank 7 cannot be the root of this reduce" in str(error(elsewhere))
    assert "the root is the rank that gets the sum: name the same one on every rank" in str(error(each_its_own))
    found = error(twice)
    assert "the reduce of layer 0 cannot be done" in str(found)
    assert found.ranks == (1, 2)
    assert "model.input_gradient_half(layer, activation, gradient, weight)" in str(error(misspelled))


@pytest.mark.skipif(find_spec("torch") is None, reason="a replay needs torch")
@pytest.mark.parametrize("transport", ["local", "gloo"])
def test_it_is_replayed(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel each, for every transport, and the step trains what ordinary training trains."""
    from lib.replay import replay
    from lib.replay.rank.kernels import COLLECTIVE_KERNELS, KERNELS, Call, CollectiveCall, Started

    def half(call: Call, wanted: tuple[bool, bool]) -> Sequence[Any]:
        x, grad, weight = map(call.held, range(3))
        found = call.layer.backward(x, grad, weight, wanted)
        return [call.made(0, one) for one in found if one is not None]

    def to_root(call: CollectiveCall, inputs: Sequence[Any]) -> Started:
        buffer = inputs[0].clone()
        handle = call.transport.all_reduce(call.group, buffer)
        return Started(handle, [buffer], lambda: [buffer] if call.me == call.root else [])

    def along_the_ring(call: CollectiveCall, inputs: Sequence[Any]) -> Started:
        members = len(call.group)
        numel = call.numel(call.brought[call.me - 1][0])
        out = call.empty(numel)
        parts = [inputs[0] if i == (call.me + 1) % members else inputs[0][:0] for i in range(members)]
        sizes = [numel if i == (call.me - 1) % members else 0 for i in range(members)]
        return Started(call.transport.all_to_all(call.group, out, parts, sizes), [out])

    monkeypatch.setitem(KERNELS, "weight_gradient_half", lambda call, inputs: half(call, (True, False)))
    monkeypatch.setitem(KERNELS, "input_gradient_half", lambda call, inputs: half(call, (False, True)))
    monkeypatch.setitem(COLLECTIVE_KERNELS, "reduce_to", to_root)
    monkeypatch.setitem(COLLECTIVE_KERNELS, "permute", along_the_ring)
    monkeypatch.setitem(COLLECTIVE_KERNELS, "gather_unequal", COLLECTIVE_KERNELS["allgather"])
    trace = Trace.of(simulate(step, ranks=3, layers=2, batches=3))
    result = replay(trace, transport=transport, hidden=24, length=8, timeout=30)
    assert result.ok, result.text()
    made_up = {"weight_gradient_half", "input_gradient_half", "reduce_to", "permute", "gather_unequal"}
    assert made_up <= {one.op for one in result.spreads}
    assert [one.sent for one in result.ranks] == [one.simulated_sent for one in result.ranks]


def test_what_a_step_begins_and_ends_with_is_asked_of_the_rows() -> None:
    """Loads, updates and results under other names: nobody asks for load_weights, update or set_final_weight."""

    def train(model: Model, do: Any) -> None:
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = do("load_weights", layer, said=(0, 1))
        activations = [model.get_activation(range(model.BATCHES))]
        for layer in range(model.LAYERS):
            activations.append(model.forward(layer, activations[-1], model.weights[layer]))
        grad = model.loss(activations.pop())
        for layer in reversed(range(model.LAYERS)):
            weight_grad, grad = model.backward(layer, activations.pop(), grad, model.weights[layer])
            weight, state = model.weights.pop(layer), model.opt_states.pop(layer)
            weight, model.opt_states[layer] = do("update", layer, weight_grad, weight, state)
            do("set_final_weight", layer, weight)

    def lives(renamed: bool) -> tuple[list[int], list[int], list[Any]]:
        def run(model: Model) -> None:
            compute: Any = model._compute  # pyright: ignore[reportPrivateUsage]
            train(model, lambda name, *more, **said: compute(RENAMED[name] if renamed else name, *more, **said))

        trace = Trace.of(simulate(run, ranks=1, layers=2, batches=4))
        verdict = check(trace)
        # Without a Model method nobody is told of the final weights, but the Trace is: the check reads that.
        assert verdict.correct, verdict.faults
        assert not any("next" in note for note in verdict.notes), verdict.notes
        held = trace.lifetimes()[0]
        loads = [n for e in trace.programs[0].events if e.op in LOADS for n in e.outputs]
        assert len(loads) == 4
        assert {held.born[number] for number in loads} == {-1}  # at rest before the step
        return held.born, held.last, [*whereabouts(trace, 0)]

    assert lives(renamed=True) == lives(renamed=False)
