"""Changes modules of lib in small ways, one at a time, and sees whether their tests fail: mutmut, module by module.

Each module has the tests that are about it, so that a mutant that survives costs seconds. mutmut works on a copy in
mutants/<module>/, which begins anew each time; see report.py for what comes of it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COPIED = ("lib", "drawing", "puzzles", "solutions", "tests", "pyproject.toml")
MISTAKES = "diagnosis/mistakes"  # what a message says is compared there
TESTS = {
    "checker.verdict": ("checker/checker", "checker/door", "errors/misuse"),
    "checker.faults": (*("checker/final_weights", "checker/readiness", "checker/checker", "checker/cheats", MISTAKES),),
    "checker.judging": (
        *("checker/checker", "checker/door", "checker/cheats", "checker/readiness", "checker/graded", MISTAKES),
    ),
    "cluster.costs": ("cluster/costs", "trace/retiming", "simulator/overlap", "errors/misuse"),
    "errors.wording": ("errors/wording", "errors/errors", "values/values"),
    "schedules.pipelines.action": ("schedules/orders", "schedules/order_files"),
    "schedules.pipelines.legality": ("schedules/legality", "schedules/said", MISTAKES),
    "schedules.pipelines.program": (
        *("schedules/orders", "schedules/said", "checker/published_figures", "analysis/bounds/optima", MISTAKES),
    ),
    "trace.lifetimes": ("trace/lifetimes", "simulator/overlap", "analysis/figures", "adversary/honest", MISTAKES),
    "trace.order": ("trace/order", "trace/walk", "trace/retiming", "diagnosis/deadlock", "checker/cheats"),
    "trace.rebuild": ("trace/rebuild", "trace/followers", "checker/cheats", "checker/checker", "adversary/forgeries"),
    "trace.retiming": ("trace/retiming", "checker/checker", "cluster/costs"),
    "values.collectives": ("values/collectives", "cluster/costs", "analysis/figures"),
    "values.laws": ("values/placement", "values/values", "values/rules"),
    "values.placement": ("values/placement", "values/values", "values/rules", "checker/cheats"),
    "values.rules": (
        *("values/rules", "values/collectives", "values/parts_of_a_weight", "values/halves", "values/numbers"),
        *("values/averages", "checker/cheats", "adversary/cheats", "errors/arguments"),
    ),
    "values.values": ("values/values", "values/rules", "values/collectives", "errors/arguments"),
}
"""For each module of lib, as room.module, the tests that are about it: room/name of a file tests/room/test_name.py."""
CONFIG = """\
[mutmut]
source_paths = lib
only_mutate = {path}
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
    """The files of some tests. FileNotFoundError where one has moved: without it a mutant would seem to survive."""
    paths = [f"tests/{room}/test_{name}.py" for room, _, name in (name.rpartition("/") for name in names)]
    for path in paths:
        (ROOT / path).stat()
    return paths


def path_of(module: str) -> str:
    """values.rules -> lib/values/rules.py"""
    return f"lib/{module.replace('.', '/')}.py"


def known(name: str) -> str:
    """A module by its name with its room, or without it where there is one of that name. Else a ValueError."""
    found = [module for module in TESTS if name in (module, module.rpartition(".")[2])]
    if len(found) != 1:
        raise ValueError(f"no module {name!r} has tests here; there are {', '.join(TESTS)}")
    return found[0]


def run(module: str, workers: str) -> int:
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
    (there / "setup.cfg").write_text(CONFIG.format(path=path_of(module), tests=tests), "utf-8")
    command = [Path(sys.executable).with_name("mutmut"), "run", "--max-children", workers]
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # a start of pytest is most of what a mutant costs
    with open(there / "log", "w", encoding="utf-8") as log:
        return subprocess.run(command, cwd=there, env=env, stdout=log, stderr=log).returncode


def main(modules: list[str], workers: str) -> int:
    for module in map(known, modules or TESTS):
        print(f"mutants of {path_of(module)} ...", flush=True)
        if run(module, workers):
            print(f"mutmut did not come to its end: see mutants/{module}/log")
            return 1
    return 0


if __name__ == "__main__":
    count = os.environ.get("WORKERS", "auto")
    sys.exit(main(sys.argv[1:], str(os.cpu_count() or 1) if count == "auto" else count))
