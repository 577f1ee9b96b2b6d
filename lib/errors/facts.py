"""What is wrong, as data, and who has the words for it: an error is raised with a fact, and worded when it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, dataclass_transform

__all__ = ["Fact", "Words", "word_facts_with", "words_of"]


@dataclass_transform(frozen_default=True, eq_default=True)
class Fact:
    """What is wrong, as data: a subclass for each broken rule, with the values it is about in typed fields.

    They are dataclasses to whoever reads the code, but made without writing and compiling six methods for each: there
    are thirty, and every `import lib` would wait for them.
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.__match_args__ = tuple(cls.__annotations__)

    def __init__(self, *items: Any, **named: Any) -> None:
        self.__dict__.update(zip(self.__match_args__, items, strict=False), **named)
        if len(self.__dict__) != len(self.__match_args__) or len(items) + len(named) != len(self.__match_args__):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(self.__match_args__)}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={item!r}' for name, item in self.__dict__.items())})"


class Words(NamedTuple):
    """A message in its four parts."""

    what: str
    expected: str | None = None
    got: str | None = None
    fix: str | None = None


_wording: list[Callable[[Fact], Words]] = []


def word_facts_with(words: Callable[[Fact], Words]) -> None:
    """Says who words facts. That is diagnosis, which stands high above the rules that raise them and is not to be
    imported by them: `lib/__init__`, which may know everything, introduces the two."""
    _wording[:] = [words]


def words_of(fact: Fact) -> Words:
    """The message of a fact."""
    return _wording[0](fact)
