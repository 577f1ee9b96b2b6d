"""review: what it takes, what it refuses, what it says, and that it believes nothing that it can work out."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawing import picture_of
from lib import LINKS, PUZZLES, Model, NotSolved, PuzzleError, Trace, TraceError, check, review, simulate, what_if, why
from lib.analysis import figures
from lib.analysis.bounds.limits import Bound, Limit, Part, lower_bound
from lib.analysis.figures import computing
from lib.analysis.memory import holdings, lean, rows
from lib.analysis.waiting.critical_path import critical_path
from lib.analysis.waiting.gaps import gaps
from lib.cluster.costs import ticks
from lib.schedules.steps import load
from lib.suite.course.review import GROUPS, Review
from lib.suite.course.solutions import alternatives, run_of_file
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from lib.trace import json_format as serial
from tests.analysis.waiting.test_gaps import compute
from tests.support.damage import damaged
from tests.support.profiles import examples, sample
from tests.support.said import Said
from tests.support.schedules import CLASSIC, Case, ddp, ddp_overlap

NAMES = [case.name for case in CLASSIC]
OTHERS = {name: load_function(alternatives(name)[which], name) for name, which in (("fsdp", 0), ("pipeline_fsdp", 1))}
"""In place of classic solutions, which know no microbatches."""


def looked(models: Any, puzzle: str = "ddp") -> Review:
    found = review(models, puzzle=puzzle)
    assert found is not None
    return found


@cache
def reviewed(name: str, **more: Any) -> Review:
    """The review of a solution that keeps more than it has to: that of the original."""
    case = next(case for case in CLASSIC if case.name == name)
    return looked(simulate(OTHERS.get(name, case.function), puzzle=name, **more), name)


@cache
def of_reference(name: str) -> Review:
    return looked(run_of_file(reference(name), name), name)


def test_a_review_says_what_the_check_has_said_of_other_sizes() -> None:
    def two_layers(model: Model) -> None:
        load_function(reference("basic"), "basic")(model) if model.LAYERS == 2 else load(model, [7])

    run = simulate(two_layers, puzzle="basic")
    with pytest.raises(PuzzleError, match="right at 1 rank, 2 layers, 4 batches, but not at"):
        Model.check(run, puzzle="basic")
    found = looked(run, "basic")
    assert found.reference is None
    assert found.head().startswith("Right at the size on the page, and wrong at another.\n  right at 1 rank")
    assert "reached" not in found.head()


@pytest.mark.parametrize("name", NAMES)
def test_a_correct_run_beside_its_reference(name: str) -> None:
    found, same = reviewed(name), of_reference(name)
    assert found.verdict.correct
    assert found.reference is not None
    assert figures.end(found.reference) == same.verdict.time
    assert figures.end(found.mine) == found.verdict.time
    assert float(found.peak.elements) == found.verdict.memory
    assert sum(holding.elements for holding in found.alive) == found.peak.elements
    assert sum(group.ticks for group in found.groups) == sum(gap.length for gap in found.idle)
    assert [g.ticks for g in found.groups] == sorted((g.ticks for g in found.groups), reverse=True)
    text = found.text()
    assert text.startswith(f"Correct!\n{'Note: ' if found.verdict.notes else 'Time '}")
    assert text.count("\nNote: ") == len(found.verdict.notes)
    assert sum(line.startswith("Critical path: ") for line in text.splitlines()) == 1
    assert ("could have been deleted" in text) == (found.lean < found.peak.elements)
    assert "Yours: as early, the same memory." in same.text()
    assert "could have been deleted" not in same.text()


async def late(model: Model) -> None:
    load(model)
    compute(model, 3 if model.rank == 0 else 1)
    await model.allreduce(model.fake_grad(0, []), 0)


test_what_is_said = Said(__file__, "reviews").test(lambda: globals())


def test_many_reasons_are_counted() -> None:
    found = reviewed("pipeline_fsdp")
    assert len(found.groups) == GROUPS + 1
    assert "\n  and 3.2 time units for another reason\n" in found.text()


def bound() -> Bound:
    """Limits of our own, so that these tests say how limits are told, and not what they are."""
    parts = (Part(4.0, "2 layers forward and backward"), Part(0.8, "updates"))
    time = Limit(4.8, parts, "critical path", True, "Because.")
    memory = Limit(1_048_576, (Part(1_048_576, "weights and optimizer states"),), "what has to be in memory", False, "")
    sent = Limit(786_432, (Part(786_432, "all-reduce of the gradients"),), "what has to be sent", True, "")
    premise = "Every rank takes its own batch."
    return replace(lower_bound("ddp"), premise=premise, time=time, memory=memory, sent=sent)


def told(found: Review, limits: Bound, excuse: str | None = None) -> list[str]:
    return list(replace(found, bound=limits, excuse=excuse).bounds())


def test_a_bound_that_is_reached() -> None:
    limits = bound()
    for optimal, said in ((True, "You have reached it: this is optimal."), (False, "You have reached it.")):
        time = replace(limits.time, value=5.6, optimal=optimal)
        assert told(reviewed("ddp"), replace(limits, time=time))[1].endswith(f"(critical path). {said}")


def test_where_nothing_has_to_be_sent_nothing_is_said_of_it() -> None:
    limits = replace(bound(), sent=Limit(0, (), "what has to be sent", True, ""))
    assert len(told(reviewed("ddp"), limits)) == 3


def test_the_bound_of_the_puzzle_is_asked() -> None:
    found = reviewed("ddp")
    assert found.bound == lower_bound("ddp")
    assert found.excuse == lower_bound("ddp").excuse(found.mine)


def test_an_earlier_run_with_the_same_memory() -> None:
    found = looked(simulate(ddp_overlap, puzzle="ddp"))
    faster = replace(found, reference=reviewed("ddp").mine)
    assert faster.beside() == (
        "The reference: time 5.6, memory 1,835,008 elements. Yours: 0.6 time units earlier, 262,144 elements less."
    )
    assert found.heads()[1] == "No gaps: every rank computes from the beginning to the end."


def test_no_run_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    async def stub(model: Model) -> None:
        raise NotSolved("ddp")

    models = simulate(stub, puzzle="ddp")
    capsys.readouterr()
    assert review(models, puzzle="ddp") is None
    assert review([], puzzle="ddp") is None
    assert capsys.readouterr() == ("Not solved yet: ddp.\nNo run: simulate(...) has not come to its end.\n", "")


def test_the_run_has_the_sizes_of_the_puzzle() -> None:
    with pytest.raises(ValueError, match="has 4 ranks, 2 layers and 4 batches; this run has 2, 3 and 2") as raised:
        review(simulate(ddp, ranks=2, layers=3, batches=2), puzzle="ddp")
    assert str(raised.value).endswith('Review the run of simulate(ddp, puzzle="ddp")')
    with pytest.raises(ValueError, match="there is no puzzle 'dpd'"):
        review(simulate(ddp, puzzle="ddp"), puzzle="dpd")


def test_a_trace_will_do() -> None:
    found = looked(Trace.of(simulate(ddp, puzzle="ddp")))
    assert found.text() == reviewed("ddp").text()


def test_times_are_worked_out_with_the_costs_of_the_puzzle() -> None:
    plain = reviewed("ddp").text()
    linked = reviewed("ddp", costs=LINKS).text().splitlines()
    told = next(n for n, line in enumerate(linked) if line.startswith("Note: this run has costs of its own"))
    assert [*linked[:told], *linked[told + 1 :]] == plain.splitlines()
    trace = Trace.of(simulate(ddp, puzzle="ddp"))
    for _, event in trace.events():
        event.issued, event.start, event.length = 3, 5, ticks(9)
    forged = looked(trace)
    assert forged.text() == plain


def test_an_incorrect_run_has_its_faults_and_gaps_but_no_reference() -> None:
    async def unfinished(model: Model) -> None:
        load(model)
        compute(model, 1)
        await model.allreduce(model.fake_grad(0, []), 0)

    models = simulate(unfinished, puzzle="ddp")
    found = looked(models)
    assert found.reference is None
    assert found.bound is None
    assert found.verdict == check(Trace.of(models), "ddp")
    lines = found.text().splitlines()
    assert lines[0] == "Not one correct training step."
    assert found.verdict.faults
    assert "The timeline of the reference is shown beside a correct run only." in lines
    assert "  1.2 time units: ranks 0-3 each spend 0.3 time units (1 to 1.3) in all-reduce of layer 0" in lines
    # What an unfinished run never used, a whole one may need: no value is blamed.
    assert "could have been deleted" not in found.text()


def test_a_run_that_failed() -> None:
    async def deadlock(model: Model) -> None:
        compute(model, model.rank + 1)
        await (model.receive(0) if model.rank == 2 else model.allreduce(model.fake_grad(0, []), 0))

    with pytest.raises(PuzzleError) as raised:
        simulate(deadlock, puzzle="ddp")
    assert isinstance(raised.value.trace, Trace)
    found = looked(raised.value.trace)
    text = found.text()
    assert "the run did not end: deadlock" in text
    assert "Critical path to where the run stopped: time 4 = 4 forward, all on rank 3." in text
    assert "waiting for what never happened" in text


def test_a_run_of_nothing() -> None:
    found = looked(simulate(lambda model: None, puzzle="ddp"))
    assert found.groups == ()
    assert not found.verdict.correct


@pytest.mark.parametrize("case", sample(CLASSIC), ids=lambda case: case.name)
def test_the_same_run_gives_the_same_text(case: Case) -> None:
    assert reviewed(case.name).text() == reviewed(case.name, order=lambda ranks: ranks[::-1]).text()


def test_whether_least_time_and_least_memory_go_together() -> None:
    said = {name: of_reference(name).both() for name in NAMES}
    for name, words in said.items():
        bound = lower_bound(name)
        assert bound.together is not None
        reached = bound.together == (bound.time.value, bound.memory.value)
        assert (words or "").startswith("One schedule") == (reached and not len(bound.frontier) > 1), name
        assert f"  {words}" in of_reference(name).text().splitlines()


def test_the_lines_of_the_reference_are_for_those_who_have_passed() -> None:
    slow = load_function(alternatives("ddp")[1], "ddp")
    passed, missed = of_reference("ddp"), looked(simulate(slow, puzzle="ddp"))
    assert missed.verdict.correct
    assert not missed.verdict.passed
    for found, known in ((passed, True), (missed, False)):
        assert found.reference is not None
        assert any(found.reference.place(event) is not None for _, event in found.reference.events()) == known


@given(damaged(), st.floats(0, 1))
@examples(200)
def test_any_file_that_loads_can_be_looked_at_asked_and_reviewed(data: Any, share: float) -> None:
    """A Trace may come from a file that anybody wrote: what loads has gaps, a path, a peak and a picture."""
    try:
        trace = serial.decode(data)  # pyright: ignore[reportPrivateUsage]
    except TraceError:
        return
    found, path, top = gaps(trace), critical_path(trace), figures.peak(trace)
    assert all(gap.length > 0 and gap.text() for gap in found)
    assert path.text() is not None
    assert len(computing(trace)) == trace.ranks
    alive = holdings(trace, top)
    assert sum(row.elements for row in rows(trace, alive)) == top.elements
    assert lean(trace) <= top.elements
    with pytest.MonkeyPatch.context() as patch:
        fitting = replace(PUZZLES["ddp"], ranks=trace.ranks, layers=trace.layers, batches=trace.batches)
        patch.setattr("lib.suite.course.review.schedule_record", lambda puzzle: fitting)  # pyright: ignore
        reviewed = looked(trace)
    assert reviewed.text()
    assert picture_of(reviewed).svg().endswith("</svg>\n")
    try:
        again = what_if(trace, costs=trace.costs)
    except TraceError:  # which a run that goes on may be, too: nobody answers it
        return
    assert again is not None
    assert again.text()
    for rank in range(trace.ranks) if figures.makespan(trace) else ():
        answer = why(trace, rank, figures.end(trace) * share)
        assert answer is not None
        assert picture_of(answer).words == answer.text()
