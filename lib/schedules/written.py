"""Orders as a student writes them: a function that says, for one rank, what it does and in which order.

    @schedule
    def gpipe(rank, ranks, batches):
        return [f"F{b}" for b in range(batches)] + [f"B{b}" for b in range(batches)]

    models = simulate(gpipe, puzzle="gpipe")

What it makes is a function of a Model like any other. Before anything runs the function is asked for all ranks, once a
run, and what it says is judged: nothing but actions can be said, and what they come to is for the check to say.

    @stages(one_f_one_b)
    def in_threes(layers, ranks):
        return [3, 3, 3, 1]

says how many layers each stage of an order has, and may say on which rank it lies.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial, update_wrapper
from itertools import accumulate, groupby, islice, pairwise
from typing import Any, Final, cast, overload
from weakref import WeakKeyDictionary

from lib.errors.exceptions import PuzzleError
from lib.errors.source_lines import Place, function_of, place
from lib.errors.wording import counted, described
from lib.files import table
from lib.puzzles.records import PUZZLES
from lib.schedules.pipelines.action import BEGINS, LONG, MESSAGES, PASSES, Action, Messages, Order, parse, says_messages
from lib.schedules.pipelines.legality import IllegalOrder, Wrong, illegal
from lib.schedules.pipelines.lowering import waits_for_room
from lib.schedules.pipelines.program import MESSAGES_ARE, Program, program_of, share_of
from lib.simulator.dist import Dist
from lib.simulator.model import Model
from lib.simulator.recorder import BUDGET
from lib.values.values import describe

Function = Callable[[int, int, int], Any]
"""What a student writes: the actions of `rank`, of so many ranks, for so many microbatches."""
Places = Callable[[list[float], list[float]], Any]
"""What a student writes who says the stages, of how heavy each layer is, and how slow each rank."""
Orders = Callable[[int, int], Order]
"""What makes an order for so many ranks and microbatches."""
TAKES: Final = ("rank", "ranks", "batches")
WORDS: Final = "words such as F0, the forward of microbatch 0, and B0, its backward"
MISTAKES: Final[dict[str, dict[str, str]]] = table("lib.schedules", "mistakes")
"""The words of every mistake: read at once, as a limited process may not read this folder later."""
FIXES: Final = MISTAKES["rules"]
"""By rule of legality what to do, where it knows nothing better."""


def mistake(which: str, /, **facts: object) -> PuzzleError:
    """Return a mistake in its words, filled in."""
    words = {part: text.format(**facts) for part, text in MISTAKES[which].items()}
    return PuzzleError(words["what"], expected=words["expected"], got=words.get("got"), fix=words["fix"])


@overload
def schedule(function: Function, /) -> Written: ...
@overload
def schedule(*, messages: Messages = "awaited") -> Callable[[Function], Written]: ...
def schedule(
    function: Function | None = None, /, *, messages: Messages = "awaited"
) -> Written | Callable[[Function], Written]:
    """Make a schedule of a function that says, for one rank, its actions in their order. The words may leave the stage
    out where every rank has one. Stages have equal shares of the layers, and each batch is a microbatch.

    `messages` between ranks are "awaited" at once on both sides, or "posted": they travel while their ranks compute.

    >>> @schedule(messages="posted")
    ... def gpipe(rank, ranks, batches):
    ...     return [f"F{b}" for b in range(batches)] + [f"B{b}" for b in range(batches)]
    >>> check(simulate(gpipe, ranks=2, layers=2, batches=2)).time
    7.3
    """
    if not isinstance(messages, str) or messages not in MESSAGES_ARE:  # pyright: ignore[reportUnnecessaryIsInstance]
        known = " or ".join(f'messages="{name}"' for name in MESSAGES_ARE)
        raise mistake("decorator_messages", messages=messages, known=known)
    make = partial(Written, messages=messages)
    return make if function is None else make(function)


def stages(order: Orders, *, messages: Messages = "awaited") -> Callable[[Places], Placed]:
    """Make a pipeline of a function that says its stages: of each, from the first to the last, how many layers it has,
    or its rank and how many layers. The function is given how heavy each layer is, and how slow each rank.

    `order` makes the order for so many ranks and microbatches, such as `one_f_one_b` of the generators: stage s does
    what that has for rank s.
    """
    if not callable(order):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise mistake("decorator_order", order=describe(order))
    return lambda function: Placed(function, order, messages)


class Asked(ABC):
    """The maker of a program out of what a function says: it is asked once a run."""

    def __init__(self, function: Callable[..., Any], kind: str, decorator: str) -> None:
        if not callable(function):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise mistake("decorator_function", kind=kind, decorator=decorator, function=describe(function))
        update_wrapper(self, function)
        self.__signature__ = inspect.Signature([inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD)])
        self._kind, self._function = kind, function
        self.name: str = getattr(function, "__name__", "the function")
        self._programs: WeakKeyDictionary[Dist, Program | None] = WeakKeyDictionary()
        """The program of each run, None where the function could not say it."""

    def __repr__(self) -> str:
        return f"<{self._kind} {self.name}>"

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Run on a Model; given what the function takes, it gives what that gives."""
        if len(given) == 1 and not named and isinstance(given[0], Model):
            return self._run(given[0])
        return self._function(*given, **named)

    async def _run(self, model: Model) -> None:
        dist = model.dist
        if dist not in self._programs:
            self._programs[dist] = None  # should this fail, no other rank has anything to do
            self._programs[dist] = self._program(model)
        if (program := self._programs[dist]) is not None:
            await program(model)

    @abstractmethod
    def _program(self, model: Model) -> Program:
        """Return the program of a run."""

    def _say(self, what: str, takes: Sequence[str], fix: str, given: Sequence[Any], rank: int | None = None) -> Any:
        """Return what the function gives for these arguments. PuzzleError where it cannot be asked with them, or is an
        async function."""
        try:
            inspect.signature(self._function).bind(*takes)
        except TypeError:
            has = ", ".join(inspect.signature(self._function).parameters)
            raise self._wrong("parameters", asked=what, takes=", ".join(takes), parameters=has, fix=fix) from None
        except ValueError:  # a builtin that does not tell its parameters
            pass
        said = self._caught(lambda: self._function(*given), rank)
        if inspect.iscoroutine(said) or inspect.isasyncgen(said):
            if inspect.iscoroutine(said):
                said.close()
            raise self._wrong("async", takes=", ".join(takes))
        return said

    def _caught(self, call: Callable[[], Any], rank: int | None) -> Any:
        """Return what a call of the student's gives, for a rank or for all; what it raises is told as theirs."""
        try:
            return call()
        except PuzzleError:
            raise
        except Exception as error:
            from lib.diagnosis.python_errors import failed  # here and not above: only a mistake needs it

            theirs = failed(None, error)
            theirs.what = theirs.what if rank is None else f"rank {rank}: {theirs.what}"
            raise theirs from error

    def _wrong(self, what: str, rank: int | None = None, /, **facts: object) -> PuzzleError:
        """Return a mistake of the function's, with its line. Ranks are those of the pipeline, which need not be all."""
        error = mistake(what, name=self.name, **facts)
        error.what = error.what if rank is None else f"rank {rank}: {error.what}"
        if (where := self._line()) is not None:
            error.where.append((None, where))
        return error

    def _line(self) -> Place | None:
        """Return the line of the function's `return`, or of the call without one that ends it; else of its `def`."""
        code = getattr(self._function, "__code__", None)
        if code is None:
            return None
        import ast

        node = function_of(code)
        if node is None:
            return place(code, code.co_firstlineno)
        inner = (part for part in ast.walk(node) if isinstance(part, ast.FunctionDef) and part is not node)
        theirs = {one for part in inner for one in ast.walk(part)}
        returns = [one.lineno for one in ast.walk(node) if isinstance(one, ast.Return) and one not in theirs]
        if not returns and re.match(r"(?!print\b)\w+\(", ast.unparse(node.body[-1])):
            returns = [node.body[-1].lineno]  # what this call makes is lost
        return place(code, returns[0] if len(returns) == 1 else node.lineno)


