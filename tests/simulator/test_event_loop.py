"""Tasks, locks, timers and queues of asyncio inside a rank's function, with the figures of plain awaits."""

import asyncio
import warnings
from asyncio import TaskGroup, create_task, sleep
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from lib import BudgetError, DeadlockError, Dist, Model, PuzzleError, RankFailed, Trace, simulate
from lib.simulator import engine
from lib.simulator.event_loop import OwnLoop
from tests.support.drivers import encoded, in_asyncio, without_places
from tests.support.drivers import gather as gather_ranks


def in_a_cell(function: Any, **sizes: Any) -> list[Model]:
    """simulate inside a running loop, which it leaves as it was."""

    async def cell() -> list[Model]:
        before, me, loop = asyncio.all_tasks(), asyncio.current_task(), asyncio.get_running_loop()
        try:
            return simulate(function, **sizes)
        finally:
            await asyncio.sleep(0)
            assert (asyncio.all_tasks(), asyncio.current_task()) == (before, me)
            assert asyncio.get_running_loop() is loop

    return asyncio.run(cell())


PLACES: dict[str, Callable[..., list[Model]]] = {"script": simulate, "cell": in_a_cell}


@pytest.fixture(params=PLACES)
def run(request: pytest.FixtureRequest) -> Callable[..., list[Model]]:
    return PLACES[request.param]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few turns in which nothing moves are allowed."""
    monkeypatch.setattr(engine, "TURNS", 10)
    monkeypatch.setattr(engine, "TURNS_EACH", 1)


def reduce(model: Model, layer: int) -> Any:
    return model.allreduce(model.fake_grad(layer, [model.rank] if layer == 0 else []), layer)


async def one_by_one(model: Model) -> None:
    first, second = reduce(model, 0), reduce(model, 1)
    await first
    await second


async def gathered(model: Model) -> None:
    await asyncio.gather(reduce(model, 0), reduce(model, 1))


async def in_a_group(model: Model) -> None:
    async def wait(layer: int) -> Any:
        return await reduce(model, layer)

    async with TaskGroup() as group:
        tasks = [group.create_task(wait(layer)) for layer in range(2)]
    assert [task.result().layer for task in tasks] == [0, 1]


async def in_tasks(model: Model) -> None:
    async def wait(work: Any) -> Any:
        return await work

    first = create_task(wait(reduce(model, 0)))
    second = asyncio.ensure_future(reduce(model, 1))
    await first
    await second


async def with_a_timeout(model: Model) -> None:
    first, second = reduce(model, 0), reduce(model, 1)
    await asyncio.wait_for(first, 1)
    async with asyncio.timeout(1):
        await second


async def after_a_nap(model: Model) -> None:
    await sleep(1000 * (model.RANKS - model.rank))
    await one_by_one(model)
    await asyncio.sleep(1e12)


async def left_to_itself(model: Model) -> None:
    async def wait() -> None:
        await one_by_one(model)

    model.task = create_task(wait())  # type: ignore[attr-defined]  # a rank is over when all its tasks are


NATURAL = [gathered, in_a_group, in_tasks, with_a_timeout, after_a_nap, left_to_itself]


@pytest.mark.parametrize("function", NATURAL, ids=lambda function: function.__name__)
def test_the_figures_are_those_of_plain_awaits(function: Any, run: Any) -> None:
    models, plain = run(function, ranks=3, batches=3), simulate(one_by_one, ranks=3, batches=3)
    assert [model.time for model in models] == [model.time for model in plain] == [0.6] * 3
    for programs in zip(Trace.of(models).programs, Trace.of(plain).programs, strict=True):
        mine, wanted = ([(e.op, e.layer, e.start, e.length) for e in program.events] for program in programs)
        assert sorted(mine, key=str) == sorted(wanted, key=str)


@pytest.mark.parametrize("function", NATURAL, ids=lambda function: function.__name__)
def test_the_order_in_which_ranks_begin_changes_nothing(function: Any) -> None:
    one, other = (simulate(function, ranks=3, batches=3, order=order) for order in (sorted, lambda n: n[::-1]))
    assert encoded(one) == encoded(other)


@pytest.mark.parametrize("function", [gathered, in_tasks], ids=lambda function: function.__name__)
def test_it_is_what_asyncio_itself_makes_of_it(function: Any) -> None:
    one, other = (driver(function, ranks=3, batches=3) for driver in (simulate, in_asyncio))
    assert without_places(Trace.of(one)) == without_places(Trace.of(other))


def test_ranks_meet_through_events_locks_and_queues(run: Any) -> None:
    said: list[str] = []

    def make() -> Any:
        event, lock, queue = asyncio.Event(), asyncio.Lock(), asyncio.Queue[int](1)

        async def meet(model: Model) -> None:
            if model.rank == 0:
                await event.wait()
                said.append(f"got {await queue.get()}")
            else:
                await asyncio.sleep(5)
                event.set()
                await queue.put(7)
            async with lock:
                await asyncio.sleep(1)
            await reduce(model, 0)

        return meet

    assert [model.time for model in run(make(), ranks=2, batches=2)] == [0.3, 0.3]
    assert said == ["got 7"]


def test_a_timeout_and_an_unfinished_generator_are_the_students_business(run: Any) -> None:
    async def numbers() -> AsyncGenerator[int]:
        for number in range(3):
            await asyncio.sleep(1)
            yield number

    async def patient(model: Model) -> None:
        async for number in numbers():
            if number:
                break
        try:
            async with asyncio.timeout(10):
                await model.receive()
        except TimeoutError:
            await reduce(model, 0)

    assert [model.time for model in run(patient, ranks=2, batches=2)] == [0.3, 0.3]


def line(function: Any, number: int) -> int:
    return function.__code__.co_firstlineno + number


def test_an_event_that_nobody_sets_is_a_deadlock(run: Any) -> None:
    event = asyncio.Event()

    async def forget(model: Model) -> None:
        if model.rank == 0:
            await event.wait()
        await reduce(model, 0)

    with pytest.raises(DeadlockError) as raised:
        run(forget, ranks=2, batches=2)
    assert str(raised.value) == (
        "deadlock: no rank can go on\n"
        "  fix:      rank 0 waits for an asyncio.Event that nobody sets: let another task do so before it waits "
        "itself.\n"
        "            On real machines ranks share no memory, and wait for each other with pass_to and receive only\n"
        "  expected: another task to end what rank 0 waits for: an asyncio.Event that nobody sets\n"
        f"  got:      rank 0 waits for an asyncio.Event that nobody sets (line {line(forget, 2)})\n"
        "            rank 1 waits in all-reduce #1, layer 0: rank 1 came, rank 0 did not "
        f"(line {line(reduce, 1)})\n"
        f"  rank 0:   test_event_loop.py, line {line(forget, 2)}, in forget: await event.wait()\n"
        f"  rank 1:   test_event_loop.py, line {line(reduce, 1)}, in reduce: return model.allreduce(model.fake_grad("
        "layer, [model.rank] if layer == 0 else []), layer)"
    )
    assert raised.value.trace.ranks == 2


@pytest.mark.parametrize("awaited", [False, True])
def test_an_error_in_a_task_names_the_rank_and_the_line(run: Any, awaited: bool) -> None:
    async def fail(model: Model) -> None:
        async def bad() -> None:
            if model.rank == 1:
                {}[17]

        task = asyncio.create_task(bad())
        if awaited:
            await task
        await reduce(model, 0)

    with pytest.raises(RankFailed) as raised:
        run(fail, ranks=2, batches=2)
    assert raised.value.rank == 1
    assert raised.value.what == "KeyError: 17"
    assert [place.function for _, place in raised.value.where] == ["bad"]


REFUSED: dict[str, tuple[Any, str]] = {
    "a thread": (lambda: asyncio.to_thread(print), "call the function itself"),
    "a process": (lambda: asyncio.create_subprocess_shell("true"), "read what you need before simulate"),
    "a socket": (lambda: asyncio.open_connection("localhost", 80), "read what you need before simulate"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_comes_from_outside_cannot_be_simulated(what: str, run: Any) -> None:
    make, fix = REFUSED[what]

    async def outside(model: Model) -> None:
        await asyncio.sleep(0.1)
        await make()

    with pytest.raises(PuzzleError, match="cannot be simulated") as raised:
        run(outside, ranks=2)
    assert raised.value.rank == 0
    assert str(raised.value.fix).startswith(fix)
    assert raised.value.where


async def as_a_task(model: Model) -> None:
    asyncio.create_task(reduce(model, 0))  # noqa: RUF006


async def in_another_loop(model: Model) -> None:
    asyncio.run(one_by_one(model))


@pytest.mark.parametrize(
    ("function", "fix"),
    [
        (as_a_task, "a communication is under way as soon as it is called, and needs no task"),
        (in_another_loop, r"await the coroutine, without asyncio\.run"),
    ],
)
def test_a_work_needs_no_task_and_a_coroutine_no_other_loop(function: Any, fix: str, run: Any) -> None:
    with pytest.raises(RankFailed, match=fix):
        run(function, ranks=2, batches=2)


def test_nothing_is_left_behind_or_complained_of(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(gathered, ranks=2, batches=2)
    assert capsys.readouterr() == ("", "")


def test_an_await_that_was_forgotten_is_still_found() -> None:
    async def forget(model: Model) -> None:
        await asyncio.sleep(0.1)
        one_by_one(model)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]

    with pytest.raises(PuzzleError, match="the async function one_by_one was called, but not awaited"):
        simulate(forget, ranks=2)


async def asks(model: Model) -> None:
    if model.rank == 1:
        model.load_weights(0)
        while 0 not in model.weights:
            await asyncio.sleep(0)
    await reduce(model, 0)


async def asks_with_naps(model: Model) -> None:
    if model.rank == 1:
        while 0 not in model.weights:
            await asyncio.sleep(0.1)
    await reduce(model, 0)


async def asks_together(model: Model) -> None:
    model.load_weights(0)
    while True:
        await asyncio.sleep(0)


ASKING = [
    *[(function, driver) for function in (asks, asks_together) for driver in (simulate, in_a_cell, in_asyncio)],
    *[(asks_with_naps, driver) for driver in (simulate, in_a_cell)],
]


@pytest.mark.parametrize(("function", "driver"), ASKING)
def test_a_loop_that_only_lets_others_run_ends(function: Any, driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "TURNS", 500)
    monkeypatch.setattr(engine, "TURNS_EACH", 100)
    messages: set[str] = set()
    for _ in range(2):
        with pytest.raises(BudgetError, match="has taken more than 25000 turns") as raised:
            driver(function, ranks=2, batches=2)
        messages.add(str(raised.value))
        assert raised.value.rank == (0 if function is asks_together else 1)
        assert "await asyncio.sleep" in raised.value.where[0][1].text
        assert raised.value.trace.ranks == 2
    assert len(messages) == 1


@pytest.mark.parametrize("driver", [simulate, in_a_cell, in_asyncio])
def test_a_loop_that_ends_because_another_rank_moves_is_fine(driver: Any) -> None:
    said: list[int] = []

    async def wait(model: Model) -> None:
        if model.rank == 0:
            while len(said) < 2:
                await asyncio.sleep(0)
        elif model.rank == 1:
            await model.pass_to(2, "a message that is chosen when nobody moves")
            said.append(1)
        else:
            await model.receive()
            said.append(2)

    driver(wait, ranks=3)
    assert sorted(said) == [1, 2]


@pytest.mark.usefixtures("impatient")
async def test_while_another_rank_sleeps_nobody_is_blamed() -> None:
    awake: list[int] = []

    async def wait(model: Model) -> None:
        model.load_weights(0)
        if model.rank:
            await asyncio.sleep(0.1)
            awake.append(1)
        while not awake:
            await asyncio.sleep(0)
        await reduce(model, 0)

    assert [model.time for model in await gather_ranks(wait, ranks=2, batches=2)] == [0.3, 0.3]


@pytest.mark.usefixtures("impatient")
def test_work_in_a_loop_is_no_standing_still() -> None:
    async def busy(model: Model) -> None:
        for _ in range(1000):
            model.fake_grad(0)
            await asyncio.sleep(0)

    assert len(simulate(busy, ranks=2)[1].program.events) == 1000


@pytest.mark.usefixtures("impatient")
async def test_a_cell_in_which_ranks_are_played_by_hand_is_never_ended() -> None:
    """The task is the notebook's own: it may let others run as often as it likes."""
    models = [Model(rank, dist) for dist in [Dist(2)] for rank in range(2)]
    models[0].load_weights(0)
    for _ in range(1000):
        await asyncio.sleep(0)
    await models[0].pass_to(1, "hello")
    assert await models[1].receive(0) == "hello"


