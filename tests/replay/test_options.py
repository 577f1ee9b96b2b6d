"""What a replay can be told stands in one dataclass: both commands have its options, and no others. `lib.replay` costs
nothing until it is used, and says what to install where torch is missing."""

import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import lib.replay
from lib.files import ROOT
from lib.replay import ReplayOptions
from lib.replay.__main__ import main


def help_of_command() -> str:
    from lib.suite.cli.app import app

    return CliRunner().invoke(app, ["replay", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output


def test_both_commands_have_every_option(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main(["--help"])
    for said in (capsys.readouterr().out, help_of_command()):
        for option in fields(ReplayOptions):
            name = option.name.replace("_", "-")
            assert (f"--no-{name}" if option.metadata["kind"] is bool else f"--{name}") in said
            assert option.metadata["help"].split(",")[0][:20] in said
        for output in ("--json", "--save", "--perfetto"):
            assert output in said


def test_every_option_says_what_it_means_and_its_default_is_allowed() -> None:
    for options in (ReplayOptions(), ReplayOptions(against=("ddp",), steps=3)):
        assert ReplayOptions(**asdict(options)) == options
    for option in fields(ReplayOptions):
        assert len(option.metadata["help"]) > 5
        several = isinstance(option.default, tuple)
        assert option.default is None or several or isinstance(option.default, option.metadata["kind"])


def test_the_command_replays_with_them(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="a replay needs torch: pip install torch")
    from lib.suite.cli.app import app

    arguments = ["replay", "ddp", "--transport", "local", "--hidden", "16", "--length", "8", "--no-verify"]
    found = CliRunner().invoke(app, [*arguments, "--json", str(tmp_path / "figures.json")])
    assert found.exit_code == 0, found.output
    assert "weights 16 x 16, batches 8 x 16" in found.output
    assert "Not compared" in found.output
    assert '"hidden": 16' in (tmp_path / "figures.json").read_text()
    refused = CliRunner().invoke(app, [*arguments, "--dtype", "int8"])
    assert refused.exit_code == typer.BadParameter.exit_code
    assert "--dtype is one of float64, float32, bfloat16; got 'int8'" in refused.output
    assert CliRunner().invoke(app, [*arguments, "--steps", "0"]).exit_code == typer.BadParameter.exit_code


BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
from lib.replay import *
from lib import *
replay(simulate(lambda m: None), transport='local')
"""
INSTALL = "a replay needs torch, which is not installed: run `"


def test_it_is_imported_without_torch_and_says_what_to_install() -> None:
    ran = subprocess.run([sys.executable, "-c", BLOCKED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: {INSTALL}")
    assert last.endswith(" -m pip install torch numpy`, then try again")
    assert Path(sys.executable).name in last


def test_the_command_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from lib.suite.cli.app import app

    monkeypatch.setitem(sys.modules, "torch", None)
    ran = CliRunner().invoke(app, ["replay", "basic"])
    assert ran.exit_code == 1
    assert ran.stderr.count(INSTALL) == 1
    assert "Traceback" not in ran.output


def test_the_public_names() -> None:
    assert all(hasattr(lib.replay, name) for name in lib.replay.__all__)
    assert sorted(lib.replay.__all__) == lib.replay.__all__
