"""The kernel of a notebook in a browser: one namespace, cells in any order, and outputs as Jupyter has them.

It stands where IPython would: `drawing` registers its pictures with it, and `lib` asks it for the cells. What a cell
puts out is told to `send`, one output of nbformat 4 at a time. It knows nothing of Pyodide: tests run it in CPython.
"""

from __future__ import annotations

import ast
import gc
import io
import json
import linecache
import re
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from inspect import CO_COROUTINE
from pkgutil import walk_packages
from pprint import pformat
from types import CodeType, ModuleType, SimpleNamespace, TracebackType
from typing import Any, Final

MOST: Final = 500_000
"""Characters that a cell may print on one stream; what goes beyond is left out."""
TOGETHER: Final = 8_000
"""Characters that are sent at once: a message for each line would be slower than the line."""
CELL: Final = "/tmp/ipykernel_browser/{}.py"
"""The file that a cell is said to be in: `lib` takes what has "ipykernel" in its path for a cell of a notebook."""
NUMBER: Final = re.compile(r"/tmp/ipykernel_browser/(\d+)\.py")
COMMAND: Final = re.compile(r"\s*(?:!|%{1,2}[a-z])", re.IGNORECASE)
NO_COMMANDS: Final = "This page runs Python only: a line that begins with ! or % is a command of Jupyter's."
ABSENT: Final = "This page has no {}: it has Python's standard library, `lib` and `drawing`."
OURS: Final = ("lib", "drawing")
YOUNG: Final = 200_000
"""New objects after which the collector looks for those that nobody has while a cell runs: a look takes as long as the
check of a puzzle, so it is mostly left to `rest`."""
CONTAINERS: Final[tuple[type, ...]] = (dict, list, tuple, set, frozenset)
"""What is shown with a line for each thing in it, where one line is too long."""

Output = dict[str, Any]
Shown = Callable[[Any], Any]


class Formatter:
    """How things of some types are shown, and of what is derived from these."""

    def __init__(self) -> None:
        self._known: dict[type, Shown] = {}

    def for_type(self, kind: type, shown: Shown) -> None:
        """Register what shows things of a type."""
        self._known[kind] = shown

    def __call__(self, thing: Any) -> Any:
        """Show a thing; None where nothing is known of its type."""
        known = next((kind for kind in type(thing).__mro__ if kind in self._known), None)
        return None if known is None else self._known[known](thing)


class Stream(io.TextIOBase):
    """What a cell prints. It is sent in pieces, and not without end."""

    def __init__(self, name: str, send: Callable[[Output], None]) -> None:
        self._name, self._send = name, send
        self._room, self._waiting = MOST, ""

    def writable(self) -> bool:
        """Say yes, as print asks."""
        return True

    def write(self, text: str, /) -> int:
        """Take a text, of which what is beyond the limit is left out."""
        if self._room > 0:
            self._waiting += text[: self._room]
            self._room -= len(text)
            if self._room <= 0:
                self._waiting += f"\n... and more: of what a cell prints, {MOST:,} characters are shown\n"
            if len(self._waiting) > TOGETHER:
                self.flush()
        return len(text)

    def flush(self) -> None:
        """Send what has been written."""
        if self._waiting:
            text, self._waiting = self._waiting, ""
            self._send({"output_type": "stream", "name": self._name, "text": text})


