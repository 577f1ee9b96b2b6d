"""A schedule as text: one line a rank, there and back again, and `<-- here` where it is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Model, Trace, TraceError, Weight, check, simulate
from lib.analysis import figures
from tests.support.damage import TRACES
from tests.support.drivers import without_places
from tests.support.random_programs import RUNS, Schedule, traced
from tests.support.said import Said
from tests.support.schedules import Case, grad_accum

TEXTS = {name: trace.text() for name, trace in TRACES.items()}


def same(one: Trace, other: Trace) -> bool:
    return without_places(one) == without_places(other)


@given(RUNS)
def test_a_text_says_all_but_the_source_lines(one: Case | Schedule) -> None:
    trace = traced(one)
    text = trace.text()
    again = Trace.parse(text)
    assert again.text() == text
    assert same(again, trace)
    if isinstance(one, Case):  # a fault has lines, which a text has not
        assert check(again) == check(trace)


def test_values_made_by_hand_come_back() -> None:
    model = Model(layers=2, batches=2)
    model.weights["mine"] = Weight(1, 2, 1, [0, 2], 3)
    model.set_final_weight(1, model.weights["mine"])
    trace = model.trace
    again = Trace.parse(trace.text())
    assert same(again, trace)
    assert again.sandbox
    assert list(again.programs[0].values) == [Weight(1, 2, 1, [0, 2], 3)]


def test_what_it_looks_like() -> None:
    def step(model: Model) -> None:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        inp = model.get_activation([0, 1])
        out = model.forward(0, inp, model.weights[0])
        grad, _ = model.backward(0, inp, model.loss(out), model.weights[0])
        model.weights[0], _ = model.update(0, grad, model.weights[0], model.opt_states.pop(0))
        model.set_final_weight(0, model.weights[0])

    text = simulate(step, layers=1, batches=2)[0].trace.text()
    assert text == (
        "llm-training-puzzles 1 layers=1 batches=2 ranks=1\n"
        'costs {"model":"unit","forward":1.0,"backward":1.0,"update":0.5,"loss":0.0,"collective":0.3,"p2p":0.2}\n'
        "0| W0@0.1>0,1 +w0 +o1 I:0-1>2 F0:0-1/2,0>3 X/3>4 B0:0-1/2,4,0>5,6 -o1 U0/5,0,1>7,8 -w0 +w7 E0/7\n"
    )


def test_what_communication_looks_like() -> None:
    async def talk(model: Model) -> None:
        coming = model.allreduce(model.fake_grad(0, [model.rank]), 0)
        if model.rank:
            model.grad_weights[0] = await model.receive(0)
        else:
            await model.pass_to(1, model.fake_grad(1, []))
        await coming
        await model.broadcast(model.fake_grad(0, []), 0, root=1, group=(1, 0))

    text = simulate(talk, ranks=2, layers=2, batches=2)[0].trace.text()
    assert text.splitlines()[2:] == [
        "0| Z0:0>0 AR0~/0>2 Z1:>1 S1/1 =1 Z0:>3 BC0@0%1.0/3>4",
        "1| Z0:1>0 AR0~/0>2 R0>1 +d1 =1 Z0:>3 BC0@0%1.0/3>4",
    ]


def test_spaces_and_empty_lines_do_not_matter() -> None:
    for text in TEXTS.values():
        loose = "\n\n" + text.replace("| ", "|   ").replace("\n", "  \n\n")
        assert Trace.parse(loose).text() == text


characters = st.sampled_from("0123456789 ,./>@%~:+-|WFBXUAREPCKZSR=Q\n")
HEAD = "llm-training-puzzles 1 layers=1 batches=1 ranks=1\n"

test_a_mistake_is_named = Said(__file__, "texts").test(lambda: globals())


@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_garbage_is_pointed_at(name: str, data: st.DataObject) -> None:
    """Right where it stands."""
    lines = TEXTS[name].splitlines()
    ranks = TRACES[name].ranks
    number = data.draw(st.integers(len(lines) - ranks, len(lines) - 1))
    words = lines[number].split(" ")
    garbage = data.draw(
        st.sampled_from(["Y", "F", "w0", "+x1", "AR0!", "F0:a", "W0@@1", "💥", "0|", "AR0/1>2>3", "Q5;1>0"])
    )
    place = data.draw(st.integers(1, len(words)))
    words.insert(place, garbage)
    lines[number] = " ".join(words)
    if garbage == "F":
        return
    with pytest.raises(TraceError) as raised:
        Trace.parse("\n".join(lines))
    shown = " ".join(words[max(1, place - 3) : place + 1])
    rank = number - (len(lines) - ranks)
    assert str(raised.value) == f"rank {rank}: {shown} <-- here: no such word"


def attempt(text: str) -> None:
    try:
        trace = Trace.parse(text)
    except TraceError:
        return
    check(trace)
    assert Trace.parse(trace.text()).text() == trace.text()


@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_a_damaged_text_is_a_trace_or_a_trace_error(name: str, data: st.DataObject) -> None:
    text = TEXTS[name]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        match data.draw(st.integers(0, 3)):
            case 0:
                text = text[:place] + text[place + 1 :]
            case 1:
                text = text[:place] + data.draw(characters) + text[place:]
            case 2:
                text = text[:place] + data.draw(characters) + text[place + 1 :]
            case _:
                words = text.split(" ")
                one, other = (data.draw(st.integers(0, len(words) - 1)) for _ in range(2))
                words[one], words[other] = words[other], words[one]
                text = " ".join(words)
        if not text:
            break
    attempt(text)


@given(st.text(max_size=60))
def test_any_text_is_a_trace_or_a_trace_error(text: str) -> None:
    attempt(text)
    attempt(HEAD + text)
    attempt(HEAD + "0|" + text)


def test_odd_texts() -> None:
    attempt(HEAD + "mesh " + "[" * 100_000 + "\n0|\n")
    attempt("llm-training-puzzles 1 layers=0 batches=0 ranks=1\n0|\n")


def test_times_come_from_the_costs_and_not_from_the_text() -> None:
    text = simulate(grad_accum, layers=2, batches=4)[0].trace.text()
    slow = text.replace('"forward":1.0', '"forward":2.5')
    assert figures.end(Trace.parse(slow)) == 17 + 8 * 1.5
