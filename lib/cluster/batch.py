"""PhysicalBatch: the slots of one batch as they lie on the devices, as plain data that a picture or a text can show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lib.errors.wording import counted, with_article


@dataclass(frozen=True, slots=True)
class PhysicalBatch:
    """A batch as feeds bring it, in order: the number of an example, or None for a slot that is only padding. All
    slots one after the other are shared out among the `devices`; None: they stay where they are. `notes` are said of
    the feeds, `wrong` are those in which something is wrong, and `title` says what is shown. `names` are what a feed
    and an example are called, as ranks that bring rows."""

    feeds: Sequence[Sequence[int | None]]
    devices: int | None
    notes: Sequence[str] = ()
    wrong: Collection[int] = ()
    title: str = ""
    names: tuple[str, str] = ("feed", "example")

    def __post_init__(self) -> None:
        if len({len(slots) for slots in self.feeds}) > 1:
            raise ValueError(f"every {self.names[0]} has as many slots; got {[len(slots) for slots in self.feeds]}")
        if self.devices is not None and (self.devices < 1 or self.size % self.devices):
            raise ValueError(f"{counted(self.size, 'slot')} do not divide among {counted(self.devices, 'device')}")

    @classmethod
    def filled(
        cls,
        feeds: int,
        slots: int,
        examples: int,
        order: Iterable[int],
        devices: int,
        *,
        notes: Sequence[str] = (),
        wrong: Collection[int] = (),
        title: str = "",
    ) -> PhysicalBatch:
        """Return the batch in which the feeds of `order` bring so many `examples` each, one after the other, and no
        other feed brings any. Each feed has so many `slots`."""
        place = {feed: number for number, feed in enumerate(order)}
        rows: list[list[int | None]] = []
        for feed in range(feeds):
            first, count = place.get(feed, 0) * examples, examples if feed in place else 0
            rows.append([first + slot if slot < count else None for slot in range(slots)])
        return cls(rows, devices, notes, wrong, title)

    @property
    def size(self) -> int:
        """Return the number of slots."""
        return sum(map(len, self.feeds))

    @property
    def padding(self) -> int:
        """Return the number of slots that are only padding."""
        return sum(slot is None for slots in self.feeds for slot in slots)

    def device(self, feed: int, slot: int) -> int | None:
        """Return the device that has a slot; None where the slots are not shared out."""
        if self.devices is None:
            return None
        return (feed * len(self.feeds[feed]) + slot) // (self.size // self.devices)

    def words(self) -> str:
        """Describe it in a line."""
        feed, example = self.names
        shared = "" if self.devices is None else f" on {counted(self.devices, 'device')}"
        return (
            f"{counted(self.size, 'slot')} from {counted(len(self.feeds), feed)}{shared}: "
            f"{self.size - self.padding} with {with_article(example)}, {self.padding} padding"
        )

    def __repr__(self) -> str:
        return f"<{self.words()}>"
