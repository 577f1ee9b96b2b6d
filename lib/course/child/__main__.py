"""The other process, where it is a fresh Python: `python -P -m lib.course.child FOLDER`."""

import sys

from lib.course.child.running import main

if __name__ == "__main__":
    main(sys.argv[1])