class Written(Asked):
    """A schedule whose order a function says. Called with a Model it runs on it; called as the function was written it
    gives what that gives."""

    def __init__(self, function: Function, messages: Messages) -> None:
        super().__init__(function, "schedule", '@schedule or @schedule(messages="awaited")')
        self._messages: Messages = messages

    def __call__(self, *given: Any, **named: Any) -> Any:
        takes = [*given, *named.values()]
        if len(takes) != len(TAKES) and not (len(given) == len(takes) == 1 and isinstance(given[0], Model)):
            shown = ", ".join(map(describe, takes)) or "nothing"
            raise mistake("called", name=self.name, given=shown, takes=", ".join(TAKES))
        return super().__call__(*given, **named)

    def _program(self, model: Model) -> Program:
        share = share_of(model)
        order = self.order(len(share.pipeline), model.BATCHES // len(share.replicas), model.dist.budget)
        # Where messages travel otherwise than a puzzle says, its goals are for another world.
        world = None if model.dist.puzzle is None else PUZZLES[model.dist.puzzle].messages
        if world not in (None, self._messages):
            raise self._wrong("world", world=world, messages=self._messages)
        by_hand = (action for actions in order for action in actions if action.kind in MESSAGES | BEGINS.keys())
        if world is not None and (first := next(by_hand, None)) is not None:
            raise self._wrong("messages_by_hand", first=first, world=world)
        return program_of(order, messages=self._messages, by_words=True)

    def order(self, ranks: int, batches: int, most: int = BUDGET) -> Order:
        """Return what all ranks do, as the function says. PuzzleError where that is not a pipeline, or a rank has more
        than `most` actions."""
        lists: list[Any] = []
        words: list[list[Any]] = []
        fix = "an order needs no model: it says which actions, and the simulator does them"
        for rank in range(ranks):
            said = self._say("the actions of one rank", TAKES, fix, (rank, ranks, batches), rank)
            if isinstance(said, list) and any(said is other for other in lists):
                raise self._wrong("one_list_for_all", rank=rank)
            lists.append(said)
            words.append(self._words(said, rank, most))
        bare = not any(isinstance(word, str) and word.lstrip("(")[:1].isdigit() for one in words for word in one)
        order = tuple(self._parsed(one, rank, rank if bare else None) for rank, one in enumerate(words))
        if (wrong := illegal(order, batches=batches)) is not None:
            error = IllegalOrder(wrong)
            fix = _fix(wrong, order[wrong.rank], ranks if bare else None)
            error.what, error.fix, error.rank = str(wrong), fix, None
            if (where := self._line()) is not None:
                error.where.append((None, where))
            from lib.schedules.formats.trace import recording_until  # here and not above: only a mistake needs it

            error.shown = recording_until(order, wrong)
            raise error
        if says_messages(order) and (stuck := waits_for_room(order)):
            where = "\n".join(f"rank {rank} is at {action}" for rank, action in stuck.items())
            raise self._wrong("no_room", stuck=where)
        return order

    def _words(self, said: Any, rank: int, most: int) -> list[Any]:
        """Return what was said as a list. An endless one is cut off."""
        if isinstance(said, str):
            said = str.split(said, None, most + 1)
        if isinstance(said, dict | set | frozenset) or not isinstance(said, Iterable):
            none, line = "end the function with `return` and the list", getattr(self._line(), "text", "")
            if call := re.search(r"return .*\.(append|extend|sort)\(", line):
                none = f"{call[1]} changes a list and gives None: call it in a line of its own, and return the list"
            elif call := re.match(r"\w+\(", line):
                none = f"what this line makes is lost: return {call[0]}...)"
            fix = none if said is None else "return a list: its order is the order in which the rank does it"
            given = described(cast("object", said), describe)
            raise self._wrong("no_list", rank, said=given, words=WORDS, fix=fix)
        every = cast("Iterable[Any]", said)
        words = self._caught(lambda: list(islice(every, most + 1)), rank)  # it may be a generator
        if len(words) > most:
            raise self._wrong("endless", rank, most=most)
        return words

    def _makes_words(self) -> str | None:
        """Return the call of the function above that makes words of what this one returns, where there is one."""
        for name, other in getattr(self._function, "__globals__", {}).items():
            code = getattr(other, "__code__", None)
            takes = cast("Sequence[str]", () if code is None else code.co_varnames[: code.co_argcount])
            if takes[:2] == TAKES[:2] and takes[-1] not in TAKES:
                return f"these are {takes[-1]}: return {name}({', '.join(takes)}), which makes words of them"
        return None

    def _parsed(self, words: Sequence[Any], rank: int, stage: int | None) -> tuple[Action, ...]:
        if words and all(map(_is_list_of_words, words)):
            raise self._wrong("lists_in_a_list", rank, rank=rank, lists=counted(len(words), "list"))
        found: list[Action] = []
        for position, word in enumerate(words):
            try:
                found += parse([str(word)] if isinstance(word, (str, Action)) else [""], stage)
            except (ValueError, TypeError):  # the latter of an Action that is made of anything
                shown = repr(word[:LONG]) if isinstance(word, str) else described(word, describe)
                expected = f"{WORDS}; before it the stage, where a rank has several: 5F0" if stage is None else WORDS
                fix = _meant(word, stage, self._makes_words())
                said = {"position": position, "word": shown, "words": expected, "fix": fix}
                raise self._wrong("no_word", rank=rank, **said) from None
        return tuple(found)


class Placed(Asked):
    """A pipeline of which a function says the stages: how many layers each has, and on which rank it lies. Called with
    a Model it runs on it; called as the function was written it gives what that gives."""

    def __init__(self, function: Places, order: Orders, messages: Messages) -> None:
        super().__init__(function, "stages", "@stages(one_f_one_b)")
        self._order = order
        self._messages: Messages = messages

    def _program(self, model: Model) -> Program:
        costs = model.dist.costs
        layers = [float(costs.factor(layer)) for layer in range(model.LAYERS)]
        placed = self.stages(layers, [float(costs.slowness(rank)) for rank in range(model.RANKS)])
        borders = [*accumulate((count for _, count in placed), initial=0)]
        by_stage = self._order(model.RANKS, model.BATCHES)
        on = {rank: by_stage[stage] for stage, (rank, _) in enumerate(placed)}
        order = tuple(on[rank] for rank in range(model.RANKS))
        return program_of(order, messages=self._messages, layers_of=[range(*ends) for ends in pairwise(borders)])

    def stages(self, layers: Sequence[float], ranks: Sequence[float]) -> list[tuple[int, int]]:
        """Return for each stage its rank and how many layers it has, as the function says. PuzzleError where they do
        not make the model."""
        fix = "it needs no model: it says how many layers each stage has"
        said = self._say("its stages", ("layers", "ranks"), fix, ([*layers], [*ranks]))
        if not isinstance(said, list | tuple):
            fix = "end the function with `return` and the list" if said is None else "return a list: [3, 3, 2, 2]"
            given = described(cast("object", said), describe)
            raise self._wrong("stages_no_list", said=given, stages=counted(len(ranks), "stage"), fix=fix)
        every, found = cast("Sequence[Any]", said), list[tuple[int, int]]()
        for number, one in enumerate(every[: 2 * len(ranks)]):
            pair = cast("Sequence[Any]", one) if isinstance(one, list | tuple) else (number, one)
            if len(pair) != 2 or not all(type(part) is int for part in pair):
                shown = described(cast("object", one), describe)
                fix = "return how many layers each stage has, a whole number: not which layers, and not their weights"
                if any(isinstance(other, list) for other in every) and not isinstance(one, list):
                    fix = f"there is a list in what {self.name} gives: return that alone"
                if isinstance(one, range):
                    shown, fix = str(one), f"say how many layers the stage has: {len(one)}, and not which"
                raise self._wrong("stages_no_number", number=number, shown=shown, fix=fix)
            found.append((pair[0], pair[1]))
        self._require_whole(found, len(every), layers, len(ranks))
        return found

    def _require_whole(self, found: Sequence[tuple[int, int]], many: int, weights: Sequence[float], ranks: int) -> None:
        """PuzzleError where some stages are not all layers, on all ranks. `many` is how many there are in all."""
        layers, counts = len(weights), [count for _, count in found]
        total, least = sum(counts), min(counts, default=0)
        ends = (counts[:1] == [0]) + (counts[-1:] == [layers])
        if many == ranks - 1 + ends and counts == sorted(set(counts)) and total != layers:
            mistaken = "stages_borders"
        elif many != ranks:
            mistaken = "stages_count"
        elif sorted(rank for rank, _ in found) != [*range(ranks)]:
            mistaken = "stages_ranks"
        elif sorted(counts) == [*range(ranks)] and total != layers:
            mistaken = "stages_are_ranks"
        elif least < 1:
            mistaken = "stages_empty"
        elif total != layers:
            mistaken = "stages_sum"
        else:
            return
        facts: dict[str, object] = {
            "layers": layers,
            "counts": counts,
            "total": total,
            "added": " + ".join(map(str, counts)),
            "numbers": counted(ranks, "number"),
            "there": counted(ranks, "rank"),
            "last": ranks - 1,
            "stages": counted(many, "stage"),
            "listed": (", ".join(map(str, counts)) or "nothing") + (", ..." if many > len(found) else ""),
            "places": ", ".join(str(rank) for rank, _ in found),
            "least": counted(least, "layer"),
            "empty": counts.index(least) if counts else 0,
            "together": counted(total, "layer"),
            "fix": _of_count(counts, weights),
        }
        raise self._wrong(mistaken, **facts)


def _fix(wrong: Wrong, actions: Sequence[Action], ranks: int | None) -> str | None:
    """Return what to do about what is wrong with an order, by its rule. `ranks`: there are so many, and no word names
    its stage."""
    kind = None if wrong.action is None else wrong.action.kind
    if wrong.rule == "twice" and kind is not None and kind not in PASSES:
        return "once is enough: it is for all microbatches of the stage"
    if wrong.cause is not None:
        return wrong.cause
    if wrong.rule == "before" and kind == "W":
        return "a W needs the I of the same microbatch on the same stage, earlier in the list"
    if wrong.rule == "before" and "comes later" in wrong.text:
        forwards = groupby(action.stage for action in actions if action.kind == "F")
        first, *others = [len([*group]) for _, group in forwards]
        if first < max(others, default=0):
            why = f"the first group has {counted(first, 'microbatch')}, and a later one {max(others)}"
            return f"{why}: the warm-up goes by the first,\nand is too short for a longer one: put the longest first"
        if others and first == 1 + max(action.microbatch for action in actions):
            why = f"all {first} microbatches go through stage {actions[0].stage} before one goes through the next"
            return f"{why}:\nin groups, the loop over them is the outer one"
        return f"{FIXES['before']}:\nis the warm-up long enough?"
    if wrong.rule == "missing" and "input half" in wrong.text:
        halves = [one.microbatch for one in actions if one.kind == "W" and wrong.text.startswith(f"{one.stage}W")]
        if f"W{max(halves, default=-1) + 1} " in wrong.text:
            last = "weight halves that lag are left when a loop ends: put them last"
            return last if halves else "I is half a backward, and W the other half; B is both"
    if wrong.rule == "missing" and "REDUCE_GRAD" in wrong.text:
        return FIXES["gather"]
    back = "".join(action.kind for action in actions).lstrip("F")
    if wrong.rule == "missing" and set(back) == {"B"} and 3 * len(back) <= len(actions):
        why = "all forwards come first: the warm-up is longer, and a slice from a negative number counts from the end"
        return f"{why}:\nlet it be min(warm_up, len(forwards))"
    numbers = {action.microbatch for action in actions}
    jumps = wrong.rule == "batch" and wrong.action is not None and wrong.action.microbatch - 1 not in numbers
    if ranks is not None and (jumps or (wrong.rule == "twice" and 2 * len(set(actions)) == len(actions))):
        return f"{FIXES[wrong.rule]}\nor, where a rank has several stages, name the stage in each word: {ranks}F0"
    return FIXES.get(wrong.rule)


def _of_count(counts: Sequence[int], weights: Sequence[float]) -> str:
    """Return the fix of stages that have more or fewer layers together than there are."""
    more = sum(counts) - len(weights)
    fix = f"take {counted(more, 'layer')} away" if more > 0 else f"add {counted(-more, 'layer')}"
    weighed = sum(counts) == sum(weights)
    return f"{fix}; {sum(counts)} is what all layers weigh, and here they are counted" if weighed else fix


def _is_list_of_words(thing: Any) -> bool:
    several = isinstance(thing, list | tuple) and not isinstance(thing, Action)
    return several and all(isinstance(part, str) and len(part) > 1 for part in cast("Sequence[object]", thing))


def _meant(word: Any, stage: int | None, of_lists: str | None) -> str:
    """Return the fix of a word that is none; `of_lists` where another function makes words of lists."""
    if isinstance(word, str) and "{" in word:
        return f'put an f before the quotes, so that Python fills in what stands in braces: f"{word}"'
    if isinstance(word, str) and len(word) == 1:
        return "`+=` adds a text letter by letter: append(...) adds it whole, as one word"
    if isinstance(word, str) and re.search(r"[A-Za-z]\d+[,;\s]+\d*[A-Za-z]", word):
        return "these are several words in one text: return a list, with each word in quotes of its own"
    if of_lists is not None and isinstance(word, list | tuple | range):
        return of_lists
    text = "".join(map(str, cast("Sequence[object]", word))) if isinstance(word, list | tuple) else str(word)
    if stage is None and (of := re.fullmatch(r"\W*(UNSHARD|RESHARD|REDUCE_GRAD)\W*(\d+)", text.upper())):
        return f'the stage stands before it: "{of[2]}{of[1]}"'
    for looks, fix in MISTAKES["looks"].items():
        if found := re.fullmatch(looks, text.upper()):
            return fix.format(*found.groups())
    tidy = "".join(letter for letter in text if letter.isalnum() or letter in "_;()").upper()
    for one, of in ((tidy, stage), (tidy.replace("_", ""), stage), (tidy, 0)):
        with suppress(ValueError):
            parse([one], of)
            if of == stage:
                return f'write "{one}"'
            return f"other words of this order name their stage, so this one does too: 0{tidy} on stage 0"
    if isinstance(word, int):
        return f'say what is done to microbatch {word}: "F{word}" or "B{word}"'
    if isinstance(word, list | tuple) and not isinstance(word, Action):
        return "a list in the list is not a word: put a * in front of it, and its words come one by one"
    if isinstance(word, str) and (name := re.match(r"([a-z]\w*?)[FBIW]\d", word)):
        return f"Python fills in a variable only in braces: {{{name[1]}}}"
    return "a word is a kind of action and the number of a microbatch, counted from 0, without anything in between"
