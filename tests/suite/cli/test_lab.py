"""How JupyterLab is started: what it finds, and that nobody's own settings are touched."""

import json
import os
import subprocess
import sys
import sysconfig
from contextlib import closing
from pathlib import Path

import pytest

from lib.files import ready
from lib.suite.cli import app as lab
from lib.suite.submissions.locations import home, notebook_in


def test_the_command_is_found_first_and_other_settings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join(["/usr/bin", sysconfig.get_path("scripts"), "/bin"]))
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/somebody/s")
    found = lab.lab_environment()
    assert found["PATH"].split(os.pathsep) == [sysconfig.get_path("scripts"), "/usr/bin", "/bin"]
    assert found["JUPYTER_CONFIG_PATH"].split(os.pathsep) == [str(lab.CONFIG), "/somebody/s"]
    assert {**os.environ, **found} == found


def test_places_mean_the_same_in_the_folder_where_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PUZZLES_FOLDER", "mine")
    monkeypatch.setenv("PUZZLES_PROGRESS", "progress.json")
    found = lab.lab_environment()
    assert found["PUZZLES_FOLDER"] == str(tmp_path / "mine")
    assert found["PUZZLES_PROGRESS"] == str(tmp_path / "progress.json")
    monkeypatch.setenv("PUZZLES_PROGRESS", "off")
    monkeypatch.delenv("PUZZLES_FOLDER")
    assert lab.lab_environment()["PUZZLES_PROGRESS"] == "off"
    assert "PUZZLES_FOLDER" not in lab.lab_environment()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no login shells")
def test_a_terminal_is_no_login_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jupyterlab")
    monkeypatch.setenv("SHELL", "/bin/zsh")
    assert "--ServerApp.terminado_settings={'shell_command': ['/bin/zsh']}" in lab.lab_command([])
    assert lab.lab_command(["--port", "1"])[-2:] == ["--port", "1"]


@pytest.mark.thorough
def test_the_question_about_news_is_not_asked() -> None:
    pytest.importorskip("jupyterlab_server")
    code = "import json\nfrom jupyterlab_server.config import get_page_config\nprint(json.dumps(get_page_config([])))\n"
    done = subprocess.run(
        [sys.executable, "-c", code], env=lab.lab_environment(), capture_output=True, text=True, check=True
    )
    assert "@jupyterlab/apputils-extension:announcements" in json.loads(done.stdout)["disabledExtensions"]


def test_without_jupyterlab_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.extras.find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(ImportError, match=r"JupyterLab needs the extra \"notebook\""):
        lab.lab_command([])


def test_only_what_is_as_we_made_it_is_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nbformat")
    from nbformat import read
    from nbformat.sign import NotebookNotary

    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    paths = [notebook_in(tmp_path, name) for name in ("index", "ddp")]
    for path, name in zip(paths, ("index", "ddp"), strict=True):
        ready(path).write_bytes(notebook_in(home() / "puzzles", name).read_bytes())
    paths[1].write_text(paths[1].read_text("utf-8").replace("LLM", "other").replace("model", "other"), "utf-8")
    lab.trust([*paths, tmp_path / "theirs.ipynb"])
    notary = NotebookNotary()
    with closing(notary.store):
        assert [notary.check_signature(read(path, as_version=4)) for path in paths] == [True, False]
