"""What the pages say in other words than the gradebook."""

from hypothesis import given
from hypothesis import strategies as st

from lib import check, simulate
from lib.suite.cli.grading.report import STATE_COLOURS
from lib.suite.cli.grading.students import remarks, without_sizes
from lib.suite.cli.pages import file_of
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from lib.suite.submissions.source import STATES
from tests.diagnosis import corpus
from tests.support.classes import ways


def test_every_state_has_a_word_a_sign_a_meaning_and_a_colour() -> None:
    assert all(word == state.word and word.isalpha() for word, state in STATES.items())
    assert (
        len({state.sign for state in STATES.values()}) == len({state.about for state in STATES.values()}) == len(STATES)
    )
    style = file_of("report.css")
    assert set(STATE_COLOURS) == set(STATES)
    assert all(f".s-{word}" in style and f".b-{word}" in style for word in STATES)


def test_of_a_correct_schedule_only_the_notes_are_said() -> None:
    verdict = check(simulate(load_function(reference("ddp"), "ddp"), puzzle="ddp"), "ddp")
    assert remarks(verdict.text()) == ""
    (missed,) = {way.own.message for way in ways("grad_accum") if way.own.state == "missed"}
    assert remarks(missed).startswith("Note: ")
    assert "Correct" not in remarks(missed)
    assert "[###" not in remarks(missed)


def test_a_message_without_sizes_says_what_and_where_and_how() -> None:
    (case,) = (case for case in corpus.cases() if case.name.startswith("035"))
    assert without_sizes(case.message) == (
        "rank …: the gradient of layer … does not have all batches yet\n"
        "  where:    notebook cell, line 15, in ddp: weights[layer], opt_states[layer] = "
        "model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])\n"
        "  fix:      this rank has only seen batch …:\n"
        "            the gradients of all ranks have to be summed before anyone updates\n"
        "            (to see the line: fix(), or in a shell: puzzles fix FILE)"
    )


@given(st.text(), st.integers(1000, 9999))
def test_no_number_of_a_size_is_left(text: str, ranks: int) -> None:
    message = f"{text} {ranks} ranks\n  expected: {ranks}\n            {ranks} more\n  fix:      {ranks} of them"
    assert str(ranks) not in without_sizes(message)
