"""The other process, where it is a fresh Python: `python -P -m lib.suite.course.child FOLDER`."""

import sys

from lib.suite.course.child.running import main

if __name__ == "__main__":
    main(sys.argv[1])
