"""Keeps the working folder out of this process and of those that it starts: somebody else may have filled it.

An editor starts its server in the folder that a person opened, a person runs commands in the clone they look at.
Nothing there may be imported or run for that. Comes in: the process as it was started, its import path and its
environment. Goes out: both without entries that mean the working folder. Imports nothing that is not loaded yet.
"""

from __future__ import annotations

import os
import sys

OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # where this package lies: its code runs already
LIBRARY = os.path.dirname(os.path.abspath(os.__file__))
_INSTALLED = ("site-packages", "dist-packages")


def leave_out_working_folder() -> None:
    """Import and run nothing of the working folder from now on, children included.

    `python -m` puts that folder before all others, as does an empty entry in PYTHONPATH or PATH.
    """
    here = _working_folder()
    sys.path[:] = [entry for entry in sys.path if is_safe(entry, here)]
    for name in ("PYTHONPATH", "PATH"):
        if name in os.environ:
            kept = [entry for entry in os.environ.pop(name).split(os.pathsep) if is_safe(entry, here)]
            if kept:  # empty, PATH would mean the working folder again
                os.environ[name] = os.pathsep.join(kept)
    os.environ["NODEFAULTCURRENTDIRECTORYINEXEPATH"] = "1"  # Windows looks there for programs before it asks PATH
    _start_pythons_safely()


def settle_elsewhere() -> None:
    """Work in Python's own folder: who can write there has written the code that runs."""
    os.chdir(sys.prefix)


def _working_folder() -> str:
    """The working folder, empty if it was removed."""
    try:
        return os.path.realpath(os.getcwd())
    except OSError:
        return ""


def is_safe(entry: str, here: str) -> bool:
    """Whether an entry of a search path is a folder of its own, wherever the program is started."""
    if not os.path.isabs(entry):
        return False
    if os.path.realpath(entry) != here:
        return True
    return entry in (OWN, LIBRARY) or os.path.basename(entry) in _INSTALLED


def _start_pythons_safely() -> None:
    """Have no Python that is started from here look into its working folder, such as workers of a pool."""
    if sys.version_info >= (3, 11):
        os.environ["PYTHONSAFEPATH"] = "1"
    else:  # has no such variable; workers get this process's import path as soon as they run
        from multiprocessing import util

        flags = util._args_from_interpreter_flags  # type: ignore[attr-defined]
        util._args_from_interpreter_flags = lambda: ["-I", *flags()]  # type: ignore[attr-defined]
