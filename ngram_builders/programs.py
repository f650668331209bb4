"""Commands for other programs: by their full path, and Python with the modules of this process.

In: the name of a program or module. Out: a command. The working folder may be a stranger's, and relative entries
of the search paths mean that folder: neither programs nor modules are run from there.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

NEUTRAL_CWD = sys.prefix  # working folder of child processes: only who can write our own code can write there


def find_program(name: str) -> str | None:
    """Return the full path of a program, None if no absolute entry of the PATH has it."""
    for folder in map(Path, os.get_exec_path()):
        if folder.is_absolute() and (found := shutil.which(folder / name)):
            return str(found)
    return None


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module as `python -m` does, with this process's search path.

    `-m` would search the working folder first, `-P` prevents that only from Python 3.11 on, and `-I` would also
    ignore the user's own packages and PYTHONPATH.
    """
    paths = [path for path in sys.path if Path(path).is_absolute()]
    run = f"import runpy; runpy.run_module({module!a}, None, '__main__', True)"
    return [sys.executable, "-c", f"import sys; sys.path[:] = {paths!a}; {run}", *arguments]
