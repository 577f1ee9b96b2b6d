"""A pytest plugin for `make mutants`: the frames that mutmut puts before a mutated function are no student's.

A message shows the innermost line on the stack that is neither the library's nor Python's.
"""

import os
from types import CodeType

from lib.errors import source_lines as errors

is_students = errors.is_students


def without_mutmut(code: CodeType) -> bool:
    return is_students(code) and f"{os.sep}mutmut{os.sep}" not in code.co_filename


errors.is_students = without_mutmut
