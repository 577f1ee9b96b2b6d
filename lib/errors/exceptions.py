"""Every error that a student or caller can meet, and how it explains itself; and `Given`, whose names cannot be set.

    AssertionError
    └── PuzzleError          the schedule a student wrote is wrong
        ├── RuleError        an operation got values that it cannot work with
        ├── ForgottenAwait   a Work was used where its result belongs
        ├── MismatchError    the members of a collective, or two ends of a message, disagree
        ├── DeadlockError    every remaining rank waits for another
        ├── RankFailed       a rank raised a Python error, so it and those waiting for it cannot go on
        ├── BudgetError      a rank recorded more events than any sensible schedule has
        ├── CheckError       the run ended, but it is not one correct training step
        ├── AbsentKey        a store holds nothing under that key (a KeyError too)
        └── NotSolved        the puzzle still holds its stub
    ValueError
    └── TraceError           a Trace file or text is damaged, or is not one of ours
        ├── NoTraceFile      there is no readable file (an OSError too)
        └── OrderFileError   a file with a pipeline's order is damaged, or is not one of ours

One more, IllegalOrder, in `lib.schedules.pipelines`, is for orders that the ranks of a pipeline cannot follow.
A PuzzleError is an AssertionError because the original's notebooks catch that. Misuse of the library (a negative number
of ranks, a mesh of the wrong size) is a plain ValueError.
"""

import copyreg
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, NamedTuple, ParamSpec, Self, cast, overload

from lib.errors import fixes
from lib.errors.source_lines import Place, innermost, raised_at, resolve, student_frame, student_place
from lib.errors.wording import shown, these

__all__ = ["AbsentKey", "BudgetError", "CheckError", "DeadlockError", "Fact", "ForgottenAwait", "Given"]
__all__ += ["MismatchError", "NoTraceFile", "NotSolved", "OrderFileError", "PuzzleError", "RankFailed", "RuleError"]
__all__ += ["TraceError", "Words", "fact", "forgotten_await", "put_await", "used_before_await", "words_in"]

P = ParamSpec("P")
MOST_KEYS = 12
"""The most keys of a store that a message lists."""
ASYNC, GENERATOR = 0x80 | 0x200, 0x20
"""Flags of code: inspect.CO_COROUTINE | CO_ASYNC_GENERATOR, and CO_GENERATOR, without importing inspect."""


class Words(NamedTuple):
    """A message in its four parts."""

    what: str
    expected: str | None = None
    got: str | None = None
    fix: str | None = None


def words_in(table: Mapping[str, Any], rule: str, *cases: str, **parts: object) -> Words:
    """Return the words of a rule from a table, with the parts filled in. The named cases replace some of the words; ""
    is not a case."""
    said: dict[str, Any] = {**table[rule]}
    for case in filter(None, cases):
        said |= said[case]
    # Any other line of the rule is a part for these, and may have parts itself.
    more = {name: said[name] for name in said.keys() - Words._fields}
    parts |= {name: text.format(**parts) for name, text in more.items() if isinstance(text, str)}
    return Words(**{field: said[field].format(**parts) for field in Words._fields if field in said})


class Fact:
    """A broken rule, as data: the values that it is about. Each rule has its kind of fact; see `fact`.

    An error is raised with a fact, and asks it for words only when the error is read.
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()
    if TYPE_CHECKING:

        def told(self, program: Any) -> Iterator[Any]: ...
        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, *values: Any, **named: Any) -> None:
        vars(self).update(zip(self.__match_args__, values, strict=False), **named)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={item!r}' for name, item in vars(self).items())})"

    def words(self) -> Words:
        """Return the words of the rule. Raises NotImplementedError for a fact whose error brings words of its own."""
        if (words := next(self.told(None))) is None:
            raise NotImplementedError(f"{type(self).__name__} is told by the error that has it")
        return words

    def likely_fix(self, program: Any) -> Any:
        """Return the first fix that the rank's program, or the values, suggest; None if they suggest none."""
        return next((found for found in islice(self.told(program), 1, None) if found is not None), None)


