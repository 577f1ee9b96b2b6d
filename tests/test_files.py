"""Files are written whole or not at all, and a child of ours imports this very package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lib
from lib.files import ROOT, child_environment, ready, write_whole


def test_what_is_written_is_there_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    for text in ("ü\n", "twice\r\n", ""):
        write_whole(file, text)
        assert file.read_bytes() == text.encode()
    assert os.listdir(tmp_path) == ["schedule.json"]


def test_what_cannot_be_written_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no room")

    file = tmp_path / "progress.json"
    write_whole(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "half\ud800")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no room"):
        write_whole(file, "new")
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["progress.json"]
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "missing" / "file", "new")


@pytest.mark.skipif(sys.platform == "win32", reason="links and permissions are different there")
def test_a_link_stays_a_link_and_permissions_are_those_of_a_new_file(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    write_whole(link, "through")
    assert link.is_symlink()
    assert target.read_text() == "through"
    plain = tmp_path / "plain"
    plain.write_text("")
    assert target.stat().st_mode == plain.stat().st_mode
    write_whole(target, "mine alone", 0o600)
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_name_as_long_as_a_name_can_be(tmp_path: Path) -> None:
    write_whole(tmp_path / ("n" * 255), "text")
    assert (tmp_path / ("n" * 255)).read_text() == "text"


def test_a_child_imports_this_package_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").write_text("raise RuntimeError")
    found = subprocess.run(
        [sys.executable, "-P", "-c", "import lib, os; print(lib.__file__, os.environ['MORE'])"],
        cwd=tmp_path,
        env=child_environment([str(tmp_path)], MORE="is passed on"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == f"{lib.__file__} is passed on\n"
    assert Path(lib.__file__).parents[1] == ROOT


def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    path = ready(tmp_path / "a" / "b" / "file")
    path.write_text("new")
    assert ready(path) == path
    assert path.read_text() == "new"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=f"a folder, and no file: '{tmp_path}'"):
        write_whole(tmp_path, "text")
    assert list(tmp_path.iterdir()) == []
