"""Part of the tests under conditions that must not matter, one at a time: `python tests/conditions/run.py [words]`.

Each line says a condition and what came of it; with words, only conditions that have one of them in their name are
tried. The order of tests is another one each day; `ORDER=2026-11-23` in the environment repeats that of a day.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
SELECTION = """
tests/suite/cli/test_cli.py tests/suite/cli/test_schedule_command.py tests/suite/course/test_progress.py
tests/suite/course/test_predictions.py tests/errors tests/drawing/test_display.py tests/drawing/test_draw.py
tests/drawing/test_golden.py tests/drawing/test_scene.py tests/suite/grade/intake
tests/suite/grade/test_grading.py tests/suite/grade/test_pytest_plugin.py tests/suite/grade/test_results.py
tests/test_files.py
tests/suite/submissions/test_load.py tests/suite/submissions/test_source.py tests/suite/submissions/test_workplace.py
tests/simulator/test_simulator.py tests/trace/test_text_format.py
"""
"""Files that read clocks, terminals, locales and homes, start processes, or write files, and take a minute together."""


class Condition(NamedTuple):
    """What is different from usual: variables of the environment, options of subprocess.run, what starts pytest."""

    name: str
    variables: Mapping[str, str] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})
    wrapper: Sequence[str] = ()
    excuse: str = ""


def midnight() -> str:
    """A time zone in which the day ends in half a minute."""
    now = datetime.now(UTC)
    east = 24 * 3600 - 30 - (now.hour * 3600 + now.minute * 60 + now.second)  # seconds; west where more than 12 hours
    sign, seconds = ("-", east) if east <= 12 * 3600 else ("+", 24 * 3600 - east)
    return f"LATE{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def conditions(scratch: Path) -> Iterator[Condition]:
    """All of them; `scratch` is an empty folder."""
    order = os.environ.get("ORDER") or date.today().isoformat()
    yield Condition(f"another order (ORDER={order})", {"ORDER": order, "PYTEST_PLUGINS": "tests.conditions.shuffled"})
    yield Condition("midnight passes", {"TZ": midnight()})
    yield Condition("the other side of the Earth", {"TZ": "Pacific/Kiritimati"})
    yield Condition("a narrow terminal", {"COLUMNS": "40", "LINES": "10"})
    yield Condition("a wide terminal", {"COLUMNS": "300"})
    yield Condition("colours are asked for", {"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    yield Condition("the locale C", {"LC_ALL": "C", "LANG": "C"})
    yield Condition("a locale with UTF-8", {"LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"})
    yield Condition("umask 077", options={"umask": 0o077})
    (scratch / "file").touch()
    yield Condition("a HOME that cannot be written to", {"HOME": str(scratch / "file" / "home")})
    foreign = scratch / "foreign" / "lib"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text('raise ImportError("this is another package that is called lib")\n')
    yield Condition("another package called lib", {"PYTHONPATH": str(foreign.parent)})
    alone: dict[str, Any] = {"preexec_fn": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})}
    yield Condition("one core", options=alone, excuse="" if hasattr(os, "sched_setaffinity") else "not on this system")
    yield nobody(scratch)


def nobody(scratch: Path) -> Condition:
    """Another user than root, with an empty home that cannot be written to; the files are this user's own."""
    name, wrapper = "a user who is not root", ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return Condition(name, excuse="you are one already")
    home = scratch / "home"
    home.mkdir(mode=0o555)
    try:
        subprocess.run([*wrapper, "true"], check=True, capture_output=True)
    except (subprocess.CalledProcessError, FileNotFoundError):
        return Condition(name, excuse="needs `unshare --user` of util-linux 2.38, and a system that allows it")
    return Condition(name, {"HOME": str(home)}, wrapper=wrapper)


def failures(condition: Condition, arguments: list[str]) -> str:
    """What failed under a condition, one test a line; empty where nothing did."""
    options = ["-m", "pytest", "-q", "-rfE", "--color=no", "-p", "no:cacheprovider"]
    command = [*condition.wrapper, sys.executable, *options, *arguments]
    environment = {**os.environ, **condition.variables}
    if "PYTHONPATH" not in condition.variables:
        environment.pop("PYTHONPATH", None)
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, **condition.options)
    found = re.findall(r"^(?:FAILED|ERROR) .*", run.stdout, re.MULTILINE)
    return "" if run.returncode == 0 else "\n".join(found) or run.stdout[-2000:] + run.stderr[-2000:]


def main() -> int:
    words = sys.argv[1:]
    arguments = os.environ.get("ONLY", SELECTION).split()
    failed = 0
    with TemporaryDirectory(prefix="conditions") as folder:
        for condition in conditions(Path(folder)):
            if words and not any(word in condition.name for word in words):
                continue
            if condition.excuse:
                print(f"  left out  {condition.name}: {condition.excuse}", flush=True)
                continue
            begun = time.monotonic()
            said = failures(condition, arguments)
            took = f"{time.monotonic() - begun:.0f} s"
            print(f"{'  FAILED  ' if said else '  passed  '}  {condition.name} ({took})", flush=True)
            if said:
                failed += 1
                print(said, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
