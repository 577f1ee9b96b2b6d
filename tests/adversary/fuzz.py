"""The adversary at length: `make fuzz`, with FUZZ_MINUTES (default 5) or FUZZ_EXAMPLES, and FUZZ_SEED (default: new).

Writes correct steps, which must be accepted and replay as ordinary training, and dishonest edits of programs and of
Traces, none of which may be called correct. Stops at the first failure and says how to have it again.
"""

import os
import secrets
import sys
import time
from collections import Counter
from importlib.util import find_spec
from random import Random

from tests.adversary.cheats import CHEATS
from tests.adversary.forgeries import FORGERIES
from tests.adversary.judging import honest, replayed
from tests.adversary.oracle import TooFine
from tests.adversary.plans import training_step
from tests.adversary.programs import programs
from tests.adversary.test_cheats import cheat
from tests.adversary.test_forgeries import forge

TORCH = find_spec("torch") is not None


def one(seed: int, found: Counter[str]) -> None:
    """One correct step, replayed; a cheat in another one; and two forgeries of the first."""
    random = Random(seed)
    trace = programs(training_step(random), random).run()
    honest(trace)
    found["correct"] += 1
    if TORCH:
        replayed(trace)
        found["replayed"] += 1
    found[f"cheat {cheat(random.choice(sorted(CHEATS)), training_step(random), random)}"] += 1
    for _ in range(2):
        found[f"forgery {forge(random.choice(sorted(FORGERIES)), trace, random)}"] += 1


def main() -> int:
    seed = int(os.environ.get("FUZZ_SEED") or secrets.randbelow(10**9))
    most = int(os.environ.get("FUZZ_EXAMPLES") or 0)
    until = time.monotonic() + 60 * float(os.environ.get("FUZZ_MINUTES") or (5 if not most else 10**6))
    print(f"FUZZ_SEED={seed}", flush=True)
    found: Counter[str] = Counter()
    number = 0
    while time.monotonic() < until and (not most or number < most):
        try:
            one(seed + number, found)
        except TooFine:
            found["cut too fine for the oracle"] += 1
        except Exception:
            print(f"\nexample {number} failed; to have it again: make fuzz FUZZ_SEED={seed + number} FUZZ_EXAMPLES=1")
            print(_told(found))
            raise
        number += 1
        if number % 500 == 0:
            print(f"{number} examples", flush=True)
    print(_told(found))
    return 0


def _told(found: Counter[str]) -> str:
    return "\n".join(f"{count:8,} {what}" for what, count in sorted(found.items()))


if __name__ == "__main__":
    sys.exit(main())