@overload
def fact(tell: Callable[P, Words]) -> Callable[P, Fact]: ...
@overload
def fact(tell: Callable[Concatenate[Any, P], Iterator[Any]]) -> Callable[P, Fact]: ...
def fact(tell: Any) -> Any:
    """Turn a function with the words of a rule into its kind of fact: the parameters are the fields. A generator does
    more: after the words it yields what to do about likely causes in the rank's program, its first parameter.

    >>> @fact
    ... def NoBatch(ranks: int, batch: int) -> Iterator[Words | str]:
    ...     yield Words(f"there is no batch {batch}")
    ...     if batch < ranks:
    ...         yield "the number of a rank is not its batch"
    >>> NoBatch(7).words().what, NoBatch(7).batch, NoBatch(7) == NoBatch(7), NoBatch(7).likely_fix(8)
    ('there is no batch 7', 7, True, 'the number of a rank is not its batch')
    """
    searches = bool(tell.__code__.co_flags & GENERATOR)

    def told(self: Fact, program: Any) -> Iterator[Any]:
        return tell(program, **vars(self)) if searches else iter([tell(**vars(self))])

    fields = tell.__code__.co_varnames[searches : tell.__code__.co_argcount]
    # Copying and pickling find the kind of fact through its module.
    space = {"told": told, "__doc__": tell.__doc__, "__match_args__": fields, "__module__": tell.__module__}
    return type(tell.__name__, (Fact,), space)


class PuzzleError(AssertionError):
    """A student's mistake. `what` happened, what was `expected`, what was `got`, and the likely `fix`; or a `fact`
    that says all of this, and has the values concerned. If the fix is the very line that a puzzle asks for, the message
    has the `idea` instead, and `fix()` shows the line.

    `rank` and `where` (a Place, or several with the rank each belongs to) are added if they are known. `trace` is the
    Trace up to the failure, if a run had begun, and `shown` is how a wrong answer looks; after `import drawing`
    notebooks show them below the message.
    """

    what: str
    expected: str | None
    got: str | None
    fix: str | None
    fix_first = False
    """Whether the message begins with the fix, as the rest may be long."""

    def __init__(
        self,
        what: str | Fact,
        *,
        expected: str | None = None,
        got: str | None = None,
        fix: str | None = None,
        rank: int | None = None,
        where: Sequence[tuple[int | None, Place]] | Place | None = None,
        idea: str | None = None,
    ) -> None:
        super().__init__(what)
        self.fact = what if isinstance(what, Fact) else None
        self.idea = idea
        self.advised = False
        """Whether the ranks' programs have been searched for the likely reason already."""
        if not isinstance(what, Fact):
            self.what, self.expected, self.got, self.fix = what, expected, got, fix
        self.rank = rank
        self.where: list[tuple[int | None, Place]] = [(None, where)] if isinstance(where, Place) else list(where or ())
        self.named: str | None = None
        """What to call the rank if it has a place in a mesh: "rank 6 (data 1, stage 2)"."""
        self.time: int | None = None
        """When it happened, in ticks, if its rank's clock does not say."""
        self.trace: Any = None
        self.shown: Any = None
        self.before: str | None = None
        """A line before the message, if it is about a run other than the one on the page."""

    def words(self) -> Words:
        """Return the four parts of the message."""
        return Words(self.what, self.expected, self.got, self.fix)

    def __getattr__(self, name: str) -> Any:
        """Make the words of a fact on first use, so that raising is cheap."""
        if name not in Words._fields or self.fact is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        for field, text in self.fact.words()._asdict().items():
            self.__dict__.setdefault(field, text)  # words that are set already, such as a better fix, stay
        return self.__dict__[name]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle it as it is: its kind may be made from other arguments than its words."""
        return cast(Any, copyreg).__newobj__, (type(self), *self.args), self.__dict__

    def at(self, rank: int) -> Self:
        """Add the rank and the line of the student's code, unless they are known already."""
        if self.rank is None:
            self.rank = rank
        return self.here()

    def here(self) -> Self:
        """Add the line of the student's code, unless it is known already."""
        if not self.where and (found := student_place()) is not None:
            self.where.append((None, found))
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.what!r})"

    def __str__(self) -> str:
        lines = [self.what if self.rank is None else f"{self.named or f'rank {self.rank}'}: {self.what}"]
        lines += _field("expected:", self.expected) + _field("got:", self.got)
        places: dict[Place, list[int | None]] = {}
        for rank, found in self.where:
            places.setdefault(found, []).append(rank)
        for found, ranks in places.items():
            known = [rank for rank in ranks if rank is not None]
            lines += _field(these("rank", known) + ":" if known else "where:", str(found))
        fix = _field("fix:", self.fix if self.idea is None or fixes.are_shown() else f"{self.idea}\n{fixes.HOW}")
        said = [lines[0], *fix, *lines[1:]] if self.fix_first else lines + fix
        return "\n".join(said if self.before is None else [self.before, *said])


