"""Files that are written whole or not at all, and how our child processes find this package."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
"""The folder that holds the packages lib and drawing: the repository's root, or where a wheel was installed."""


def packaged(package: str, name: str) -> str:
    """Return the text of a file beside the modules of one of our packages."""
    from importlib.resources import files  # here and not above: `import lib` should be quick

    return files(package).joinpath(name).read_text("utf-8")


@cache
def table(package: str, name: str) -> dict[str, Any]:
    """Return the TOML file of that name beside the modules of one of our packages. It is read only once."""
    import tomllib  # here and not above: `import lib` should be quick

    return tomllib.loads(packaged(package, f"{name}.toml"))


def ready(path: str | Path) -> Path:
    """Make the folder of a file to be written, if it is missing. OSError where a file is in the way."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, "a file, and no folder", str(path.parent)) from None
    return path


def write_whole(path: str | Path, content: str | bytes, mode: int = 0o666) -> None:
    """Write text in UTF-8, or bytes: a file of that name is replaced at once, or left as it was. A link stays a link.

    `mode` has the permissions of the new file, less the system's umask. OSError where it cannot be written; then
    nothing is left behind.
    """
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "a folder, and no file", str(path))
    folder, name = os.path.split(target)
    # A unique name: two processes may write the same file at the same moment.
    temporary = os.path.join(folder, f".{name[:100]}.{os.urandom(6).hex()}")
    try:
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def zipped(files: Mapping[str, bytes], method: int | None = None) -> bytes:
    """Return a zip of files by their paths, compressed unless `method` says otherwise: the same bytes every time.
    Unpacked scripts are executable."""
    import zipfile  # here and not above: `import lib` should be quick
    from io import BytesIO

    held = BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.external_attr = (0o755 if data.startswith(b"#!") else 0o644) << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED if method is None else method)
    return held.getvalue()


def child_environment(path: Iterable[str] = (), **more: str) -> dict[str, str]:
    """Return the environment for a Python started by this process, which then imports this very copy of the package.

    `path` has folders to import from after the package's own, `more` has variables to add.
    """
    folders = filter(None, (str(ROOT), *path, os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(folders)), **more}
