"""`lib.replay` costs nothing until it is used, and says what to install where torch is missing."""

import subprocess
import sys
from pathlib import Path

import lib.replay

ROOT = Path(lib.replay.__file__).parents[2]
BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_importing_it_imports_no_torch() -> None:
    ran = run("import lib.replay, sys; assert not {'torch', 'numpy'} & set(sys.modules); print(lib.replay.replay)")
    assert ran.returncode == 0, ran.stderr


def test_a_missing_torch_says_what_to_install() -> None:
    ran = run(
        BLOCKED + "from lib.replay import *; from lib import *\nreplay(simulate(lambda m: None), transport='local')"
    )
    assert ran.returncode == 1
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: a replay needs torch, which is not installed: run `")
    assert last.endswith(" -m pip install torch numpy`, then try again")
    assert Path(sys.executable).name in last


def test_the_command_says_so_in_one_line() -> None:
    ran = run(BLOCKED + "from lib.suite.cli.app import app\napp(['replay', 'basic'])")
    assert ran.returncode == 1
    assert ran.stderr.count("a replay needs torch, which is not installed: run `") == 1
    assert "Traceback" not in ran.stderr


def test_the_public_names() -> None:
    assert all(hasattr(lib.replay, name) for name in lib.replay.__all__)
    assert sorted(lib.replay.__all__) == lib.replay.__all__
