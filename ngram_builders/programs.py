"""Other processes: the command that runs a module of ours in one, and whether one runs.

The working folder may be a stranger's, and relative entries of the search path mean that folder: no module is run
from there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

NEUTRAL_CWD = sys.prefix  # working folder of child processes: only who can write our own code can write there


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module as `python -m` does, with this process's search path.

    `-m` would search the working folder first, `-P` prevents that only from Python 3.11 on, and `-I` would also
    ignore the user's own packages and PYTHONPATH.
    """
    paths = [path for path in sys.path if Path(path).is_absolute()]
    run = f"import runpy; runpy.run_module({module!a}, None, '__main__', True)"
    return [sys.executable, "-c", f"import sys; sys.path[:] = {paths!a}; {run}", *arguments]


def is_running(process: int) -> bool:
    """Whether a process runs on this machine; always True outside POSIX, where a check may end it."""
    if os.name == "posix" and process > 0:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):
            pass  # another user's, or not a process id
    return True
