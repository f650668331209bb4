"""Keeps the working folder, which others may have filled, out of the search paths of this process and children.

Editors start the server in the folder that the user opened, and users run commands in repositories of others.
Nothing there may be imported or run. In: `sys.path` and the environment. Out: both without entries that mean the
working folder. Imports nothing that is not loaded yet.
"""

from __future__ import annotations

import os
import sys

OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # where this package was imported from
PYTHON_LIBRARY = os.path.dirname(os.path.abspath(os.__file__))
_SITE_PACKAGES = ("site-packages", "dist-packages")


def ignore_working_folder() -> None:
    """Import and run nothing from the working folder from now on, children included.

    `python -m` puts that folder first, and an empty entry in PYTHONPATH or PATH means it.
    """
    working_folder = _working_folder()
    sys.path[:] = [entry for entry in sys.path if is_safe(entry, working_folder)]
    for name in ("PYTHONPATH", "PATH"):
        if name in os.environ:
            safe = [entry for entry in os.environ.pop(name).split(os.pathsep) if is_safe(entry, working_folder)]
            if safe:  # an empty PATH would mean the working folder again
                os.environ[name] = os.pathsep.join(safe)
    os.environ["NODEFAULTCURRENTDIRECTORYINEXEPATH"] = "1"  # or Windows looks for programs there before the PATH
    _make_child_pythons_safe()


def leave_working_folder() -> None:
    """Change to Python's own folder: whoever can write there has written the code that runs."""
    os.chdir(sys.prefix)


def _working_folder() -> str:
    """The working folder, or an empty string if it was removed."""
    try:
        return os.path.realpath(os.getcwd())
    except OSError:
        return ""


def is_safe(entry: str, working_folder: str) -> bool:
    """Whether an entry of a search path means a folder that others cannot have filled."""
    if not os.path.isabs(entry):
        return False
    if os.path.realpath(entry) != working_folder:
        return True
    return entry in (OWN, PYTHON_LIBRARY) or os.path.basename(entry) in _SITE_PACKAGES


def _make_child_pythons_safe() -> None:
    """Keep Python processes that are started from here, such as a pool's workers, from importing from there."""
    if sys.version_info >= (3, 11):
        os.environ["PYTHONSAFEPATH"] = "1"
    else:  # has no such variable; workers get this process's import path as soon as they run
        from multiprocessing import util

        flags = util._args_from_interpreter_flags  # type: ignore[attr-defined]
        util._args_from_interpreter_flags = lambda: ["-I", *flags()]  # type: ignore[attr-defined]
