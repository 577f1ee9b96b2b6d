"""Processes of torch.distributed that are forked from this one: torch is imported already, which costs most."""

import multiprocessing
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

__all__ = ["MEET", "as_torchrun", "world"]

MEET = 120.0
"""Seconds for processes to meet: generous, as a busy machine starts them late."""


def world(processes: int, act: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What a function of the number of a process, and of these arguments, gives in each of some processes, which are
    to wait for one another. The first error is raised here, with the lines where it happened."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside torch's threads
        with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
            return list(pool.map(partial(_alone, act, arguments), range(processes)))


def _alone(act: Callable[..., Any], arguments: tuple[Any, ...], process: int) -> Any:
    import torch

    torch.set_num_threads(1)
    return act(process, *arguments)


def as_torchrun(processes: int, act: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The same, in processes that find what torchrun gives its own: a number, and an agent's store to meet in."""
    import torch.distributed as dist

    waiting = timedelta(seconds=MEET)
    make: Any = dist.TCPStore  # pyright: ignore[reportPrivateImportUsage]
    store = make("127.0.0.1", 0, None, is_master=True, timeout=waiting, wait_for_workers=False)
    return world(processes, partial(_started, act, processes, store.port), *arguments)


def _started(act: Callable[..., Any], processes: int, port: int, process: int, *arguments: Any) -> Any:
    number, all_ = str(process), str(processes)
    os.environ |= {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": all_, "LOCAL_WORLD_SIZE": all_}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    return act(process, *arguments)