async def polite(model: Model) -> None:
    await asyncio.sleep(0)
    await sleep(0)


@pytest.mark.parametrize("function", NATURAL)
def test_a_function_that_uses_asyncio_runs_in_a_loop_of_ours(function: Any) -> None:
    (model, *_) = simulate(function, ranks=2, batches=2)
    assert type(model.dist.driver) is OwnLoop


@pytest.mark.parametrize("function", [one_by_one, polite])
def test_a_function_that_does_not_is_stepped_by_our_own_driver(function: Any, run: Any) -> None:
    (model, *_) = run(function, ranks=2, batches=2)
    assert "driver" not in vars(model.dist)


def test_who_asks_for_a_loop_after_another_rank_has_failed_gets_one() -> None:
    async def late(model: Model) -> None:
        weight, inp = model.load_weights(0)[0], model.get_activation([model.rank])
        if model.rank == 0:
            model.forward(0, inp, weight)
            raise RuntimeError("at 1")
        await asyncio.sleep(1)
        model.forward(0, inp, weight)
        model.forward(0, inp, weight)
        model.forward(0, inp, weight)

    for order in (sorted, lambda names: names[::-1]):
        with pytest.raises(RankFailed, match="at 1") as raised:
            simulate(late, ranks=2, layers=1, batches=2, order=order)
        assert [len(program.events) for program in raised.value.trace.programs] == [3, 4]
