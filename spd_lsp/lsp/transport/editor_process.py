"""Whether the editor that a server belongs to still runs. Editors say which process they are.

The end of input tells it too, unless another process holds the other end open.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

EVERY = 3.0  # seconds


def runs(process: int) -> bool:
    """Whether a process of this number is there; always True where that cannot be asked without harm."""
    if os.name != "posix" or process <= 0:
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's, or no number of a process
    return True


def visible(process: int | None) -> int | None:
    """The process, if it is there to be watched: through ssh or in a container its number is another machine's."""
    return process if process is not None and runs(process) else None


async def gone(named: Callable[[], int | None]) -> int:
    """Wait until the process that an editor named has ended; for ever if it names none."""
    while (process := named()) is None or runs(process):
        await asyncio.sleep(EVERY)
    return process
