"""The `puzzles` command."""

import sys

# chalk logs by loguru where it is there, and prints otherwise. It imports asyncio, which is a tenth of a short command.
sys.modules.setdefault("loguru", None)  # pyright: ignore[reportArgumentType]