def _field(name: str, text: str | None) -> list[str]:
    """Return a part of a message under its name. Its other lines are aligned with the first, indented before or not."""
    if text is None:
        return []
    first, *rest = text.splitlines() or [""]
    return [f"  {name:<9} {first}", *(" " * 12 + line.removeprefix(" " * 12) for line in rest)]


class RuleError(PuzzleError):
    """An operation got values that it cannot work with."""


class ForgottenAwait(PuzzleError, AttributeError):
    """A Work was used where its result belongs. An AttributeError too, so that hasattr() answers no."""


class MismatchError(PuzzleError):
    """The members of a collective, or the two ends of a message, do not agree. `ranks` are the two."""

    ranks: tuple[int, ...] = ()


class DeadlockError(PuzzleError):
    """Every rank that has not finished waits for another, and none of them can go on."""

    fix_first = True


class RankFailed(PuzzleError):
    """Another rank raised an error, so what this rank waits for can never happen."""


class BudgetError(PuzzleError):
    """A rank recorded more events than its budget: nearly always a loop that does not end."""


class CheckError(PuzzleError):
    """The run ended, but what it computed is not one correct training step."""


class NotSolved(PuzzleError):
    """The puzzle still holds its stub."""

    def __init__(self, puzzle: str) -> None:
        super().__init__(
            f"{puzzle} is not solved yet",
            expected="your code in place of the line that raises NotSolved",
            fix="read the text above the cell, replace that line, and run the cell again",
        )
        self.puzzle = puzzle

    def untouched(self) -> bool:
        """Tell whether the line that raises it is still alone in its gap, so that only given code ran before."""
        found = innermost(self)
        here = None if found is None else resolve(found[0].f_code, found[1])
        if found is None or here is None:
            return False
        from linecache import getline  # here and not above: with `tokenize` it is 2 ms of each start

        before, after = (getline(found[0].f_code.co_filename, here.line + step).strip() for step in (-1, 1))
        return before.startswith("# --- your code") and after.startswith("# --- end of your code")

    def left_over(self) -> None:
        """Say instead that the student's code is there, and that this line ends it."""
        self.what = f"{self.puzzle} still raises NotSolved, after your code has run"
        self.expected, self.got = "a function that runs to its end", None
        if (found := raised_at(self)) is not None:
            self.where = [(None, found)]
            self.fix = f"delete line {found.line}"


class AbsentKey(PuzzleError, KeyError):
    """Nothing is stored under a key; `held` are the keys that the store does have. A KeyError too."""

    def __init__(
        self, what: str, *, held: Sequence[Any], rank: int, expected: str | None = None, fix: str | None = None
    ) -> None:
        self.held = held
        keys = ", ".join(f"[{shown(key)}]" for key in held[:MOST_KEYS]) + (", ..." if len(held) > MOST_KEYS else "")
        got = f"the store holds {keys}" if held else "the store holds nothing"
        super().__init__(what, expected=expected, got=got, rank=rank, fix=fix)


class TraceError(ValueError):
    """A Trace file or text that is damaged, truncated, too large, or not a Trace at all."""


class NoTraceFile(TraceError, OSError):
    """The file with a Trace does not exist, or cannot be read."""


class OrderFileError(TraceError):
    """A file with a pipeline's order that is damaged, too large, or not one of ours."""


