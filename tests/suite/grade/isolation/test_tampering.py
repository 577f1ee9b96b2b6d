"""Nobody scores without a training step, harms anybody, or leaves anything behind; and the next one is run as ever."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lib import check
from lib.files import child_environment
from lib.suite.isolation.isolation import FEATURES, Isolation
from lib.suite.isolation.messages import Limits, Sent
from lib.suite.submissions.source import Source
from tests.suite.grade.isolation.attempts import ENDED, ENDLESS, EVERY, HEAD, HUNGRY, OUTSIDE, Attempt
from tests.support.processes import descendants
from tests.support.profiles import THOROUGH, sample

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server is Linux's")
LIMITS = Limits(seconds=0.6, memory=2**30)
HONEST = Source.of("honest.py", f"{HEAD}\ndef basic(model): good(model)\n")
WALLS = frozenset({"bwrap", "landlock", "seccomp"})


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("others") / "hidden_sizes.toml"
    path.write_text("REACHED", "utf-8")
    return path


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def has(isolation: Isolation, name: str) -> bool:
    return FEATURES[name] in isolation.features


def alive(grader: int | None = None) -> list[int]:
    """The processes of the isolation that a process has started, or this one: all look like the server."""
    started = descendants(grader or os.getpid())
    return [process for process, words in started.items() if b"running import serve" in words]


def scores(sent: Sent, attempt: Attempt) -> bool:
    if sent.trace is None:
        return False
    verdict = check(sent.trace, "basic" if attempt.size is None else None)
    return sent.outcome == "trace" and (verdict.passed if attempt.size is None else verdict.correct)


def tampered(isolation: Isolation, attempt: Attempt, secret: Path, port: int) -> None:
    if not all(has(isolation, name) for name in attempt.needs):
        pytest.skip(f"nothing stops it without {' and '.join(attempt.needs)}")
    text = attempt.text.replace("SECRET", repr(str(secret))).replace("PORT", str(port))
    source = Source((("attempt.py", text),), attempt.modules, "attempt.py")
    sent = isolation.run(source, "basic", attempt.size, LIMITS)
    assert not scores(sent, attempt), sent
    assert "REACHED" not in sent.printed + sent.text
    assert len(sent.text) + len(sent.printed) < 30_000
    assert sent.text or sent.outcome in ("trace", "unsolved")
    honest = isolation.run(HONEST, "basic")
    assert honest.trace is not None, honest
    assert check(honest.trace, "basic").passed


@pytest.mark.parametrize("attempt", [one for _, one in EVERY], ids=[name for name, _ in EVERY])
def test_no_attempt_scores(isolation: Isolation, attempt: Attempt, secret: Path, port: int) -> None:
    before = len(alive())  # other tests of this process may have a server, too
    tampered(isolation, attempt, secret, port)
    assert len(alive()) == before >= 1


WITHOUT = [{"bwrap"}, {"seccomp", "landlock"}, WALLS]
WORST = [*ENDED, *OUTSIDE, *HUNGRY, *ENDLESS[:2]]


@pytest.mark.parametrize("without", WITHOUT, ids=lambda without: " ".join(sorted(without)))
def test_what_is_left_where_a_system_has_less_holds_too(without: set[str], secret: Path, port: int) -> None:
    before = alive()
    with Isolation(without) as isolation:
        assert not {FEATURES[name] for name in without} & set(isolation.features)
        for attempt in sample(WORST[WITHOUT.index(without) :: len(WITHOUT)]):  # each in one of them
            if all(has(isolation, name) for name in attempt.needs):
                tampered(isolation, attempt, secret, port)
    assert alive() == before


FRESH = {"rules", "a Trace of another size", "a loop"}
SLOW = {"Model.check", "check", "printed", "puzzle", "a stub", "os._exit"} if THOROUGH else set[str]()


@pytest.mark.parametrize("attempt", [one for _, one in EVERY if one.name in FRESH | SLOW], ids=lambda one: one.name)
def test_nor_in_a_new_python_where_there_is_no_server(attempt: Attempt, secret: Path, port: int) -> None:
    with Isolation({"server"}) as isolation:
        assert isolation.features == ("a new Python for each run",)
        tampered(isolation, attempt, secret, port)


def test_newer_calls_that_are_allowed_are_not_taken_for_unknown_ones(isolation: Isolation) -> None:
    close_range = Attempt("", "print(ctypes.CDLL(None).syscall(436, 900, 901, 0))").text
    assert isolation.run(Source((("new.py", close_range),), name="new.py"), "basic").printed == "0\n"


def test_nobody_finds_what_another_has_left(isolation: Isolation) -> None:
    leave = """
    text = whole(data(good))
    for folder in (".", "/tmp", "/dev/shm", "/var/tmp", os.path.expanduser("~")):
        try: open(os.path.join(folder, "left"), "w").write(text)
        except OSError: pass
    good(model)
    """
    take = """
    for folder, _, names in [*os.walk("/tmp"), *os.walk("/dev/shm"), *os.walk(".")]:
        for name in names:
            if name == "left": forge(open(os.path.join(folder, name)).read())
    """
    left = isolation.run(Source((("left.py", Attempt("", leave).text),), name="left.py"), "basic")
    assert left.outcome == "trace"
    sent = isolation.run(Source((("taken.py", Attempt("", take).text),), name="taken.py"), "basic")
    assert sent.outcome == "trace"
    assert sent.trace is not None
    assert not check(sent.trace, "basic").correct


def test_nothing_is_written_anywhere(isolation: Isolation) -> None:
    import lib

    names = [
        Path(lib.__file__).parent / "REACHED.py",
        Path(os.__file__).parent / "REACHED.py",
        Path("~/REACHED").expanduser(),
    ]
    assert not any(name.exists() for name in names)


def test_a_server_that_is_killed_is_started_again(isolation: Isolation) -> None:
    assert isolation.run(HONEST, "basic").outcome == "trace"
    for process in alive():
        os.kill(process, signal.SIGKILL)
    assert isolation.run(HONEST, "basic").outcome == "trace"


ENDLESS_FORK = """
import os

def basic(model):
    try: os.fork()
    except OSError: pass
    while True: pass
"""
GRADER = f"""
import sys
from lib.suite.isolation.isolation import Isolation
from lib.suite.isolation.messages import Limits
from lib.suite.submissions.source import Source

isolation = Isolation(sys.argv[1:])
assert isolation.features
print("ready", flush=True)
isolation.run(Source.of("endless.py", {ENDLESS_FORK!r}), "basic", limits=Limits(seconds=60))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("without", [set[str](), WALLS])
def test_when_the_grading_is_killed_nothing_is_left(without: set[str]) -> None:
    program = [sys.executable, "-c", GRADER, *without]
    with subprocess.Popen(program, stdout=subprocess.PIPE, env=child_environment()) as grader:
        assert grader.stdout is not None
        assert grader.stdout.readline() == b"ready\n"
        assert await_that(lambda: len(alive(grader.pid)) >= 2 + bool(without)), "the endless one runs"
        started = alive(grader.pid)
        grader.kill()
        grader.wait()
        assert await_that(lambda: not any(Path(f"/proc/{process}").exists() for process in started))


def await_that(condition: Callable[[], bool]) -> bool:
    for _ in range(400):
        if condition():
            return True
        time.sleep(0.05)
    return False
