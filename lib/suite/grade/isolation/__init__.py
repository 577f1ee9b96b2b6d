"""Students' functions in limited processes.

Each run is in a child of its own, which is forked from a server that has imported everything and knows nothing. What
this system cannot limit, `Isolation.features` does not say.

    with Isolation() as isolation:
        sent = isolation.run(source, "fsdp", AtSize(2, 3, 6))
"""

from lib.suite.grade.isolation.asked import AtSize, asked_for
from lib.suite.grade.isolation.isolation import FEATURES, Isolation, Limits

__all__ = ["FEATURES", "AtSize", "Isolation", "Limits", "asked_for"]
