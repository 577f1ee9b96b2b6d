"""Changes modules of lib in small ways, one at a time, and sees whether their tests fail: mutmut, module by module.

Each module has the tests that are about it, so that a mutant that survives costs seconds. mutmut works on a copy in
mutants/<module>/, which begins anew each time; see report.py for what comes of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COPIED = ("lib", "drawing", "puzzles", "solutions", "tests", "pyproject.toml")
MESSAGES = "tests/diagnosis/test_mistakes.py"
TESTS = {
    "check": ("check", "cheats", "readiness", "misuse"),
    "clock": ("costs", "retime", "overlap"),
    "collectives": ("collectives", "costs", "figures"),
    "costs": ("costs", "retime", "misuse"),
    "faults": ("check", "cheats", "regions", "faults"),
    "memory": ("memory", "overlap", "figures", "readiness", "tests/analysis/test_peak.py"),
    "order": ("overlap", "figures", "order"),
    "readiness": ("readiness", "check", "cheats"),
    "rebuild": ("rebuild", "cheats", "check"),
    "regions": ("regions", "values", "cheats", "rules"),
    "retime": ("retime", "check", "costs"),
    "rules": ("rules", "collectives", "doors"),
    "values": ("values", "rules", "collectives", "doors"),
    "walk": ("retime", "walk", "deadlock", "cheats"),
}
"""For each module the tests that are about it: files of tests/lib by their short names, and the corpus of mistakes."""
CONFIG = """\
[mutmut]
source_paths = lib
only_mutate = lib/{module}.py
also_copy =
    drawing
    puzzles
    solutions
# Program.derive counts the frames up to the student's line, and a mutated function is called through two more: the
# methods that lead there (these, and values._derive) are left as they are.
do_not_mutate_patterns =
    return _derive\\(
pytest_add_cli_args =
    -p
    pytest_asyncio.plugin
    -p
    pytest_timeout
    -p
    tests.mutants.frames
    -p
    no:cacheprovider
    -p
    no:unraisableexception
pytest_add_cli_args_test_selection =
    {tests}
# Some tests keep what a run gave: a mutant must not meet what was run without it.
process_isolation = forkserver
use_git_change_detection = false
use_setproctitle = false
"""


def files(names: tuple[str, ...]) -> list[str]:
    """The files of some tests; those that there are not (yet) are left out."""
    paths = [name if "/" in name else f"tests/lib/test_{name}.py" for name in names]
    return [path for path in paths if (ROOT / path).exists()]


def run(module: str, workers: str) -> int:
    """All mutants of a module."""
    there = ROOT / "mutants" / module
    shutil.rmtree(there, ignore_errors=True)
    there.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, there / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, there)
    tests = "\n    ".join(files(TESTS[module]))
    (there / "setup.cfg").write_text(CONFIG.format(module=module, tests=tests), "utf-8")
    command = [Path(sys.executable).with_name("mutmut"), "run", "--max-children", workers]
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # a start of pytest is most of what a mutant costs
    with open(there / "log", "w", encoding="utf-8") as log:
        return subprocess.run(command, cwd=there, env=env, stdout=log, stderr=log).returncode


def main(modules: list[str], workers: str) -> int:
    for module in modules or TESTS:
        print(f"mutants of lib/{module}.py ...", flush=True)
        if run(module, workers):
            print(f"mutmut did not come to its end: see mutants/{module}/log")
            return 1
    return 0


if __name__ == "__main__":
    count = os.environ.get("WORKERS", "auto")
    sys.exit(main(sys.argv[1:], str(os.cpu_count() or 1) if count == "auto" else count))
