"""How other programs are started: by their full path, and Python with the modules of this process.

In: a program's or a module's name. Out: a command. Somebody else may have filled the working folder, and relative
entries of the search paths mean it: neither a program nor a module is taken from there.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

AWAY = sys.prefix  # a working folder for other processes: who can write there has written the code that runs


def find_program(name: str) -> str | None:
    """The full path of a program on the PATH, None if it is in none of its absolute entries."""
    for folder in map(Path, os.get_exec_path()):
        if folder.is_absolute() and (found := shutil.which(folder / name)):
            return str(found)
    return None


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module as `python -m` does, found where this process finds its own.

    `-m` would look into the working folder first, `-P` forbids that only from Python 3.11 on, and `-I` would also
    forget where a person has installed things: the user's own packages and PYTHONPATH.
    """
    paths = [path for path in sys.path if Path(path).is_absolute()]
    run = f"import runpy; runpy.run_module({module!a}, None, '__main__', True)"
    return [sys.executable, "-c", f"import sys; sys.path[:] = {paths!a}; {run}", *arguments]
