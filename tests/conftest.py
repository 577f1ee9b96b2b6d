"""What holds for all tests: nobody's own progress and notebooks are read or written, each run tries the same examples,
and what takes long (`@pytest.mark.thorough`) is left to `make test-all`."""

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache

import pytest
import typer.testing

from tests.support.drivers import DRIVERS, Run
from tests.support.durations import Durations
from tests.support.profiles import THOROUGH
from tests.support.warm import Warm

gc.set_threshold(100_000)  # looking for garbage after every 700 objects takes 5 % of all tests and 20 % of collecting
os.environ["PUZZLES_PROGRESS"] = "off"  # here and not in a fixture: for modules that run something when imported, too
os.environ.pop("PUZZLES_GRADING", None)  # in most notebooks of tests a stub is not an error
os.environ.pop("FORCE_COLOR", None)  # what commands print is compared without colours
_copies = tempfile.TemporaryDirectory(prefix="my_puzzles")  # which goes with the last that knows its name
os.environ["PUZZLES_FOLDER"] = _copies.name


# typer looks at the parameters of all commands, for 40 ms, whenever one of them is called: here once.
typer.testing._get_command = cache(typer.main.get_command)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]

ELSEWHERE = {
    "win32": {"replay/": "the ranks of a replay are forked, which Windows cannot do; under WSL these tests run"}
}
"""What cannot work on other systems, by the beginning of its path, and why. A single test says so with skipif."""


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("cacheprovider"):
        assert config.cache is not None
        config.pluginmanager.register(Durations(config.cache))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what cannot work on this system, and leaves out what takes long unless TESTS=thorough asks for it, and what
    needs the pages that node builds unless `-m browser` does."""
    for item in items:
        for start, why in ELSEWHERE.get(sys.platform, {}).items():
            if item.nodeid.startswith(f"tests/{start}"):
                item.add_marker(pytest.mark.skip(reason=why))
    asked = {"thorough": THOROUGH, "browser": "browser" in config.option.markexpr}
    left = [name for name, wanted in asked.items() if not wanted]
    out = [item for item in items if any(map(item.get_closest_marker, left))]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if not any(map(item.get_closest_marker, left))]


def pytest_collection_finish() -> None:
    """Lets the garbage collector pass over what was imported and collected: nine thousand tests are not garbage."""
    gc.freeze()


@pytest.fixture(scope="session")
def warm_server() -> Iterator[Warm]:
    """The Python that students' functions are forked off."""
    server = Warm()
    yield server
    server.close()


@pytest.fixture
def warm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this test each function of a student's has a process that is forked, and no fresh Python."""
    if sys.platform != "win32":
        monkeypatch.setattr("lib.suite.isolation.isolation.Popen", request.getfixturevalue("warm_server").popen)


@pytest.fixture(params=DRIVERS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a function on all ranks, by each of the drivers."""
    return DRIVERS[request.param]
