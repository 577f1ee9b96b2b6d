"""Simulated time with toy coroutines: signals, choices, deadlock, and that both drivers do the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.simulator.asyncio_support.drivers import RunningLoop
from lib.simulator.engine import Engine, Failed, Signal

randoms = st.randoms(use_true_random=False)


class Stuck(Exception):
    """What the tests make of a deadlock."""


class Moment:
    """What a wait is for; in a loop that others run nobody asks when it is over."""

    end = None


DRIVERS: dict[Engine, RunningLoop] = {}


class Wait:
    """What a coroutine awaits to wait for a signal."""

    def __init__(self, engine: Engine, signal: Signal, name: int) -> None:
        self.arguments = (engine, signal, name)

    def __await__(self) -> Generator[Any, None, Any]:
        engine, signal, name = self.arguments
        if not engine.driving:
            yield from DRIVERS[engine].wait(signal, name, Moment(), 0)
        elif not signal.fired:
            yield engine.park(signal)
        return signal.value


def make_engine(failed: list[int] | None = None) -> Engine:
    def on_failed(name: int, error: BaseException) -> None:
        if failed is not None:
            failed.append(name)

    engine = Engine(lambda: lambda: Stuck("nobody can move"))
    DRIVERS[engine] = RunningLoop(engine, on_failed)
    return engine


def drive(engine: Engine, *coroutines: Coroutine[Any, Any, Any], order: Any = None) -> None:
    try:
        engine.run(list(coroutines), order)
    finally:
        for coroutine in coroutines:
            coroutine.close()


def loop(engine: Engine, *coroutines: Coroutine[Any, Any, Any]) -> None:
    async def main() -> None:
        await asyncio.gather(*coroutines)

    asyncio.run(main())


BOTH = pytest.mark.parametrize("run", [drive, loop])
Driver = Callable[..., None]


@BOTH
def test_a_signal_wakes_those_who_wait_brings_its_value_and_fires_once(run: Driver) -> None:
    engine, signal, got = make_engine(), Signal(), list[str]()

    async def wait(name: int) -> None:
        got.append(await Wait(engine, signal, name))

    async def fire() -> None:
        engine.fire(signal, "news")

    run(engine, wait(0), wait(1), fire(), wait(3))
    assert got == ["news"] * 3
    assert engine.parked() == []
    with pytest.raises(AssertionError, match="a signal fires once"):
        engine.fire(signal)


@BOTH
def test_choices_are_made_earliest_first_and_only_when_nobody_can_run(run: Driver) -> None:
    engine, made = make_engine(), list[Any]()
    signals = {name: Signal() for name in range(4)}

    async def choose(name: int, time: int) -> None:
        engine.choose_later(time, name, lambda: engine.fire(signals[name], time))
        made.append("asked")
        made.append((await Wait(engine, signals[name], name), name))

    run(engine, *(choose(name, time) for name, time in enumerate([7, 3, 7, 5])))
    assert made[:4] == ["asked"] * 4
    assert made[4:] == [(3, 1), (5, 3), (7, 0), (7, 2)]


@BOTH
def test_when_nobody_can_move_everybody_who_waits_is_told(run: Driver) -> None:
    engine, told = make_engine(), list[int]()
    signals = [Signal("left"), Signal("right")]

    async def wait(name: int) -> None:
        try:
            await Wait(engine, signals[name], name)
        except Stuck:
            told.append(name)
            raise

    with pytest.raises(Stuck, match="nobody can move"):
        run(engine, wait(0), wait(1))
    if run is loop:
        assert told == [0, 1]


def test_a_deadlock_shows_who_waits_for_what() -> None:
    seen: list[tuple[int, str]] = []
    engine = Engine(lambda: lambda: Stuck())
    engine.on_stuck = lambda: (seen.extend((n, s.subject) for n, s in engine.parked()), Stuck)[1]

    async def wait(name: int, subject: str) -> None:
        await Wait(engine, Signal(subject), name)

    with pytest.raises(Stuck):
        drive(engine, wait(0, "a letter"), wait(1, "a train"))
    assert seen == [(0, "a letter"), (1, "a train")]


def test_a_coroutine_that_raises_names_itself() -> None:
    engine = make_engine()

    async def fine() -> None: ...

    async def fail() -> None:
        raise KeyError("oh")

    with pytest.raises(Failed) as raised:
        engine.run([fine(), fail()])
    assert raised.value.name == 1
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_task_that_fails_in_a_loop_is_reported() -> None:
    failed: list[int] = []
    engine, signal = make_engine(failed), Signal()

    async def wait() -> None:
        with pytest.raises(Stuck):
            await Wait(engine, signal, 0)
        raise KeyError("oh")

    with pytest.raises(KeyError):
        loop(engine, wait())
    assert failed == [0]


def test_one_who_sleeps_in_a_loop_keeps_the_others_waiting() -> None:
    """As long as on_stuck says that somebody may still move."""
    engine, signal, asleep = make_engine(), Signal(), [True]
    engine.on_stuck = lambda: None if asleep[0] else (lambda: Stuck("nobody can move"))

    async def sleep() -> None:
        await asyncio.sleep(0.02)
        asleep[0] = False
        engine.fire(signal)

    async def wait() -> None:
        await Wait(engine, signal, 0)

    loop(engine, wait(), sleep())


def test_a_cancelled_waiter_is_no_longer_parked() -> None:
    engine, signal = make_engine(), Signal()
    engine.on_stuck = lambda: None

    async def wait() -> None:
        await Wait(engine, signal, 0)

    async def main() -> None:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        assert engine.parked() == [(0, signal)]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.parked() == []
        engine.fire(signal)

    asyncio.run(main())


@given(st.integers(2, 6), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12), randoms)
def test_the_order_of_steps_changes_nothing(names: int, edges: list[tuple[int, int]], random: Random) -> None:
    """Each edge is a signal that one fires and another waits for, in the order of the list."""
    edges = [(a % names, b % names) for a, b in edges if a % names != b % names]
    logs: list[dict[int, list[Any]]] = []

    def once(order: Callable[[list[int]], list[int]] | None) -> None:
        engine = make_engine()
        signals = [Signal() for _ in edges]
        log: dict[int, list[Any]] = {name: [] for name in range(names)}

        async def run(name: int) -> None:
            for number, (source, target) in enumerate(edges):
                if source == name:
                    engine.fire(signals[number], (number, len(log[name])))
                if target == name:
                    log[name].append(await Wait(engine, signals[number], name))

        drive(engine, *(run(name) for name in range(names)), order=order)
        logs.append(log)

    once(None)
    once(lambda ready: random.sample(ready, len(ready)))
    assert logs[0] == logs[1]
    assert sum(map(len, logs[0].values())) == len(edges)
