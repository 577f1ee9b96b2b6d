"""Every error that a student or a caller can meet, and how it explains itself; and `Given`, whose names cannot be set.

    AssertionError
    └── PuzzleError          the schedule a student wrote is wrong
        ├── RuleError        an operation got values that it cannot work with
        ├── ForgottenAwait   a Work was used where its result belongs
        ├── MismatchError    the members of a collective, or two ends of a message, disagree
        ├── DeadlockError    every rank that is left waits for another
        ├── RankFailed       a rank raised an error of Python's, so it and those who wait for it cannot go on
        ├── BudgetError      a rank recorded more events than any sensible schedule has
        ├── CheckError       the run ended, but it is not one correct training step
        ├── AbsentKey        a store holds nothing under that key (a KeyError too)
        └── NotSolved        the puzzle still holds its stub
    ValueError
    └── TraceError           a Trace file or text is damaged, or is not one of ours
        ├── NoTraceFile      there is no file to read there (an OSError too)
        └── OrderFileError   a file of a pipeline's order is damaged, or is not one of ours

Of an order that the ranks of a pipeline cannot follow there is one more, IllegalOrder, in `lib.schedules.pipelines`.
A PuzzleError is an AssertionError because the notebooks of the original catch that. Misuse of the library (a
negative number of ranks, a mesh of the wrong size) is a plain ValueError.
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
"""Keys of a store that a message lists."""
ASYNC, GENERATOR = 0x80 | 0x200, 0x20
"""Flags of code: inspect.CO_COROUTINE | CO_ASYNC_GENERATOR, and CO_GENERATOR, without importing inspect."""


class Words(NamedTuple):
    """A message in its four parts."""

    what: str
    expected: str | None = None
    got: str | None = None
    fix: str | None = None


def words_in(table: Mapping[str, Any], rule: str, *cases: str, **parts: object) -> Words:
    """Return the words of a rule, which are in a table, with its parts filled in. Of its cases those that are named say
    some of them otherwise; "" is none."""
    said: dict[str, Any] = {**table[rule]}
    for case in filter(None, cases):
        said |= said[case]
    # A further line of the table is a part of the others, and may have parts itself.
    more = {name: said[name] for name in said.keys() - Words._fields}
    parts |= {name: text.format(**parts) for name, text in more.items() if isinstance(text, str)}
    return Words(**{field: said[field].format(**parts) for field in Words._fields if field in said})


class Fact:
    """A broken rule, as data: the values that it is about. There is a kind of fact for each rule; see `fact`.

    An error is raised with a fact, and asks it for words when somebody reads the error.
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
        """Return the words of the rule. NotImplementedError where the error that has the fact has its own."""
        if (words := next(self.told(None))) is None:
            raise NotImplementedError(f"{type(self).__name__} is told by the error that has it")
        return words

    def likely_fix(self, program: Any) -> Any:
        """Return the first thing to do that the program of the rank, or the values, tell; None where nothing does."""
        return next((found for found in islice(self.told(program), 1, None) if found is not None), None)


@overload
def fact(tell: Callable[P, Words]) -> Callable[P, Fact]: ...
@overload
def fact(tell: Callable[Concatenate[Any, P], Iterator[Any]]) -> Callable[P, Fact]: ...
def fact(tell: Any) -> Any:
    """Make the words of a rule into its kind of fact: the parameters are the fields. A generator tells more: after the
    words it looks for the likely reason in the program of the rank, its first parameter, and yields what to do.

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
    # Its module is where a fact that is copied or pickled is found.
    space = {"told": told, "__doc__": tell.__doc__, "__match_args__": fields, "__module__": tell.__module__}
    return type(tell.__name__, (Fact,), space)


class PuzzleError(AssertionError):
    """A student's mistake. `what` happened, what was `expected`, what was `got`, and the likely `fix`; or a `fact`
    that says all of this, and knows the values that it happened to. Where the fix is the very line that a puzzle asks
    for, the message has the `idea` in its place, and `fix()` shows the line.

    `rank` and `where` (a Place, or several with the rank each belongs to) are added where they are known. `trace` is
    the Trace up to the failure, where a run had begun, and `shown` what a wrong answer looks like; `import drawing`
    makes notebooks show them below the message.
    """

    what: str
    expected: str | None
    got: str | None
    fix: str | None
    fix_first = False
    """Whether the message says how to fix it before all else, as what follows may be long."""

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
        """Whether the programs of the ranks have been searched for the likely reason already."""
        if not isinstance(what, Fact):
            self.what, self.expected, self.got, self.fix = what, expected, got, fix
        self.rank = rank
        self.where: list[tuple[int | None, Place]] = [(None, where)] if isinstance(where, Place) else list(where or ())
        self.named: str | None = None
        """What to call the rank, where it has a place in a mesh: "rank 6 (data 1, stage 2)"."""
        self.time: int | None = None
        """When it happened, in ticks, where that is not said by the clock of its rank."""
        self.trace: Any = None
        self.shown: Any = None
        self.before: str | None = None
        """A line before the message, where it is about another run than the one that somebody looks at."""

    def words(self) -> Words:
        """Return the four parts of the message."""
        return Words(self.what, self.expected, self.got, self.fix)

    def __getattr__(self, name: str) -> Any:
        """The words of a fact are made when the first of them is asked for: raising one is cheap."""
        if name not in Words._fields or self.fact is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        for field, text in self.fact.words()._asdict().items():
            self.__dict__.setdefault(field, text)  # what somebody has said already, such as a better fix, stands
        return self.__dict__[name]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as it is: its kind may be made from something else than what it says."""
        return cast(Any, copyreg).__newobj__, (type(self), *self.args), self.__dict__

    def at(self, rank: int) -> Self:
        """Says which rank it was and which line of the student's code, unless that is known already."""
        if self.rank is None:
            self.rank = rank
        return self.here()

    def here(self) -> Self:
        """Says which line of the student's code it was, unless that is known already."""
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
    """A part of a message under its name. Further lines stand below the first, whether they were moved there or not."""
    if text is None:
        return []
    first, *rest = text.splitlines() or [""]
    return [f"  {name:<9} {first}", *(" " * 12 + line.removeprefix(" " * 12) for line in rest)]


