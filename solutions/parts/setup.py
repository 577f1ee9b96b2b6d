# %% cellView="form" jupyter={"source_hidden": true}
# @title Set up: run this cell first
# Installs the puzzles where they are missing, as in Colab, and does nothing elsewhere.
import importlib
import subprocess
import sys

if sys.version_info < (3, 11):
    python = sys.version.split()[0]
    raise RuntimeError(
        f"the puzzles need Python 3.11 or newer; this is Python {python}"
    )
try:
    from drawing import draw
    from lib import simulate
except ImportError:
    packages = "$requirements".split()
    install = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *packages],
        capture_output=True,
        text=True,
    )
    if install.returncode:
        raise RuntimeError(
            f"the puzzles could not be installed; pip says:\n{install.stderr}"
        ) from None
    for name in list(sys.modules):
        if name.partition(".")[0] in ("lib", "drawing"):
            del sys.modules[name]
    importlib.invalidate_caches()
    try:
        from drawing import draw
        from lib import simulate
    except ImportError as error:
        raise RuntimeError(
            f"{error}: another `lib` or `drawing` lies where this notebook does, "
            "and comes before the puzzles' own. "
            "Call it something else, or move the notebook, and restart it."
        ) from None
