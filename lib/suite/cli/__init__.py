"""The `puzzles` command."""

import sys

# chalk logs with loguru if installed, else prints. loguru imports asyncio, which takes a tenth of a short command.
sys.modules.setdefault("loguru", None)  # pyright: ignore[reportArgumentType]
