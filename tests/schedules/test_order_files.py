"""Orders in files: torch's CSV; and lines of text."""

from pathlib import Path
from random import Random

import pytest

from lib.errors.exceptions import OrderFileError
from lib.schedules.formats.orders import at_equal_costs, in_positions, in_time, read_csv, read_file, to_csv
from lib.schedules.formats.trace import recording_until
from lib.schedules.pipelines.action import MESSAGES, parse
from lib.schedules.pipelines.catalogue import SCHEDULES, Named, dualpipe_v
from lib.schedules.pipelines.generators import interleaved, one_f_one_b
from lib.schedules.pipelines.legality import IllegalOrder, Wrong, illegal
from lib.schedules.pipelines.lowering import compute_only, posted, with_messages, with_weights
from tests.schedules.mutations import mutated


@pytest.mark.parametrize("row", SCHEDULES.values(), ids=lambda row: row.name)
def test_an_order_comes_back_as_it_was(row: Named) -> None:
    order = row.order(3, 6)
    assert read_csv(to_csv(order).text).legal() == order
    for lowered in (order, with_messages(order), with_weights(order), with_messages(with_weights(order))):
        assert read_csv(to_csv(lowered).text).legal() == order
    lowered = with_messages(with_weights(order))
    assert to_csv(lowered, comms=True).left_out == ()
    assert read_csv(to_csv(lowered, comms=True).text).legal() == lowered
    assert read_csv(to_csv(order, comms=True).text).legal() == with_messages(order)


def test_what_torch_has_no_word_for_is_left_out_with_a_reason() -> None:
    order = (*posted(one_f_one_b(2, 2))[:1], (*posted(one_f_one_b(2, 2))[1], *parse("1UPDATE")))
    text, left_out = to_csv(order, comms=True)
    assert {action.kind for actions in read_csv(text).legal() for action in actions} == {"F", "B", *MESSAGES}
    assert left_out == (
        "8 actions left out: torch's executor waits for a message in the pass that needs it, and for sends at the end",
        "1 action left out: torch's executor updates no weights: the training loop calls the optimizer after the step",
    )
    text, left_out = to_csv(order)
    assert text == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert left_out[0] == "8 actions left out: torch's executor puts messages and gathers in by itself"


def test_torchs_pairs_have_no_comma() -> None:
    text = to_csv(dualpipe_v(2, 4)).text
    assert "(0F3;3B1)OVERLAP_F_B" in text
    assert '"' not in text


def test_blanks_a_byte_order_mark_and_lines_at_the_end_are_nothing() -> None:
    assert read_csv("\ufeff 0F0 ,,0B0\r\n,,\r\n\r\n").legal() == (parse("0F0 0B0"),)


def test_a_file_that_was_damaged_is_refused_and_nothing_else_happens() -> None:
    """A byte or a few are changed, or cut off: it is the same order, or another legal one, or an error of ours."""
    random = Random(3)
    order = with_messages(interleaved(2, 3))
    text, legal = to_csv(order, comms=True).text, 0
    for _ in range(150):
        cut = random.randrange(len(text))
        damaged = text[:cut] + random.choice(('"', ",", "\n", "9", "[", "F", "", "\x00")) + text[cut + 1 :]
        try:
            read_csv(damaged[: random.choice((len(text), cut))]).legal()
            legal += 1
        except (OrderFileError, IllegalOrder):
            pass
    assert legal < 30


def test_files_by_their_names(tmp_path: Path) -> None:
    order = interleaved(2, 4)
    for comms in (False, True):
        path = tmp_path / "order.csv"
        path.write_text(to_csv(order, comms=comms).text)
        assert compute_only(read_file(path).legal()) == order
    with pytest.raises(OSError, match="No such file"):
        read_file(tmp_path / "none.csv")


def test_lines_of_text() -> None:
    order = one_f_one_b(2, 2)
    assert in_positions(order) == "rank 0  0F0 0F1 0B0 0B1\nrank 1  1F0 1B0 1F1 1B1"
    wrong = Wrong(1, 1, order[1][1], "before", "it is wrong")
    assert in_positions(order, wrong).splitlines()[1] == "rank 1  1F0 1B0 <-- here 1F1 1B1"
    missing = Wrong(1, 4, None, "missing", "one is missing")
    assert in_positions(order, missing).splitlines()[1] == "rank 1  1F0 1B0 1F1 1B1 <-- here"
    assert in_time(order) == "rank 0  0F0 0F1         0B0         0B1\nrank 1      1F0 1B0     1F1 1B1"
    assert "0F3+3B1" in in_time(dualpipe_v(2, 4))
    assert in_positions(()) == in_time(()) == ""


def test_whatever_is_wrong_can_be_shown() -> None:
    random = Random(5)
    order = with_messages(interleaved(2, 3))
    for _ in range(50):
        other, _ = mutated(random, order)
        wrong = illegal(other)
        assert in_positions(other, wrong).count("<-- here") == (wrong is not None)


def test_waits_without_their_messages_stop_a_rank_for_no_pass() -> None:
    order = tuple(parse(words) for words in (["0F0", "0WAIT_SEND_F0", "0B0"], ["1F0", "1B0", "1WAIT_SEND_B0"]))
    shown = recording_until(order, illegal(order) or pytest.fail("it is legal"))
    assert shown is not None
    assert [held.rank for held in shown.held] == [1]


def test_equal_costs_are_those_of_all_stages_of_a_rank() -> None:
    assert at_equal_costs(one_f_one_b(4, 8)).end == 33
    assert at_equal_costs(with_messages(interleaved(4, 8))).end == 28.5
