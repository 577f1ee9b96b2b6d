"""What is not one honest training step is found out, and says what it was: each way round the rules is a case in
cases/, with the whole text (see tests/diagnosis/corpus.py), or a test here."""

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from lib import (
    Activation,
    ActivationGrad,
    DeadlockError,
    Model,
    OptState,
    RankFailed,
    RuleError,
    Trace,
    TraceError,
    Verdict,
    Weight,
    WeightGrad,
    check,
    simulate,
)
from lib.analysis import figures
from lib.schedules.data_parallel import ddp as ddp_lean
from lib.schedules.steps import compute, load, step
from lib.trace import json_format as serial
from tests.diagnosis.corpus import CHECKED, Case, cases, function, run
from tests.support.damage import DATA
from tests.support.drivers import DRIVERS


def judge(function: Callable[[Model], Any], **sizes: Any) -> Verdict:
    wanted: dict[str, Any] = {"layers": 1, "batches": 2} | sizes
    return check(Trace.of(simulate(function, **wanted)))


def faults(function: Callable[[Model], Any], **sizes: Any) -> list[str]:
    """The first line of each fault: what is wrong."""
    return [fault.partition("\n")[0] for fault in judge(function, **sizes).faults]


def train(model: Model, layer: int = 0, batches: Any = None, weight: Weight | None = None) -> WeightGrad:
    """The honest gradient of a model of one layer."""
    weight = weight or model.weights[layer]
    model.activations["in"] = model.get_activation(range(model.BATCHES) if batches is None else batches)
    output = model.forward(layer, model.activations["in"], weight)
    grad = model.loss(output)
    return model.backward(layer, model.activations.pop("in"), grad, weight)[0]


CASES = {case.name: case for case in cases(CHECKED)}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_of_it(name: str) -> None:
    assert run(CASES[name]).text == CASES[name].message


def has_lines(case: Case) -> bool:
    """And is not told otherwise without them: layers 1 and 2 of many faults have the same one, in different lines."""
    return case.message.startswith("Not one") and case.name != "many_faults"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if has_lines(case)])
def test_a_text_has_no_lines_to_name(name: str) -> None:
    with function(CASES[name]) as student:
        trace = Trace.of(simulate(student, **CASES[name].sizes))
    known = check(trace).faults
    assert check(Trace.parse(trace.text())).faults == tuple(LINES.sub("", fault) for fault in known)


LINES = re.compile(r"\n    where: .*|\n    got:      updates in .*|; update is called in .*| \(the first time in .*\)")


# -- gradients that nobody computed -------------------------------------------------------------------------------


def fake(model: Model) -> None:
    weight, state = model.load_weights(0)
    weight, model.opt_states[0] = model.update(0, model.fake_grad(0, range(model.BATCHES)), weight, state)
    model.set_final_weight(0, weight)


