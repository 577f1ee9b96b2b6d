"""A student's function in a limited process of its own, which sends back data and nothing else.

The process runs the function at a size, or has it answer inputs, and writes JSON: the Trace, the answers, or the text
of an error with the Trace up to there, and what was printed. It judges nothing and records nothing. The student's code
runs in it and can do as it likes with all that it writes, so the process that asked takes that as what a stranger
sends: it is read as data, field by field, and judged there. Who forges a Trace has to forge a correct training step.
"""

from lib.suite.course.child.asking import LIMIT, answers_of, run_of
from lib.suite.course.child.messages import OUTCOMES, Sent

__all__ = ["LIMIT", "OUTCOMES", "Sent", "answers_of", "run_of"]
