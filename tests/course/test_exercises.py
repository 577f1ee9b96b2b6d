"""expect: right, not yet and why, or not solved. Given code that takes time before the gap is no mistake."""

from __future__ import annotations

import pytest

from lib import HIDDEN, Model, NotSolved, expect, simulate

WEIGHT = HIDDEN * HIDDEN


async def summed(model: Model) -> None:
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    grad_weights["sum"] = await model.allreduce(grad_weights["mine"], 0)


async def alone(model: Model) -> None:
    model.grad_weights["mine"] = model.fake_grad(0, [model.rank])
    await model.allreduce(model.grad_weights["mine"], 0)


async def scattered(model: Model) -> None:
    model.grad_weights["mine"] = await model.scatterreduce(model.fake_grad(0, [model.rank]), 0)


def test_right(capsys: pytest.CaptureFixture[str]) -> None:
    out = simulate(summed, layers=1, batches=2, ranks=2)
    expect(out, store="grad_weights", layer=0, batches=range(2), whole=True, memory=2 * WEIGHT, end=0.3)
    assert capsys.readouterr().out == "Right!\n"


def test_what_the_first_rank_lacks_and_which_others_do(capsys: pytest.CaptureFixture[str]) -> None:
    expect(simulate(alone, layers=1, batches=3, ranks=3), store="grad_weights", batches=range(3))
    assert capsys.readouterr().out.splitlines() == [
        "Not yet: rank 0 should end with a value in grad_weights with batches 0-2",
        "         it has: weight gradient of layer 0, batch 0",
        "         (and so it is on ranks 1 and 2)",
    ]


def test_a_shard_is_not_whole(capsys: pytest.CaptureFixture[str]) -> None:
    out = simulate(scattered, layers=1, batches=2, ranks=2)
    expect(out, store="grad_weights", batches=range(2))
    expect(out, store="grad_weights", batches=range(2), whole=True)
    assert capsys.readouterr().out.splitlines() == [
        "Right!",
        "Not yet: rank 0 should end with a whole value in grad_weights with batches 0 and 1",
        "         it has: weight gradient of layer 0, batches 0, 1, shard 0 of 2",
        "         (and so it is on rank 1)",
    ]


def test_too_late_too_full_and_nothing_there(capsys: pytest.CaptureFixture[str]) -> None:
    out = simulate(summed, layers=1, batches=2, ranks=2)
    expect(out, end=0.2)
    expect(out, memory=WEIGHT)
    expect(out[:1], store="activations")
    assert capsys.readouterr().out.splitlines() == [
        "Not yet: the run ends at 0.3, and it can end at 0.2",
        "Not yet: rank 0 holds 524,288 elements in the end, and there should be 262,144",
        "         it has: weight gradient of layer 0, batch 0",
        "                 weight gradient of layer 0, batches 0, 1",
        "         (and so it is on rank 1)",
        "Not yet: rank 0 should end with a value in activations",
        "         it has: nothing",
    ]


def test_another_way_than_the_one_to_practise(capsys: pytest.CaptureFixture[str]) -> None:
    out = simulate(summed, layers=1, batches=2, ranks=2)
    expect(out, calls=["allreduce"])
    expect(out, calls=["scatterreduce", "allgather"])
    expect(out, calls=["allreduce", "forward"])
    assert capsys.readouterr().out.splitlines() == [
        "Right!",
        "Not yet: rank 0 calls allreduce, and it is to be done with scatterreduce and allgather alone",
        "         (and so it is on rank 1)",
        "Not yet: rank 0 never calls forward",
        "         (and so it is on rank 1)",
    ]


def test_no_such_store() -> None:
    with pytest.raises(ValueError, match="there is no store 'grads'; there are weights"):
        expect([], store="grads")


def test_given_code_that_takes_time_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    def after_work(model: Model) -> None:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        model.activations[1] = model.forward(0, model.get_activation([0]), model.weights[0])
        # --- your code (about 1 line) ---
        raise NotSolved("after_work")
        # --- end of your code ---

    expect(simulate(after_work, layers=1, batches=1, ranks=1), store="activations")
    assert capsys.readouterr().out.splitlines()[0] == "after_work is not solved yet"


def test_code_above_a_stub_that_was_left_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    def left(model: Model) -> None:
        # --- your code (about 1 line) ---
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        model.activations[1] = model.forward(0, model.get_activation([0]), model.weights[0])
        raise NotSolved("left")
        # --- end of your code ---

    simulate(left, layers=1, batches=1, ranks=1)
    assert capsys.readouterr().out.splitlines()[0] == "left still raises NotSolved, after your code has run"
