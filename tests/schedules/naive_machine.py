"""Whether ranks can do what an order says, found out by doing it: values are tags, and messages lie in queues.

It is the truth that `lib.schedules.pipelines.legality` is judged by, and shares no code with it: it takes the words as
text, tries whatever can go on until nothing can, and then looks at what there is.
"""

import re
from collections import defaultdict, deque

PASSES = ("F", "B", "I", "W")
Said = tuple[str, int, int]
"""Kind, stage and microbatch, -1 where there is none."""


def read(word: str) -> list[Said] | None:
    """What a word says, or a pair of words; None for what is not a word."""
    if word.startswith("("):
        inside, _, name = word[1:].partition(")")
        parts = [said for part in inside.split(";") for said in read(part) or ()]
        if name == "OVERLAP_F_B" and [kind for kind, _, _ in parts] in (["F", "B"], ["F", "I"]):
            return parts
        return None
    found = re.fullmatch(r"(\d+)([A-Z_]+?)(\d*)", word)
    if not found:
        return None
    stage, kind, number = found.groups()
    with_number = r"[FBIW]|(WAIT_)?(SEND|RECV)_[FB]"
    if re.fullmatch(with_number, kind) and number:
        return [(kind, int(stage), int(number))]
    if kind in ("UPDATE", "UNSHARD", "RESHARD", "REDUCE_GRAD") and not number:
        return [(kind, int(stage), -1)]
    return None


class Impossible(Exception):
    """What a rank cannot do, whatever comes."""


