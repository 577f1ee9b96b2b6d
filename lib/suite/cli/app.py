"""The `puzzles` command: the module of each command, and the commands that make notebooks and open them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from lib.errors.exceptions import NotSolved
from lib.extras import need_extra
from lib.puzzles.records import PUZZLES
from lib.suite.cli.console import SHORT, argument, console, fail, option, say
from lib.suite.submissions.locations import home, is_checkout, named, notebook_in, notebooks_below

MODULES: Final = {
    "learner": "list goal hint reveal watch",
    "runs": "run fix check draw review why what-if replay demo",
    "compare": "compare gallery",
    "grading.command": "grade",
    "pipelines": "schedule profile",
    "plan": "plan predictions calibrate",
    "app": "build export lab",
}
"""The commands of each module, in the order of the help. Their functions have the same names, plus an underscore if
that name is taken."""
HOMES: Final = {name: module for module, names in MODULES.items() for name in names.split()}
NAMES: Final = "Puzzles, `introduction`, or notebooks (.ipynb); else all."
PASSES_ON: Final = {"allow_extra_args": True, "ignore_unknown_options": True}


def _process(parameter: Any, convert: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """Pass text, paths and defaults unchanged: typer converts every value with pydantic, even None, and importing that
    takes a third of a short command."""
    described: Any = getattr(parameter, "type_descriptor", None)
    kind = described and described.annotation
    is_text = isinstance(value, str) if kind is str else bool(value) and kind == list[str]
    is_path = kind is Path and isinstance(value, str) and not described.parameter_info.exists
    is_default = kind is not None and not parameter.required and value == parameter.get_default(ctx)
    if not (is_text or is_path or is_default):  # or an unknown version of typer
        return convert(ctx, value)
    value = Path(value) if is_path else value
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


class _Quick:
    def get_params(self, ctx: Any) -> list[Any]:
        parameters = cast(Any, super()).get_params(ctx)
        for parameter in parameters:
            if "process_value" not in vars(parameter):
                parameter.process_value = partial(_process, parameter, parameter.process_value)
        return parameters


class QuickCommand(_Quick, TyperCommand):
    """A command of ours."""


class Door(_Quick, TyperGroup):
    """Finds commands in their modules, and shows users' errors in a panel, without a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(HOMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, importing only its module and building only its options.

        Each paragraph of its help becomes one line: the terminal is not as wide as the source.
        """
        for name in (cmd_name,) if cmd_name in HOMES else HOMES:  # all for an unknown name: one of them may be meant
            if name not in self.commands:
                home, function = import_module(f"lib.suite.cli.{HOMES[name]}"), name.replace("-", "_")
                found: Any = getattr(home, f"{function}_", None) or getattr(home, function)
                group = found if isinstance(found, typer.Typer) else typer.Typer(add_completion=False)
                if group is not found:
                    group.command(name, cls=QuickCommand, context_settings=PASSES_ON if name == "lab" else None)(found)
                self.commands[name] = typer.main.get_command(group)
        found = super().get_command(ctx, cmd_name)
        if found is not None and found.help:
            found.help = "\n\n".join(" ".join(part.split()) for part in found.help.split("\n\n"))
        return found

    def invoke(self, ctx: Any) -> Any:
        """Run a command; exit status 1 for a stub, a failed run, an unusable file, or a missing extra."""
        try:
            return super().invoke(ctx)
        except NotSolved as error:
            print(error)
            raise typer.Exit(1) from None
        except BrokenPipeError:
            raise  # the reader, such as `head`, has seen enough: click ends quietly
        except Exception as error:
            if not isinstance(error, ImportError | OSError) and not type(error).__module__.startswith("lib."):
                raise  # a bug of ours, not an error meant for the user
            fail(str(error))


app = typer.Typer(cls=Door, context_settings=SHORT, add_completion=False, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def puzzles(context: typer.Context) -> None:
    """Puzzles about training a large language model on many accelerators. Alone it says how far you are."""
    if context.invoked_subcommand is None:
        from lib.suite.cli.learner import status

        status()


def build(
    check: Annotated[bool, option("Write nothing; fail where one is not current.", "--check")] = False,
    force: Annotated[bool, option("Overwrite notebooks that somebody has worked in.", "--force")] = False,
) -> None:
    """Make the notebooks in puzzles/ and solutions/ from their sources, and remove those of an old number."""
    if not is_checkout():
        fail("Notebooks are built in a checkout of the repository; this is an installed copy.")
    from tools.notebooks.commands import build as build_notebooks  # no part of the package

    build_notebooks(home(), check=check, force=force)


def export(
    names: Annotated[list[str] | None, argument("[NAME]...", NAMES)] = None,
    colab: Annotated[bool, option("As notebooks that carry the package inside.", "--colab")] = False,
    nbgrader: Annotated[bool, option("As an assignment of nbgrader.", "--nbgrader")] = False,
    gradescope: Annotated[bool, option("An autograder for Gradescope, a zip.", "--gradescope")] = False,
    browser: Annotated[
        Path | None, option("As web pages with Python in them, into this folder (needs node).", metavar="FOLDER")
    ] = None,
    text: Annotated[Path | None, option("Markdown for the first of these pages, above the list of notebooks.")] = None,
    config: Annotated[Path | None, option("What Gradescope asks: as in `puzzles grade`.")] = None,
    output: Annotated[
        Path | None, option("A folder; with --colab also one .ipynb for all.", "--output", "-o", show_default=False)
    ] = None,
    assignment: Annotated[str, option("What nbgrader calls the assignment.")] = "puzzles",
    need: Annotated[str, option("The goal that nbgrader gives points for: as in `puzzles grade`.")] = "first",
    hidden: Annotated[int | None, option("So many hidden sizes, for nbgrader.")] = None,
    seed: Annotated[str | None, option("What they are drawn from.")] = None,
) -> None:
    """Write notebooks for elsewhere: to mail, or to open in Colab; or for nbgrader, with our answers and tests;
    or the autograder that Gradescope runs; or as pages for a browser, in which nothing is installed."""
    from lib.suite.cli.grading.command import autograder
    from lib.suite.course.exports import chosen, export_colab, export_nbgrader
    from lib.suite.grade.assignment import AssignmentError, Config

    if colab + nbgrader + gradescope + (browser is not None) != 1:
        raise typer.BadParameter("say what to export to: --colab, --nbgrader, --gradescope or --browser FOLDER")
    if browser is not None:
        if not is_checkout():
            fail("Pages are made in a checkout of the repository; this is an installed copy.")
        from tools.browser.build import build as build_pages  # no part of the package

        with console().status("Compiling Python and the pages"):
            files = build_pages(browser, names or [], text)
        size = sum(path.stat().st_size for path in files) / 1e6
        return say(f"Wrote {browser}: {len(files)} files, {size:.1f} MB")
    try:
        if gradescope:
            written = [autograder(names or [], config, output or Path("autograder.zip"))]
        elif nbgrader:
            asked = [name for name in names or PUZZLES if name in PUZZLES]
            rules: dict[str, Any] = {"need": need, "hidden": hidden, "seed": seed}
            Config().with_options(puzzles=asked, **rules).assignment()
            written = export_nbgrader(chosen(names or [*PUZZLES]), output or Path("nbgrader"), assignment, **rules)
        else:
            written = export_colab(chosen(names or []), output or Path("colab"))
    except AssignmentError as error:  # impossible requirements
        fail(str(error), status=2)
    except FileNotFoundError:
        if not gradescope:
            raise
        fail(f"there is no file {config}", status=2)
    for path in written:
        say(f"Wrote {path} ({path.stat().st_size / 1000:,.0f} kB)")


def lab(context: typer.Context) -> None:
    """Open the puzzles in JupyterLab; what else you say is passed on to it."""
    from lib.suite.cli.learner import workplace

    command, environment = lab_command(context.args), lab_environment()
    folder = workplace()
    trust(notebooks_below(folder))
    if os.name == "posix":  # it replaces this program, so that only it gets Ctrl-C
        os.chdir(folder)
        os.execve(command[0], command, environment)
    raise typer.Exit(subprocess.call(command, cwd=folder, env=environment))


# -- JupyterLab -----------------------------------------------------------------------------------------------------

# It opens at the map, has the `puzzles` command on its path, and shows no news. Variables and options set this for this
# JupyterLab only: the user's own settings stay unchanged.

CONFIG = Path(__file__).with_name("lab_config")
"""JupyterLab's settings without an option: don't ask whether to show news."""


def lab_command(options: Sequence[str]) -> list[str]:
    """Return the command that opens JupyterLab in the current folder, with the user's options after ours.

    ImportError without JupyterLab.
    """
    need_extra("notebook", "JupyterLab needs", "jupyterlab")
    ours = ["--LabApp.default_url=/lab/tree/00_index.ipynb"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        ours.append("--allow-root")
    if os.name != "nt":
        # By default it may start a login shell, which resets PATH and would not find our command.
        shell = os.environ.get("SHELL") or shutil.which("sh") or "/bin/sh"
        ours.append(f"--ServerApp.terminado_settings={{'shell_command': [{shell!r}]}}")
    return [sys.executable, "-m", "jupyterlab", *ours, *options]


def lab_environment() -> dict[str, str]:
    """Return the variables for JupyterLab, which its terminals and kernels inherit: they start in another folder."""
    scripts = sysconfig.get_path("scripts")
    path = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder != scripts]
    config = [str(CONFIG), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    # These may be paths relative to the current folder.
    told = {name: os.environ.get(name, "") for name in ("PUZZLES_FOLDER", "PUZZLES_PROGRESS")}
    places = {name: os.path.abspath(place) for name, place in told.items() if place and place.lower() != "off"}
    ours = {"PATH": os.pathsep.join([scripts, *path]), "JUPYTER_CONFIG_PATH": os.pathsep.join(config)}
    return {**os.environ, **places, **ours}


def trust(notebooks: Iterable[Path]) -> None:
    """Sign the unchanged ones, as `jupyter trust` does, so that their pictures are shown at once.

    If signing fails, pictures appear when the cells are run; nothing else is lost.
    """
    import nbformat
    from nbformat.sign import NotebookNotary

    try:
        notary = cast(Any, NotebookNotary)()
        with closing(notary.store):
            for path in notebooks:
                original = notebook_in(home() / "puzzles", name) if (name := named(path)) is not None else path
                if path != original and original.is_file() and original.read_bytes() == path.read_bytes():
                    notary.sign(cast(Any, nbformat).read(path, as_version=4))
    except OSError as error:
        print(f"Note: the pictures in the notebooks appear when you run them, as Jupyter's signatures fail: {error}")