class RuleError(PuzzleError):
    """An operation got values that it cannot work with."""


class ForgottenAwait(PuzzleError, AttributeError):
    """A Work was used where its result belongs. An AttributeError too, so that hasattr() answers no."""


class MismatchError(PuzzleError):
    """The members of a collective, or the two ends of a message, do not agree. `ranks` names the two."""

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
        """Tell whether the line that raises it is still alone in its gap: what ran before it was given."""
        found = innermost(self)
        here = None if found is None else resolve(found[0].f_code, found[1])
        if found is None or here is None:
            return False
        from linecache import getline  # here and not above: with `tokenize` it is 2 ms of each start

        before, after = (getline(found[0].f_code.co_filename, here.line + step).strip() for step in (-1, 1))
        return before.startswith("# --- your code") and after.startswith("# --- end of your code")

    def left_over(self) -> None:
        """Tells instead that there is code already, and that it is this line that ends it."""
        self.what = f"{self.puzzle} still raises NotSolved, after your code has run"
        self.expected, self.got = "a function that runs to its end", None
        if (found := raised_at(self)) is not None:
            self.where = [(None, found)]
            self.fix = f"delete line {found.line}"


class AbsentKey(PuzzleError, KeyError):
    """Nothing is stored under a key. A KeyError too, and says what the store does hold: `held`."""

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
    """There is no file where a Trace was to be read, or one that cannot be read."""


class OrderFileError(TraceError):
    """A file of a pipeline's order that is damaged, too large, or not one of ours."""


# -- a forgotten `await`, with the student's own line and the `await` put in -----------------------------------------


def forgotten_await(what: str, expected: str, thing: object) -> ForgottenAwait:
    """Return the error of an awaitable in a value's place. It shows the call that made it, with the `await` put in.

    A coroutine is closed, so that Python does not complain a second time, about its never having been awaited.
    """
    code: CodeType | None = getattr(thing, "cr_code", None)
    frame = student_frame()
    here = where = None if frame is None else resolve(frame.f_code, frame.f_lasti)
    call, since, got = "", False, "something that has to be awaited"
    if code is not None:
        cast(Any, thing).close()
        call, got = code.co_name, f"a call of the async function {code.co_name}, not awaited yet"
        # It may have been handed to a helper of the student's: the call stands in a line further out.
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
        elif where.text and f"{call}(" not in where.text:  # a helper that is given has started it
            fix = f"await it first: line {where.line} only starts it, {where.text}"
    if frame is not None and frame.f_code.co_name[:1] != "<" and not frame.f_code.co_flags & ASYNC:
        fix += f"\nand `async` before the function: async def {frame.f_code.co_name}(...)"
    return ForgottenAwait(what, expected=expected, got=got, fix=fix)


def used_before_await(name: str, call: str, where: Place | None) -> ForgottenAwait:
    """Return the error of the Work of a call that was used as its result: asked for an attribute, or as a value."""
    fix = f"await it first, on a line of its own: result = await model.{call}(...)"
    if where is not None and (here := student_place()) is not None and where.line != here.line:
        fix = f"{put_await(call, where)}\nor await it first, where it is used: result = await work"
    what = f"`.{name}` was asked of a call that was not awaited"
    what = "a call that was not awaited was used as a value" if name == "a value" else what
    got = f"a call of model.{call}, not awaited yet"
    return ForgottenAwait(what, expected=f"the result of model.{call}", got=got, fix=fix)


def put_await(call: str, where: Place | None) -> str:
    """Advice that shows the line of a call with `await` before it."""
    if where is None or not call:
        return "put `await` in front of the call" + (f" of {call}" if call else "")
    corrected = re.sub(rf"(?<![\w.])(?<!await )((?:\w+\.)*{call}\()", r"await \1", where.text)
    return f"put `await` in front of the call in line {where.line}" + f": {corrected}" * (corrected != where.text)


class Given:
    """Something with names that are given with it: everybody reads them, and only its __init__ sets them.

    `given` has what each of them is, and what to do instead of setting it. The first is set last: then it is made.
    """

    __slots__ = ()
    given: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def __setattr__(self, name: str, value: object) -> None:
        made = name in self.given and hasattr(self, next(iter(self.given)))
        # `model.weights |= {...}` changes the store, and then sets it to itself.
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