# -- a forgotten `await`, with the student's own line and the `await` put in -----------------------------------------


def forgotten_await(what: str, expected: str, thing: object) -> ForgottenAwait:
    """Return the error for an awaitable in a value's place. It shows the call that made it, with the `await` put in.

    Closes a coroutine, so that Python does not complain as well that it was never awaited.
    """
    code: CodeType | None = getattr(thing, "cr_code", None)
    frame = student_frame()
    here = where = None if frame is None else resolve(frame.f_code, frame.f_lasti)
    call, since, got = "", False, "something that has to be awaited"
    if code is not None:
        cast(Any, thing).close()
        call, got = code.co_name, f"a call of the async function {code.co_name}, not awaited yet"
        # It may have been passed to a helper of the student's: then the call is in a line further out.
        while frame is not None and here is not None and f"{call}(" not in here.text:
            frame = None if frame.f_back is None else student_frame(frame.f_back)
            here = None if frame is None else resolve(frame.f_code, frame.f_lasti)
        where = here
    elif (issued := getattr(type(thing), "issued", None)) is not None:
        call, where, since = issued(thing)
        got = f"a call of model.{call}, not awaited yet"
    fix = put_await(call, where)
    fix += ",\nor keep the call in a variable or list and await it later" * bool(call and not code and here == where)
    if where is not None and here is not None and where.line != here.line:
        use = f"put `await` where the result is used, in line {here.line}: other work has run since the call"
        fix = use if since else f"{fix}\nor put `await` where the result is used, if other work should run meanwhile"
        if frame is not None and frame.f_code.co_flags & ASYNC and where.function != here.function:
            fix = f"await it first: {where.function}, in line {where.line}, only starts it"
        elif where.text and f"{call}(" not in where.text:  # a given helper has started it
            fix = f"await it first: line {where.line} only starts it, {where.text}"
    if frame is not None and frame.f_code.co_name[:1] != "<" and not frame.f_code.co_flags & ASYNC:
        fix += f"\nand `async` before the function: async def {frame.f_code.co_name}(...)"
    return ForgottenAwait(what, expected=expected, got=got, fix=fix)


def used_before_await(name: str, call: str, where: Place | None) -> ForgottenAwait:
    """Return the error for the Work of a call that was used like its result: for an attribute, or as a value."""
    fix = f"await it first, on a line of its own: result = await model.{call}(...)"
    if where is not None and (here := student_place()) is not None and where.line != here.line:
        fix = f"{put_await(call, where)}\nor await it first, where it is used: result = await work"
    what = f"`.{name}` was asked of a call that was not awaited"
    what = "a call that was not awaited was used as a value" if name == "a value" else what
    got = f"a call of model.{call}, not awaited yet"
    return ForgottenAwait(what, expected=f"the result of model.{call}", got=got, fix=fix)


def put_await(call: str, where: Place | None) -> str:
    """Return advice that shows the line of a call with `await` put in."""
    if where is None or not call:
        return "put `await` in front of the call" + (f" of {call}" if call else "")
    corrected = re.sub(rf"(?<![\w.])(?<!await )((?:\w+\.)*{call}\()", r"await \1", where.text)
    return f"put `await` in front of the call in line {where.line}" + f": {corrected}" * (corrected != where.text)


class Given:
    """An object with read-only names, which only its __init__ sets.

    `given` says what each is, and what to do instead of setting it. Once the first is set (as the last), all are fixed.
    """

    __slots__ = ()
    given: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def __setattr__(self, name: str, value: object) -> None:
        made = name in self.given and hasattr(self, next(iter(self.given)))
        # `model.weights |= {...}` changes the store, then assigns it to itself.
        if made and not (isinstance(value, dict) and getattr(self, name, None) is value):
            raise self._fixed(name, "set")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.given:
            raise self._fixed(name, "deleted")
        object.__delattr__(self, name)

    def _fixed(self, name: str, done: str) -> PuzzleError:
        what, instead = self.given[name]
        said = f"{type(self).__name__.lower()}.{name} cannot be {done}: it is {what}"
        return RuleError(said, expected="a name that is only read", fix=instead).here()
