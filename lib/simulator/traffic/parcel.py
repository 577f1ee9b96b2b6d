"""What a message brings: its values anew, in what is like a list, a tuple or a dict; anything else as it is."""

from __future__ import annotations

import gc
from collections import OrderedDict, defaultdict, deque
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple, cast

from lib.errors.arguments import is_awaitable
from lib.errors.exceptions import RuleError
from lib.values.rules import need
from lib.values.values import Value, definite, describe

__all__ = ["Parcel", "copy_message"]


class Parcel(NamedTuple):
    """A message that is more than one value: what arrives, and the values in it, in their order."""

    thing: Any
    values: list[Value]


def copy_message(item: Any) -> tuple[Parcel, list[Value]]:
    """What arrives when an object is sent, and which values are sent with it.

    Values arrive anew, in lists, tuples (those with names too), dicts and their like, which are copied; what is there
    twice is sent once. Anything else arrives as it is, and RuleError says so where it has a value in it: on the other
    side that would still be the sender's.
    """
    sent: list[Value] = []
    parcel = Parcel(None, [])
    copies: dict[int, Any] = {}

    def copied(part: Any) -> Any:
        if id(part) not in copies:
            copies[id(part)] = anew(part)
        return copies[id(part)]

    def anew(part: Any) -> Any:
        kind = cast("type[Any]", type(part))
        if isinstance(part, Value):
            sent.append(part)
            parcel.values.append(part.at(part.place))
            return parcel.values[-1]
        # Only Python's own classes are asked for what is in them: one made from them may answer anything.
        if kind in (list, deque):
            copies[id(part)] = items = deque[Any](maxlen=part.maxlen) if kind is deque else list[Any]()
            items.extend([copied(inner) for inner in part])
            return items
        if kind in (dict, OrderedDict, defaultdict):
            pairs = defaultdict[Any, Any](part.default_factory) if kind is defaultdict else cast("Any", kind)()
            copies[id(part)] = pairs
            pairs.update([(copied(key), copied(inner)) for key, inner in part.items()])
            return pairs
        if kind is tuple or _is_named_tuple(kind):
            return _tuple.__new__(kind, [copied(inner) for inner in _tuple.__iter__(part)])
        held = _held(part)
        if held is not None:
            name = kind.__name__
            value = need(Value, held, "value given to pass_to", "pass_to")
            raise RuleError(
                f"pass_to was given a {name} with a value in it, which would not arrive",
                expected="values travel in lists, tuples and dicts",
                got=f"a {name} that holds {definite(describe(value))}",
                fix="send the value itself, or a list, a tuple or a dict of what is to arrive",
            )
        return part

    try:
        return parcel._replace(thing=copied(item)), sent
    except RecursionError:
        raise RuleError(
            "pass_to was given something that is nested too deeply",
            expected="a value, or lists, tuples and dicts of values",
            fix="send its parts, each in a message of its own",
        ) from None


_tuple: Any = tuple
CODE = (type, ModuleType, FunctionType, CodeType, FrameType)
"""What leads to all that there is, and has no values of its own."""
MOST_LOOKED_AT = 10**5


def _is_named_tuple(kind: Any) -> bool:
    """Whether a class is a NamedTuple, with nothing beside its items."""
    return issubclass(kind, _tuple) and hasattr(kind, "_fields") and not kind.__dictoffset__


def _held(thing: object) -> object:
    """A value in an object of any other class, or in what that holds, or one that was not awaited; None where there is
    none. None of its methods are called."""
    seen, queue = {id(thing)}, [thing] if gc.is_tracked(thing) else []
    for part in queue:
        if isinstance(part, Value) or is_awaitable(part):
            return cast("object", part)
        if len(queue) < MOST_LOOKED_AT and not isinstance(part, CODE):
            new = {id(inner): inner for inner in gc.get_referents(part) if gc.is_tracked(inner)}
            queue.extend(inner for number, inner in new.items() if number not in seen)
            seen |= new.keys()
    return None