def test_a_sandbox_accepts_it_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model(layers=1, batches=2)
    fake(model)
    verdict = Model.check(model)
    assert verdict is not None
    assert verdict.notes == ("this Model is a sandbox, so made-up gradients were accepted; with a Dist they are not.",)
    assert capsys.readouterr().out.splitlines()[:2] == ["Correct!", f"Note: {verdict.notes[0]}"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_made_up_gradient_that_came_a_long_way(driver: str) -> None:
    """By messages, sums, all-reduces, shards and gathers."""

    async def launder(model: Model) -> None:
        load(model)
        if model.rank == 0:
            await model.pass_to(1, [model.fake_grad(0, [0])])
            grad = train(model, batches=[1])
        else:
            (grad,) = await model.receive()
        grad = await model.allreduce(grad + model.fake_grad(0, []), 0)
        grad = await model.allgather(grad.shard(model.rank, 2), 0)
        model.grad_weights[0] = grad.shard(0, 2).combine(grad.shard(1, 2))
        step(model, 0)

    verdict = check(Trace.of(DRIVERS[driver](launder, ranks=2, layers=1, batches=2)))
    assert [fault.partition("\n")[0] for fault in verdict.faults] == [
        "rank 0: the final weight of layer 0 does not count: a gradient was made up with fake_grad"
    ]


def test_a_zero_contribution_is_honest() -> None:
    def add_nothing(model: Model) -> None:
        load(model)
        model.grad_weights[0] = model.fake_grad(0, []) + train(model) + model.fake_grad(0)
        step(model, 0)

    assert judge(add_nothing).correct


# -- values made by hand ------------------------------------------------------------------------------------------


FORGED: dict[str, Callable[[Model], Any]] = {
    "gradient": lambda m: m.update(0, WeightGrad(0, 1, [0, 1], 2), *m.load_weights(0)),
    "weight": lambda m: m.update(0, train_new(m), Weight(0, 1, 0), m.load_weights(0)[1]),
    "optimizer state": lambda m: forge_state(m, m.load_weights(0)[0]),
    "activation": lambda m: update_new(m, lambda w: m.backward(0, Activation(0, 1, [0, 1], 2), loss_new(m, w), w)[0]),
    "output": lambda m: update_new(
        m, lambda w: m.backward(0, m.get_activation([0, 1]), m.loss(Activation(1, 1, [0, 1], 2)), w)[0]
    ),
    "activation gradient": lambda m: update_new(
        m, lambda w: m.backward(0, m.get_activation([0, 1]), ActivationGrad(0, 1, [0, 1], 2), w)[0]
    ),
    "weight of forward": lambda m: update_new(m, lambda w: train(m, weight=Weight(0, 1, 0))),
    "by pickle": lambda m: update_new(m, lambda w: pickle.loads(pickle.dumps(train(m, weight=w)))),
    "by its class": lambda m: update_new(m, lambda w: type(train_new(m))(0, 1, [0, 1], 2)),
}


def train_new(model: Model) -> WeightGrad:
    return train(model, weight=model.load_weights(0)[0])


def forge_state(model: Model, weight: Weight) -> tuple[Weight, OptState]:
    return model.update(0, train(model, weight=weight), weight, OptState(0, 1, 0))


def loss_new(model: Model, weight: Weight) -> ActivationGrad:
    return model.loss(model.forward(0, model.get_activation([0, 1]), weight))


def update_new(model: Model, make: Callable[[Weight], WeightGrad]) -> tuple[Weight, OptState]:
    weight, state = model.load_weights(0)
    return model.update(0, make(weight), weight, state)


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_value_anywhere(what: str) -> None:
    def forge(model: Model) -> None:
        model.set_final_weight(0, FORGED[what](model)[0])

    (fault,) = faults(forge)
    assert fault == "rank 0: the final weight of layer 0 does not count: a value was made by hand"


class Zero(int):
    """Whatever it is compared with is equal to it."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


TAMPERED = {
    "layer": [Zero(7), "x", 7, -5],
    "layers": [Zero(9), "x", 10**9],
    "step": [Zero(1), "x", -1, 5],
    "place": [None, "x", Weight(0, 1, 0, [0], 2).place, Activation(0, 1, [0], 2).place],
}


@pytest.mark.parametrize(("name", "item"), [(name, item) for name, items in TAMPERED.items() for item in items])
def test_a_forged_value_changed_behind_pythons_back(name: str, item: Any) -> None:
    """The constructor looked at what it was given, and nobody looks again; it is made by hand all the same."""

    def forge(model: Model) -> None:
        weight = Weight(0, 1, 0)
        object.__setattr__(weight, name, item)
        _, state = model.load_weights(0)
        new, _ = model.update(0, train(model, weight=weight), weight, state)
        model.set_final_weight(0, new)

    try:
        found = faults(forge)
    except (RuleError, RankFailed):
        return
    assert "a value was made by hand" in found[0]


def test_a_copy_is_the_value_itself() -> None:
    def copies(model: Model) -> None:
        load(model)
        model.grad_weights[0] = copy.deepcopy(copy.copy(train(model)))
        step(model, 0)

    assert judge(copies).correct


def test_a_value_changed_behind_pythons_back() -> None:
    """What was recorded are operations; values are worked out again."""

    def tamper(model: Model) -> None:
        load(model)
        grad = train(model, batches=[0])
        object.__setattr__(grad, "place", WeightGrad(0, model.LAYERS, [0, 1], 2).place)
        model.grad_weights[0] = grad
        step(model, 0)

    verdict = judge(tamper)
    assert not verdict.correct
    assert verdict.faults[0].startswith("rank 0: the gradient of layer 0 does not have all batches yet\n")


# -- the same thing twice, or half of it --------------------------------------------------------------------------


def test_what_is_loaded_and_not_used_does_not_matter() -> None:
    def idle(model: Model) -> None:
        for _ in range(3):
            load(model)
            model.get_activation([0, 1])
            model.load_weights(0, 1, 7)
        model.grad_weights[0] = train(model)
        step(model, 0)

    assert judge(idle).correct


# -- ranks that share more than messages --------------------------------------------------------------------------


def shared_by(use: Callable[[Model, dict[str, Any]], Any]) -> Callable[[Model], Any]:
    """Rank 0 puts its gradient into a variable that rank 1 uses."""
    shared: dict[str, Any] = {}

    async def run(model: Model) -> None:
        load(model)
        if model.rank == 0:
            shared["grad"] = train(model)
            shared["weight"] = model.weights[0]
            shared["work"] = model.allreduce(model.fake_grad(0), 0, (0,))
            await model.pass_to(1, "look there")
        else:
            await model.receive(0)
            result = use(model, shared)
            if hasattr(type(result), "__await__"):
                await result

    return run


SHARED: dict[str, Callable[[Model, dict[str, Any]], Any]] = {
    "update": lambda m, s: m.update(0, s["grad"], m.weights[0], m.opt_states[0]),
    "store": lambda m, s: m.grad_weights.update({0: s["grad"]}),
    "final": lambda m, s: m.set_final_weight(0, s["weight"]),
    "forward": lambda m, s: m.forward(0, m.get_activation([0]), s["weight"]),
    "sum from the left": lambda m, s: m.grad_weights.update({0: s["grad"] + m.fake_grad(0)}),
    "sum from the right": lambda m, s: m.grad_weights.update({0: m.fake_grad(0) + s["grad"]}),
    "shard": lambda m, s: m.grad_weights.update({0: s["grad"].shard(0, 2)}),
    "message": lambda m, s: m.pass_to(0, s["grad"]),
    "message in a list": lambda m, s: m.pass_to(0, [s["grad"]]),
    "collective": lambda m, s: m.allreduce(s["grad"], 0),
}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("what", SHARED)
def test_a_value_of_another_rank(what: str, driver: str) -> None:
    with pytest.raises(RuleError, match="lives on rank") as raised:
        DRIVERS[driver](shared_by(SHARED[what]), ranks=2, layers=1, batches=2)
    assert "ranks share no memory: send it with pass_to and receive, or use a collective" in str(raised.value)
    assert "  where:    test_cheats.py, line " in str(raised.value)


def test_somebody_elses_communication() -> None:
    async def steal(model: Model, shared: dict[str, Any]) -> None:
        model.grad_weights[0] = await shared["work"]

    with pytest.raises(RuleError, match="lives on rank 0"):
        simulate(shared_by(steal), ranks=2, layers=1, batches=2)


def test_a_value_taken_through_pickle_is_made_by_hand() -> None:
    def take(model: Model, shared: dict[str, Any]) -> None:
        model.grad_weights[0] = pickle.loads(pickle.dumps(shared["grad"]))
        step(model, 0)

    (fault,) = faults(shared_by(take), ranks=2)
    assert fault.startswith("rank 1: the final weight of layer 0 does not count: a value was made by hand")


def test_a_value_of_another_world() -> None:
    other = Model(layers=1, batches=2)
    load(other)
    made = train(other)

    def smuggle(model: Model) -> None:
        load(model)
        model.grad_weights[0] = made
        step(model, 0)

    (fault,) = faults(smuggle)
    assert "a value was made by hand" in fault


# -- memory that is not in the stores -----------------------------------------------------------------------------


def test_a_final_weight_counts_even_if_it_is_used_again() -> None:
    """Handing in is no way to get rid of it, and neither is using it once more."""

    def last(touch: bool) -> Callable[[Model], None]:
        def run(model: Model) -> None:
            load(model)
            compute(model, [0, 1])
            step(model, 1)
            del model.weights[1], model.opt_states[1]
            if touch:
                model.final_weights[1].shard(0, 1)
            step(model, 0)

        return run

    runs = [Trace.of(simulate(last(touch), layers=2, batches=2)) for touch in (False, True)]
    peaks = [figures.samples(run, 0)[-1] for run in runs]
    assert [peak.by_kind["weight"] for peak in peaks] == [2 * 262144, 2 * 262144]


@pytest.mark.parametrize("root", range(3))
@pytest.mark.parametrize("liar", range(3))
def test_of_a_broadcast_only_what_its_root_brings_has_to_be_honest(root: int, liar: int) -> None:
    """What the others bring is overwritten."""

    async def cast(model: Model) -> None:
        load(model)
        model.grad_weights[0] = model.fake_grad(0, [0, 1]) if model.rank == liar else train(model)
        model.grad_weights[0] = await model.broadcast(model.grad_weights[0], 0, root)
        step(model, 0)

    told = [fault.partition(" does not count: ")[2] for fault in faults(cast, ranks=3)]
    where = f" on rank {liar}" if liar else ""
    assert told == ([f"a gradient was made up with fake_grad{where}"] if root == liar else [])


def test_the_order_of_a_group_is_one_thing_that_its_members_agree_on() -> None:
    """A file may say otherwise."""
    trace = Trace.of(simulate(ddp_lean, ranks=2, layers=1, batches=2))
    for event in trace.programs[1].events:
        event.group = event.group[::-1]
    (fault,) = check(trace).faults
    assert "meet in a collective, but name its group in different orders" in fault


# -- a Trace that lies --------------------------------------------------------------------------------------------


def test_a_value_that_claims_to_be_smaller_after_it_came_from_elsewhere() -> None:
    """What nobody made is taken at its word, and is a fault of its own."""
    data = copy.deepcopy(DATA["grad_accum"])
    event = next(e for e in data["programs"][0]["events"] if e[0] == "load_weights")
    event[0], event[9], event[4] = "foreign", [], event[4][:1]
    verdict = check(serial.decode(data))
    assert not verdict.correct


def test_a_made_up_gradient_is_no_less_made_up_in_a_file() -> None:
    """Calling a fake_grad a backward, or a run a sandbox's, helps nobody who is graded by a Dist's rules."""
    trace = Trace.of(simulate(fake, layers=1, batches=2))
    data = serial.encode(trace)
    assert not check(serial.decode(data)).correct
    for event in data["programs"][0]["events"]:
        if event[0] == "fake_grad":
            event[0] = "backward"
    with pytest.raises(TraceError):
        serial.decode(data)


def test_a_gather_of_two_layers_in_a_file() -> None:
    async def gather(model: Model) -> None:
        shard, _ = model.load_weights(0, model.rank, 2)
        model.set_final_weight(0, await model.allgather(shard, 0))

    data = serial.encode(Trace.of(simulate(gather, ranks=2, layers=2)))
    for event in data["programs"][1]["events"]:
        event[1] = 1
    verdict = check(serial.decode(data))
    assert not verdict.correct
    assert "ranks 0 and 1 meet in a collective, but for different layers" in verdict.faults[0]


def test_a_run_that_failed_is_never_correct() -> None:
    async def fail(model: Model) -> None:
        await ddp_lean(model)
        if model.rank == 1:
            raise KeyError("at the very end")

    with pytest.raises(AssertionError) as raised:
        simulate(fail, puzzle="ddp")
    verdict = check(raised.value.trace, "ddp")  # type: ignore[attr-defined]
    assert not verdict.correct
    assert verdict.faults[0].startswith("the run did not end: rank 1: KeyError")


# -- what is sent, and room on the way ----------------------------------------------------------------------------


CROSSED = """llm-training-puzzles 1 layers=1 batches=2 ranks=2
costs {"model":"unit","forward":1.0,"backward":1.0,"update":0.5,"loss":0.0,"collective":0.3,"p2p":0.2}
0| I:0>0 S1/0 S1/0 R1>1 R1>2
1| I:1>0 S0/0 S0/0 R0>1 R0>2
"""


def test_a_file_has_no_more_room_on_the_way_than_the_simulator() -> None:
    """Two ranks that each send twice before they receive: the second message waits for room, for ever."""

    async def crossed(model: Model) -> None:
        other, own = 1 - model.rank, model.get_activation([model.rank])
        for _ in range(2):
            await model.pass_to(other, own)
        for _ in range(2):
            await model.receive(other)

    with pytest.raises(DeadlockError):
        simulate(crossed, ranks=2, layers=1, batches=2)
    with pytest.raises(TraceError, match=r"rank 0 cannot get past its event 2 \(pass_to\)"):
        Trace.parse(CROSSED)
    # With one message each, or who does not wait for the second one, it can be done.
    Trace.parse(CROSSED.replace("S1/0 S1/0 R1>1 R1>2", "S1/0 R1>1 S1/0 R1>2"))
    Trace.parse(CROSSED.replace("S1/0 S1/0", "S1/0 S1~/0"))


def test_a_message_finds_room_when_the_one_before_is_received() -> None:
    text = CROSSED.replace("0| I:0>0 S1/0 S1/0 R1>1 R1>2", "0| I:0>0 S1/0 S1/0 S1/0 R1>1")
    text = text.replace("1| I:1>0 S0/0 S0/0 R0>1 R0>2", "1| I:1>0 R0>1 R0>2 S0/0 R0>3")
    assert Trace.parse(text).text() == text
