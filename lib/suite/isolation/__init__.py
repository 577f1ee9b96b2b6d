"""Students' functions in limited processes, which send back data and nothing else.

A process runs a function at a size, or has it answer inputs, and writes JSON: the Trace, the answers, or the text of an
error with the Trace up to there, and what was printed. It judges nothing and records nothing. The student's code runs
in it and can do as it likes with all that it writes, so the process that asked takes that as what a stranger sends: it
is read as data, field by field, and judged there. Who forges a Trace has to forge a correct training step.

    with Isolation() as isolation:
        sent = isolation.run(source, "fsdp", AtSize(2, 3, 6))

Where a system has it, each run is a child of a server that has imported everything and knows nothing, behind walls
(`Isolation.features` says which); else, and for somebody's own function (`run_of`, `answers_of`), it is a fresh Python.
"""
