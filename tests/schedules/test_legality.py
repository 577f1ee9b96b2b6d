"""Which orders are legal, and what is said of those that are not."""

import pickle
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lib.schedules.pipelines.action import Order, parse
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.legality import IllegalOrder, illegal, require_legal
from lib.schedules.pipelines.lowering import compute_only, posted, with_messages, with_weights
from tests.schedules.mutations import mutated, random_order, with_some_waits, with_waits
from tests.schedules.naive_machine import can_run
from tests.support.profiles import THOROUGH, sample


def words(order: Order) -> list[list[str]]:
    return [[str(action) for action in actions] for actions in order]


LEVELS: dict[str, Callable[[Order], Order]] = {
    "passes": lambda order: order,
    "weights": lambda order: with_weights(order),
    "messages": with_messages,
    "waits": with_waits,
    "posted": posted,
    "some waits": lambda order: with_some_waits(Random(len(order)), order),
    "all": lambda order: with_messages(with_weights(order)),
}
PLACES = ((0,), (0, 1), (0, 1, 2, 3), (0, 1, 0, 1), (0, 1, 1, 0), (0, 1, 2, 2, 1, 0), (1, 0, 0))


def orders(random: Random) -> list[Order]:
    """Some of those that have a name, and as many random ones."""
    known = random.sample([*SCHEDULES.values()], 5)
    return [
        *(named.order(random.randint(1, 4), random.randint(1, 6)) for named in known),
        *(random_order(random, place, random.randint(1, 4)) for place in PLACES),
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_what_can_be_done_is_legal(level: str) -> None:
    random = Random(level)
    for _ in sample(range(6)):
        for order in map(LEVELS[level], orders(random)):
            truth = can_run(words(order))
            assert (illegal(order) is None) == truth, (str(illegal(order)), words(order))
            assert truth or level == "some waits", words(order)


@pytest.mark.parametrize("level", LEVELS)
def test_a_changed_order_is_legal_if_it_can_be_done(level: str) -> None:
    """Judged by a machine that just tries, and shares no code."""
    random = Random(f"{level} changed")
    counts = {True: 0, False: 0}
    named = 0
    for _ in sample(range(12)):
        for order in map(LEVELS[level], orders(random)):
            other, ranks = mutated(random, order)
            wrong, truth = illegal(other), can_run(words(other))
            assert (wrong is None) == truth, (str(wrong), words(other))
            counts[truth] += 1
            named += wrong is not None and wrong.rank in ranks
            twice, _ = mutated(random, other) if any(other) else (other, set[int]())
            assert (illegal(twice) is None) == can_run(words(twice)), (str(illegal(twice)), words(twice))
    assert min(counts.values()) > (5 if THOROUGH else 0)
    assert named > 0.8 * counts[False], "most name a rank that was changed"


def one_stage_each(rows: Sequence[list[str]]) -> Order:
    """Words that name no stage are of that with the number of their rank."""
    return tuple(parse(row, rank) for rank, row in enumerate(rows))


WRONG = re.split(r"^=== ", Path(__file__).with_name("wrong_orders.txt").read_text("utf-8"), flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("case", WRONG, ids=[case.partition("\n")[0] for case in WRONG])
def test_what_is_said_of_a_wrong_order(case: str) -> None:
    title, _, rest = case.partition("\n")
    rows, _, said = rest.partition("\n---\n")
    ranks = [row.split() for row in rows.split("\n")]
    options: dict[str, Any] = {name: int(value) for name, value in re.findall(r"\[(\w+)=(\d+)\]", title)}
    order = one_stage_each(ranks) if ranks[0][0][0].isalpha() else tuple(map(parse, ranks))
    wrong = illegal(order, **options)
    assert wrong is not None
    assert str(wrong) + (f"\ncause: {wrong.cause}" if wrong.cause else "") == said.strip()
    assert wrong.action is None or wrong.action == order[wrong.rank][wrong.position]
    assert options or not can_run(words(order))


@pytest.mark.parametrize("ahead", [(0, 0, 0, 0), (7, 7, 7, 7), (4, 3, 2, 1)])
def test_what_is_slow_is_legal_nevertheless(ahead: tuple[int, ...]) -> None:
    rows = [
        [f"F{m}" for m in range(before)]
        + [word for m in range(before, 8) for word in (f"F{m}", f"B{m - before}")]
        + [f"B{m}" for m in range(8 - before, 8)]
        for before in ahead
    ]
    assert illegal(one_stage_each(rows), batches=8) is None


def test_what_is_legal_if_messages_are_posted() -> None:
    assert illegal((parse("0RECV_B0 0F0 0SEND_F0 0B0"), parse("1RECV_F0 1F0 1B0 1SEND_B0")), messages="posted") is None


def test_the_error_of_an_illegal_order() -> None:
    text, cause = "rank 3, position 1: 3B0 needs 3F0 before it, which this rank never does", "rank 3 does 3F1 to 3F8"
    order = (*one_f_one_b(4, 8)[:3], parse(" ".join(f"3F{m + 1} 3B{m}" for m in range(8))))
    with pytest.raises(IllegalOrder) as raised:
        require_legal(order)
    error = pickle.loads(pickle.dumps(raised.value))
    assert str(error) == f"{text}\n  fix:      off by one: {cause}"
    assert (error.rank, error.wrong.position) == (3, 1)
    assert str(IllegalOrder(error.wrong, "row 4, column 2")).startswith(
        "rank 3, position 1 (row 4, column 2): 3B0 needs"
    )
    assert require_legal(one_f_one_b(2, 2)) == one_f_one_b(2, 2)


def test_a_long_circle_is_told_in_short() -> None:
    """Each rank waits for its neighbour to the right before it serves the one on its left."""
    ranks = 12
    rows = [[f"{r}F0", f"{r}B0", f"{r}F1", f"{r}B1"] for r in range(ranks - 1)]
    rows.append([f"{ranks - 1}{word}" for word in ("F0", "F1", "B0", "B1")])
    wrong = illegal(tuple(map(parse, rows)))
    assert wrong is not None
    assert wrong.rule == "deadlock"
    assert "wait for each other" in wrong.text


def test_the_largest_schedules_are_judged_at_once() -> None:
    """In time that grows with what there is to do: a search would take forever."""
    order = one_f_one_b(32, 512)
    assert sum(map(len, order)) == 32_768
    assert illegal(order) is None


def test_a_stage_is_whole_while_a_rank_works_on_it() -> None:
    order = (parse("0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1"),)
    assert with_weights(order) == (
        parse(
            "0UNSHARD 0F0 0F1 0RESHARD 1UNSHARD 1F0 1F1 1B0 1B1 1RESHARD 0UNSHARD 1REDUCE_GRAD 0B0 0B1 0RESHARD "
            "0REDUCE_GRAD"
        ),
    )


def test_weights_and_messages_go_together() -> None:
    random = Random(17)
    for order in (random_order(random, place, 3) for place in PLACES for _ in range(4)):
        gathered = with_weights(order)
        for lowered in (gathered, with_messages(gathered), with_weights(with_messages(order))):
            assert illegal(lowered) is None, str(illegal(lowered))
            assert compute_only(lowered) == order