class Kernel:
    """A notebook that runs. There is one at a time, and `import IPython` finds it."""

    colors = "nocolor"
    call_pdb = False

    def __init__(self, send: Callable[[Output], None]) -> None:
        self.send = send
        self._streams: list[Stream] = []
        self._on_error: Callable[..., Any] | None = None
        self.display_formatter = SimpleNamespace(
            mimebundle_formatter=Formatter(),
            formatters={kind: Formatter() for kind in ("text/html", "image/svg+xml")},
        )
        self.display_pub = SimpleNamespace(publish=self._publish)
        self.compile = SimpleNamespace(format_code_name=_cell_name)
        shell: Any = ModuleType("IPython")
        shell.get_ipython, shell.display = lambda: self, self.display
        within: Any = ModuleType("IPython.display")
        within.display = self.display
        sys.modules.update({"IPython": shell, "IPython.display": within})
        self.restart()

    def restart(self) -> None:
        """Begin with an empty namespace. Modules stay imported."""
        main = sys.modules["__main__"] = ModuleType("__main__")
        self.user_ns: dict[str, Any] = main.__dict__
        self.user_ns.update(In=[""], display=self.display, get_ipython=lambda: self)
        self.count = 0
        self._last: Any = None

    async def run(self, source: str) -> bool:
        """Run a cell and send its outputs. Returns whether it came to its end."""
        self.count += 1
        name = CELL.format(self.count)
        self.user_ns["In"].append(source)
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        self._streams = [Stream("stdout", self.send), Stream("stderr", self.send)]
        with redirect_stdout(self._streams[0]), redirect_stderr(self._streams[1]):
            try:
                await self._run(source, name)
            except BaseException as error:  # SystemExit, too: a page has nothing to leave for
                self._flush()
                self._show(error)
                return False
            finally:
                self._flush()
        return True

    async def _run(self, source: str, name: str) -> None:
        tree, last = ast.parse(source, name), None
        ending = tree.body[-1] if tree.body else None
        if isinstance(ending, ast.Expr) and not _silenced(source, ending):
            last = ast.Expression(ending.value)
            del tree.body[-1]
        await self._evaluate(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if last is None:
            return
        value = await self._evaluate(compile(last, name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if value is not None:
            self.user_ns["_"] = value
            data = self.bundle(value)
            self._flush()
            self.send({"output_type": "execute_result", "execution_count": self.count, "data": data, "metadata": {}})

    async def _evaluate(self, code: CodeType) -> Any:
        value = eval(code, self.user_ns)
        value = await value if code.co_flags & CO_COROUTINE else value
        named = (self.user_ns.get(name) for name in code.co_names)
        self._last = next((one for one in named if _is_run(one)), self._last)
        return value

    def rest(self) -> None:
        """Do while nobody waits what would keep somebody waiting: look for objects that nobody has, and import what the
        first check needs."""
        gc.collect()
        from lib.checker import hidden_sizes, lateness  # pyright: ignore[reportUnusedImport] # noqa: F401

    def last_run(self) -> str | None:
        """Return the run that a cell named last, as the text of a Trace file; None where there was none."""
        if self._last is None:
            return None
        from lib.trace.json_format import encode
        from lib.trace.trace import trace_of

        return json.dumps(encode(trace_of(self._last, "share")), separators=(",", ":"), ensure_ascii=False)

    # -- showing --------------------------------------------------------------------------------------------------

    def display(self, *things: Any) -> None:
        """Show things at this point of the outputs, as IPython's `display` does."""
        for thing in things:
            self._publish(self.bundle(thing))

    def bundle(self, thing: Any) -> dict[str, str]:
        """Return a thing in the formats that it has."""
        self._flush()  # what was printed is shown first: a picture takes a while
        if isinstance(known := self.display_formatter.mimebundle_formatter(thing), dict):
            return {**known}
        own = None if isinstance(thing, type) else getattr(thing, "_repr_mimebundle_", None)
        if own is not None:
            return own()
        data = {"text/plain": _plain(thing)}
        for name, kind in (("_repr_markdown_", "text/markdown"), ("_repr_html_", "text/html")):
            own = None if isinstance(thing, type) else getattr(thing, name, None)
            if own is not None and (text := own()) is not None:
                data[kind] = text
        return data

    def _publish(self, data: dict[str, str]) -> None:
        self._flush()
        self.send({"output_type": "display_data", "data": dict(data), "metadata": {}})

    def _flush(self) -> None:
        for stream in self._streams:
            stream.flush()

    # -- errors: what drawing.display asks of IPython ---------------------------------------------------------------

    def set_custom_exc(self, kinds: tuple[type[BaseException], ...], handler: Callable[..., Any]) -> None:
        """Register what shows errors of these kinds."""
        self._on_error = handler

    def showtraceback(self, exc_tuple: Any, **how: Any) -> None:
        """Send an error that is not ours to explain: the student's lines that led to it, and what Python says."""
        kind, error, tb = exc_tuple
        if isinstance(error, SyntaxError):
            said = "".join(traceback.format_exception_only(error)).rstrip("\n")
            lines = re.sub(r'  File "[^"]*", line', "  Cell, line", said).split("\n")
            if COMMAND.match(error.text or ""):
                lines.append(NO_COMMANDS)
        else:
            from drawing.display import error_text  # here and not above: it looks for a shell when it is imported

            lines = error_text(error, tb, _cell_name).split("\n")
            if isinstance(error, ModuleNotFoundError) and (error.name or "lib").partition(".")[0] not in OURS:
                lines.append(ABSENT.format(error.name))
        self._showtraceback(kind, error, lines)

    def showindentationerror(self) -> None:
        """Send the IndentationError that is being handled."""
        self.showtraceback(sys.exc_info())

    def _show(self, error: BaseException) -> None:
        if isinstance(error, Exception | KeyboardInterrupt) and self._on_error is not None:
            self._on_error(self, type(error), error, error.__traceback__)
        else:
            self.showtraceback((type(error), error, error.__traceback__))

    def _get_exc_info(self, exc_tuple: tuple[type[BaseException], BaseException, TracebackType | None]) -> Any:
        return exc_tuple

    def _showtraceback(self, kind: type[BaseException], error: BaseException, lines: list[str]) -> None:
        self.send({"output_type": "error", "ename": kind.__name__, "evalue": str(error), "traceback": lines})


def _cell_name(file: str) -> tuple[str, str] | None:
    """What a file of ours is called in a message: the cell that it stands for."""
    found = NUMBER.fullmatch(file)
    return None if found is None else ("Cell", f"In[{found[1]}]")


def _is_run(thing: Any) -> bool:
    """Check for a Trace, or the Models of a run."""
    from lib import Model, Trace

    return isinstance(thing, Trace) or (isinstance(thing, list) and thing != [] and isinstance(thing[0], Model))


def _plain(thing: Any) -> str:
    return pformat(thing, width=80, sort_dicts=False) if type(thing) in CONTAINERS else repr(thing)


def _silenced(source: str, last: ast.stmt) -> bool:
    """Check for a semicolon after a statement: its value is not to be shown."""
    line = source.encode().split(b"\n")[(last.end_lineno or 1) - 1]
    return line[last.end_col_offset or 0 :].lstrip().startswith(b";")


# -- in a page --------------------------------------------------------------------------------------------------

_kernels: list[Kernel] = []


def begin(*, with_all: bool = False) -> None:
    """Do what is the same in every page: put a stand-in where chalk is looked for, make a Kernel, and import what
    notebooks begin with; or `with_all` what any of them may import, for a memory that the browser keeps."""
    import chalk_standin  # pyright: ignore[reportMissingImports]

    chalk_standin.install()
    _kernels[:] = [Kernel(print)]
    import drawing
    import lib
    from lib import simulate  # pyright: ignore[reportUnusedImport] # noqa: F401

    for package in (lib, drawing) if with_all else ():
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            with suppress(ImportError):  # of the doors to what a page has not
                import_module(module.name)
    if with_all:
        gc.collect()
    gc.freeze()  # what was imported stays: the collector need not go through it again and again
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


def connect(tell: Callable[[str], None]) -> Kernel:
    """Return the Kernel that `begin` made, which tells its outputs as JSON from now on."""
    (kernel,) = _kernels

    def send(output: Output) -> None:
        tell(json.dumps(output))

    kernel.send = send
    return kernel
