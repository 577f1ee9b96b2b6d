"""What stores held is a list that student code can write into. By hand it has no more than a program that stores."""

from collections import Counter
from random import Random

from hypothesis import given

from lib.analysis import figures
from lib.trace.event import Move, Program
from lib.trace.lifetimes import own_uses
from tests.adversary.examples import plans, seeds
from tests.adversary.judging import judged, read, ready
from tests.adversary.plans import Plan
from tests.adversary.programs import programs, stored
from tests.support.profiles import examples
from tests.support.version_1 import encode


def by_hand(program: Program, random: Random | None) -> list[Move]:
    """Moves that nobody made, of all values but those that are in a store at the end: in for as long as it pleases, or
    never; without `random` just as long as they would be in a variable. Those are as they were."""
    lives = own_uses(program)
    held = Counter[int]()
    for _, _, value, change in program.moves:
        held[value] += change
    moves = [move for move in program.moves if held[move[2]] > 0]
    for value in range(len(program.values)):
        if held[value] or (random is not None and random.random() < 0.2):
            continue
        came = lives.born[value] + 1
        left = min(max(lives.last[value] + 1, came), len(program.events))
        if random is not None:
            came, left = sorted(random.randint(0, len(program.events)) for _ in range(2))
        store = 0 if random is None else random.randrange(5)
        moves += [(came, store, value, 1), (left, store, value, -1)]
    return sorted(moves, key=lambda move: (move[0], -move[3]))


@examples(200, 20)
@given(plans(), seeds)
def test_moves_by_hand_save_nothing(plan: Plan, seed: int) -> None:
    """A program that puts each value into a store when it has it, and deletes it after its last use, is as quick and
    needs no more memory; and it has nothing in variables, so that every goal counts for it."""
    program = programs(plan, Random(seed))
    odd, plain = program.run(), stored(program).run()
    best = judged(plain, plain)
    assert ready(best), best.faults
    assert not figures.hidden(plain)
    for random in (None, *(Random(seed + more) for more in range(4))):
        for one in odd.programs:
            one.moves = by_hand(one, random)
        verdict = judged(read(encode(odd)), plain)
        assert verdict.correct, verdict.faults
        assert verdict.time == best.time
        assert verdict.memory >= best.memory
        assert random is not None or "outside the five stores" not in "".join(verdict.notes)
