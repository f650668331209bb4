"""What is not everywhere: packages of an extra in pyproject.toml, and what only contributors run, from a clone."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.util import find_spec

MODELS = ("torch", "transformers")  # the extra `models`, for Hugging Face folders
_FROM_CLONE = ("spd_lsp.evaluation", "spd_lsp.training")  # of which the wheel leaves out what users do not need


def install_command(extra: str = "") -> str:
    """The command that adds what is missing to the environment of this program. uv makes some that have no pip."""
    pip = [sys.executable, "-m", "pip", "install"]
    uv = ["uv", "pip", "install", "--python", sys.executable]
    command = [*(pip if find_spec("pip") else uv), f"spd-lsp[{extra}]" if extra else "spd-lsp"]
    return subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)


def missing_for_models() -> str:
    """What is missing for models in Hugging Face folders, and the remedy; "" if nothing is."""
    missing = [name for name in MODELS if find_spec(name) is None]
    are = "are" if len(missing) > 1 else "is"
    return (
        f"needs {' and '.join(missing)}, which {are} not installed; run: {install_command('models')}"
        if missing
        else ""
    )


def remedy_for(module: str | None) -> str:
    """What to do where a command needs a module that is not there; "" if it should be."""
    if module in MODELS:
        return f"this command {missing_for_models()}"
    if module in ("starlette", "uvicorn"):
        return f"--http needs {module}; run: {install_command('http')}"
    if module == "rapidfuzz":
        return f"this command needs rapidfuzz; run: {install_command('bench')}"
    if not (module or "").startswith(_FROM_CLONE):
        return ""
    return (
        "this command is not part of the installed package, as only contributors need it; "
        "run it from a clone of the repository"
    )
