# %% cellView="form" jupyter={"source_hidden": true}
# @title Set up: run this cell first
# Unpacks the puzzles, which this notebook brings along, and installs what they draw
# with. Where they are there already it does nothing.
import base64
import importlib.util
import io
import lzma
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = """
$package
"""

if sys.version_info < (3, 11):
    python = sys.version.split()[0]
    raise RuntimeError(
        f"the puzzles need Python 3.11 or newer; this is Python {python}"
    )
try:
    from drawing import draw
    from lib import simulate
except ImportError:
    folder = tempfile.mkdtemp(prefix="puzzles-")
    package = io.BytesIO(lzma.decompress(base64.b64decode(PACKAGE)))
    with zipfile.ZipFile(package) as archive:
        archive.extractall(folder)
    for name in ("lib", "drawing"):
        other = importlib.util.find_spec(name)
        place = other and pathlib.Path(
            [*(other.submodule_search_locations or ()), other.origin][0]
        )
        if place and not (place.parent / "lib" / "puzzles" / "chapters.toml").is_file():
            print(
                f"There is another `{name}` at {place}. "
                "In this notebook the name stands for the puzzles' own: "
                "to import yours, call it something else, and restart the notebook."
            )
    for name in list(sys.modules):
        if name.partition(".")[0] in ("lib", "drawing"):
            del sys.modules[name]
    sys.path.insert(0, folder)  # before the notebook's own folder
    importlib.invalidate_caches()
    if importlib.util.find_spec("chalk") is None:
        packages = "$requirements".split()
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
        install = subprocess.run(
            [*pip, "--disable-pip-version-check", *packages],
            capture_output=True,
            text=True,
        )
        if install.returncode:
            raise RuntimeError(
                "what the puzzles draw with could not be installed; "
                f"pip says:\n{install.stderr}"
            ) from None
        importlib.invalidate_caches()
