"""Runs students' functions in limited processes, which send back data and nothing else.

A process runs a function at a size, or has it answer inputs, and writes JSON: the Trace, the answers, or the text of an
error with the Trace up to there, and what was printed. It judges nothing and records nothing. The student's code runs
in it and can change anything it writes, so the process that asked treats that like a stranger's data: reads it field by
field, and judges it there. To forge a Trace, you must forge a correct training step.

    with Isolation() as isolation:
        sent = isolation.run(source, "fsdp", AtSize(2, 3, 6))

If the system allows, each run is a child of a server that has imported everything and knows nothing, behind walls
(`Isolation.features` says which); otherwise, and for your own function (`run_of`, `answers_of`), it is a fresh Python.
"""
