"""Kernels that are copies of a warm process: they put out what others do, and know nothing of each other."""

import os
from pathlib import Path
from typing import Any

import pytest

from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import Notebook
from tools.notebooks import kernels

MISSING = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""
"""Hides torch, as if nobody had installed it."""
SHOWN = (
    "import os, sys, __main__\nx = sys.modules['__main__'].__dict__ is globals(), os.getcwd() == sys.path[0]\nx",
    "sorted(name for name in globals() if not name.startswith('_')), sys.argv[0].endswith('ipynb'), sys.stdin.read(1)",
    "[name for name in sorted(sys.modules) if name in ('lib', 'drawing', '__main__')], __name__",
    "from lib import *\ntrace = Trace.of(simulate(lambda model: None, ranks=1, layers=1, batches=1))\ntrace.end",
    "from drawing import draw\ndraw(trace)",
    "check(trace)",
    "simulate(lambda model: model.forwards(0), ranks=1)",
    f"{MISSING}\nfrom lib.replay import replay\nreplay(trace)",
)
SETS = (
    "import lib, os, sys\nmine = lib.mine = 'mine'\nos.environ['MINE'] = mine\nsys.path.append(mine)\nimport drawing",
    "import colorsys\ncolorsys.rgb_to_hls = None",
)
ASKS = (
    "import colorsys, lib, os, sys",
    "'mine' in globals(), hasattr(lib, 'mine'), 'MINE' in os.environ, 'mine' in sys.path, 'drawing' in sys.modules",
    "callable(colorsys.rgb_to_hls)",
)


def notebook(*sources: str) -> Notebook:
    cells = [
        {"cell_type": "code", "id": f"c{number}", "source": source, "outputs": [], "execution_count": None}
        | {"metadata": {"tags": ["raises-exception"]}}
        for number, source in enumerate(sources)
    ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def outputs(folder: Path, *sources: str) -> list[list[Any]]:
    (ran,) = kernels.execute({folder / "one.ipynb": notebook(*sources)}, warm=True)
    assert not isinstance(ran, BuildError), ran
    return [cell["outputs"] for cell in ran["cells"]]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    return outputs(tmp_path_factory.mktemp("shown"), *SHOWN)


def test_a_warm_kernel_puts_out_what_one_that_is_started_anew_does(
    shown: list[list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is what there is where a process cannot be copied."""
    monkeypatch.setattr(kernels, "COPIES", False)
    monkeypatch.setattr(kernels, "_warm_process", None)
    assert outputs(tmp_path, *SHOWN) == shown
    assert "<svg" in shown[4][0]["data"]["text/html"]


def test_a_missing_torch_is_one_line_that_says_what_to_type(shown: list[list[Any]]) -> None:
    ((error,),) = shown[-1:]
    assert error["evalue"].startswith("a replay needs torch, which is not installed: run `%pip install torch numpy` in")
    lines = "\n".join(error["traceback"]).splitlines()
    assert [error["evalue"] in line for line in lines].count(True) == 1
    assert len(lines) == 3  # with the student's own line


@pytest.mark.skipif(not kernels.COPIES, reason="here a process cannot be copied, so there are no warm kernels")
def test_nothing_of_one_notebook_comes_into_the_next(tmp_path: Path) -> None:
    assert outputs(tmp_path, *SETS)[1] == []
    _, known, usable = outputs(tmp_path, *ASKS)
    assert known[0]["data"]["text/plain"] == str((False,) * 5)
    assert usable[0]["data"]["text/plain"] == "True"


def test_a_kernel_that_dies_is_noticed(tmp_path: Path) -> None:
    (died,) = kernels.execute({tmp_path / "one.ipynb": notebook("import os\nos._exit(1)")}, warm=True)
    assert str(died) == "one.ipynb: its kernel died"


@pytest.mark.skipif(not kernels.COPIES, reason="here a process cannot be copied, so there are no warm kernels")
def test_a_kernel_is_gone_when_its_notebook_has_been_run(tmp_path: Path) -> None:
    (text,) = outputs(tmp_path, "import os\nos.getpid()")
    with pytest.raises(ProcessLookupError):
        os.kill(int(text[0]["data"]["text/plain"]), 0)
