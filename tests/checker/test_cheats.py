"""What is not one honest training step is found out, and says what it was: each way round the rules is a case in
cases/, with the whole text (see tests/diagnosis/corpus.py), or a test here; edits by chance are in tests/adversary."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from lib import DeadlockError, Model, RuleError, Trace, TraceError, Verdict, Weight, WeightGrad, check, simulate
from lib.analysis import figures
from lib.schedules.data_parallel import ddp as ddp_lean
from lib.schedules.steps import compute, load, step
from tests.diagnosis.corpus import CHECKED, Case, cases, function, run
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


def test_a_copy_is_the_value_itself() -> None:
    def copies(model: Model) -> None:
        load(model)
        model.grad_weights[0] = copy.deepcopy(copy.copy(train(model)))
        step(model, 0)

    assert judge(copies).correct


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
