"""Holdings: what each device of a mesh holds, in a word or two, as plain data that a picture or a text can show."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lib.cluster.mesh import Mesh

__all__ = ["Holdings"]


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the devices of a mesh hold. Whoever is not in `holds` holds nothing; the same words are the same thing.
    `wrong` are the devices at which something is wrong, and `title` says what is shown. `processes`: they are named
    even where each has one device."""

    mesh: Mesh
    holds: Mapping[int, str] = field(default_factory=dict[int, str])
    wrong: Collection[int] = ()
    title: str = ""
    processes: bool = False

    def __post_init__(self) -> None:
        for device in [*self.holds, *self.wrong]:
            if device not in self.mesh.ranks:
                raise ValueError(f"device {device!r} is not in {self.mesh}")