class Machine:
    def __init__(self, order: list[list[str]]) -> None:
        self.order = order
        words = [read(word) for row in order for word in row]
        if None in words:
            raise Impossible("no word")
        single = [one for word in words for one in word or ()]
        self.kinds = {kind for kind, _, _ in single}
        self.stages = 1 + max((stage for kind, stage, _ in single if kind in PASSES), default=-1)
        self.batches = 1 + max((number for kind, _, number in single if kind in PASSES), default=-1)
        self.waits = [{one for word in row for one in read(word) or () if one[0].startswith("WAIT")} for row in order]
        self.messages = any("SEND" in kind or "RECV" in kind for kind in self.kinds)
        if self.stages > 1000 or self.batches > 1000:
            raise Impossible("numbers with gaps")
        self.home: dict[int, int] = {}
        for rank, row in enumerate(order):
            for word in row:
                for kind, stage, _ in read(word) or ():
                    if kind in PASSES and self.home.setdefault(stage, rank) != rank:
                        raise Impossible("a stage on two ranks")
        self.has: list[set[str]] = [set() for _ in order]
        self.queues: dict[tuple[int, int], deque[str]] = defaultdict(deque)
        self.asked: dict[tuple[int, int], deque[str]] = defaultdict(deque)
        self.whole: dict[int, bool] = {}
        self.log: list[Said] = []

    def run(self) -> bool:
        at = [0] * len(self.order)
        moved = True
        while moved:
            moved = False
            for rank, row in enumerate(self.order):
                while at[rank] < len(row) and self.do(rank, read(row[at[rank]]) or []):
                    at[rank] += 1
                    moved = True
        return all(at[rank] == len(row) for rank, row in enumerate(self.order)) and self.whole_step()

    def do(self, rank: int, parts: list[Said]) -> bool:
        """Does it, or says that it has to wait."""
        for kind, stage, number in parts:
            if self.home.get(stage) != rank:
                raise Impossible("not here")
            if not self.ready(rank, kind, stage, number):
                return False
        for kind, stage, number in parts:
            self.happen(rank, kind, stage, number)
        return True

    def ready(self, rank: int, kind: str, stage: int, number: int) -> bool:
        has = self.has[rank]
        if kind in PASSES and self.kinds & {"UNSHARD", "RESHARD"} and stage not in self.whole:
            raise Impossible("no weights")
        if kind == "F":
            return stage == 0 or self.comes(rank, f"out {stage - 1} {number}", stage - 1)
        if kind in ("B", "I"):
            if f"kept {stage} {number}" not in has:
                raise Impossible("no forward yet")
            return stage == self.stages - 1 or self.comes(rank, f"grad {stage + 1} {number}", stage + 1)
        if kind == "W" and f"half {stage} {number}" not in has:
            raise Impossible("no input half yet")
        if kind in ("SEND_F", "SEND_B"):
            beyond = stage + (1 if kind == "SEND_F" else -1)
            if self.home.get(beyond, rank) == rank:
                raise Impossible("nobody to send to")
            if f"{'out' if kind == 'SEND_F' else 'grad'} {stage} {number}" not in has:
                raise Impossible("nothing to send yet")
        if kind in ("RECV_F", "RECV_B"):
            before = stage - (1 if kind == "RECV_F" else -1)
            if self.home.get(before, rank) == rank:
                raise Impossible("nobody to receive from")
            asked = self.asked[self.home[before], rank]  # by those that came before, and are awaited later
            return self.later(rank, kind, stage, number) or len(self.queues[self.home[before], rank]) > len(asked)
        if kind in ("WAIT_SEND_F", "WAIT_SEND_B") and (kind[5:], stage, number) not in self.log:
            raise Impossible("nothing was sent")
        if kind in ("WAIT_RECV_F", "WAIT_RECV_B"):
            if (kind[5:], stage, number) not in self.log:
                raise Impossible("nothing was asked for")
            self.deliver(rank)
            forward = kind == "WAIT_RECV_F"
            return f"{'out' if forward else 'grad'} {stage - 1 if forward else stage + 1} {number}" in has
        if kind == "UPDATE" and "REDUCE_GRAD" in self.kinds and ("REDUCE_GRAD", stage, -1) not in self.log:
            raise Impossible("gradients are not reduced")
        return True

    def later(self, rank: int, kind: str, stage: int, number: int) -> bool:
        """Whether a receive is awaited later than it is called."""
        return (f"WAIT_{kind}", stage, number) in self.waits[rank]

    def comes(self, rank: int, value: str, source: int) -> bool:
        """Whether a value is there; without messages it may yet come."""
        home = self.home.get(source)
        if home == rank or self.messages:
            usable = value if home == rank else f"{value} awaited"
            if usable not in self.has[rank]:
                raise Impossible(f"{value} is not here")
            return True
        return home is not None and value in self.has[home]

    def happen(self, rank: int, kind: str, stage: int, number: int) -> None:
        has, word = self.has[rank], (kind, stage, number)
        if kind not in ("UNSHARD", "RESHARD") and word in self.log:
            raise Impossible("a second time")
        if (kind == "B" and {("I", stage, number), ("W", stage, number)} & set(self.log)) or (
            kind in "IW" and ("B", stage, number) in self.log
        ):
            raise Impossible("the same backward")
        if kind in PASSES:
            if {("REDUCE_GRAD", stage, -1), ("UPDATE", stage, -1)} & set(self.log) and kind in "BW":
                raise Impossible("too late")
            if stage in self.whole:
                self.whole[stage] = True
        self.log.append(word)
        if kind == "F":
            has |= {f"kept {stage} {number}", f"out {stage} {number}"}
        elif kind in ("B", "I"):
            has |= {f"half {stage} {number}", f"grad {stage} {number}"}
        elif kind in ("SEND_F", "SEND_B"):
            to = self.home[stage + (1 if kind == "SEND_F" else -1)]
            self.queues[rank, to].append(f"{'out' if kind == 'SEND_F' else 'grad'} {stage} {number}")
        elif kind in ("RECV_F", "RECV_B"):
            source = stage - (1 if kind == "RECV_F" else -1)
            value = f"{'out' if kind == 'RECV_F' else 'grad'} {source} {number}"
            self.asked[self.home[source], rank].append(value)
            self.deliver(rank)
            if not self.later(rank, kind, stage, number):
                has.add(f"{value} awaited")
        elif kind in ("WAIT_RECV_F", "WAIT_RECV_B"):
            forward = kind == "WAIT_RECV_F"
            has.add(f"{'out' if forward else 'grad'} {stage - 1 if forward else stage + 1} {number} awaited")
        elif kind == "UNSHARD":
            if stage in self.whole:
                raise Impossible("whole already")
            self.whole[stage] = False
        elif kind == "RESHARD" and not self.whole.pop(stage, False):
            raise Impossible("not whole, or for nothing")

    def deliver(self, rank: int) -> None:
        """What has come goes to who asked first."""
        for channel, asked in self.asked.items():
            while channel[1] == rank and asked and self.queues[channel]:
                if self.queues[channel].popleft() != (value := asked.popleft()):
                    raise Impossible("somebody else's message")
                self.has[rank].add(value)

    def whole_step(self) -> bool:
        done = set(self.log)
        for stage in range(self.stages):
            for number in range(self.batches):
                halves = {("I", stage, number), ("W", stage, number)}
                if ("F", stage, number) not in done or not (("B", stage, number) in done or halves <= done):
                    return False
            if "REDUCE_GRAD" in self.kinds and ("REDUCE_GRAD", stage, -1) not in done:
                return False
        return (
            set(self.home.values()) == set(range(len(self.order)))
            and all(self.whole.values())
            and not any(self.queues.values())
            and self.stages > 0
        )


def can_run(order: list[list[str]]) -> bool:
    """Whether the words of all ranks are one whole training step."""
    try:
        return Machine(order).run()
    except Impossible:
        return False
