"""Final weights that are not all of a layer's. What else is wrong with them: cases/, asked for in test_cheats.py."""

from typing import Any

import pytest

from lib import Model, Trace, check, simulate
from lib.checker.faults import finals, unready
from lib.schedules.steps import compute, load, mine
from lib.trace.rebuild import rebuild


@pytest.mark.parametrize(
    ("cuts", "words"),
    [
        ([(0, 2)], "shard 1 of 2 is on no rank\n    expected: all 2 shards, "),
        ([(0, 3)], "shards 1 and 2 of 3 are on no rank\n    expected: all 3 shards, "),
        ([(0, 10**6)], "shards 1-999999 of 1000000 are on no rank\n    expected: all 1000000 shards, "),
        ([(0, 2), (0, 3)], "shards 3-5 of 6 are on no rank\n    expected: all 6 shards, "),
        ([(1, 4)], "shards 0, 2, 3 of 4 are on no rank\n    expected: all 4 shards, "),
        (
            [(0, 10**6), (1, 999_983)],
            "the part of the weight from 1/1000000 to 1/999983 and from 2/999983 to 1 is on no rank\n"
            "    expected: all of the weight, ",
        ),
    ],
)
def test_the_missing_part_is_named(cuts: list[tuple[int, int]], words: str) -> None:
    def hand(model: Model, shard: int, total: int) -> Any:
        weight, state = model.weights[0].shard(shard, total), model.opt_states[0].shard(shard, total)
        return model.update(0, model.grad_weights[0], weight, state)[0]

    async def each(model: Model) -> None:
        load(model)
        compute(model, range(model.BATCHES))
        model.set_final_weight(0, hand(model, *cuts[model.rank]))

    (fault,) = check(Trace.of(simulate(each, ranks=len(cuts), layers=1, batches=1))).faults
    who = "rank 0" if len(cuts) == 1 else "ranks 0 and 1"
    assert fault.startswith(
        f"the final weights of layer 0 are not complete: {words}each handed in by a rank that has updated it\n"
        f"    got:      final weights from {who} only\n"
        "    where:    test_final_weights.py, line "
    )
    # Where each of the ranks hands in and more parts are missing than there are ranks, they cut too small.
    every = "a rank updates all of what it has the sum and the state of: cut the weight no smaller than that"
    some = "call model.set_final_weight on every rank, with the shard that it has updated"
    assert fault.endswith(f"    fix:      {every if words.startswith('shard') else some}")


@pytest.mark.parametrize("by_all", [False, True])
def test_some_columns_of_all_rows_are_no_whole_weight(by_all: bool) -> None:
    """Who hands in half of the columns of a weight has no row of it; where the ranks hand in all of them, each is not
    ready to begin anew with the whole."""

    async def halves(model: Any) -> None:
        load(model)
        compute(model, mine(model))
        model.grad_weights[0] = await model.allreduce(model.grad_weights[0], 0)
        cut = (model.rank if by_all else 0, 2, "out")
        weight, state = model.weights.pop(0).shard(*cut), model.opt_states.pop(0).shard(*cut)
        model.weights[0], model.opt_states[0] = model.update(0, model.grad_weights[0], weight, state)
        model.set_final_weight(0, model.weights[0])

    models = simulate(halves, ranks=2, layers=1, batches=2)
    rebuilt = rebuild(Trace.of(models))
    faults = finals(Trace.of(models), rebuilt, False)
    assert [fault for fault in faults if "not complete" in fault] == ([] if by_all else faults)
    assert bool(faults) != by_all
    assert check(models).correct == by_all
    assert len(unready(rebuilt)) == 2
