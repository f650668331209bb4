"""Packages that are only installed with an extra of pyproject.toml, and the commands that install them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.util import find_spec

MODELS = ("torch", "transformers")  # the extra `models`, for Hugging Face folders


def install_command(extra: str = "") -> str:
    """The command that installs packages in this program's environment: with uv where uv made one without pip."""
    pip = [sys.executable, "-m", "pip", "install"]
    uv = ["uv", "pip", "install", "--python", sys.executable]
    command = [*(pip if find_spec("pip") else uv), f"spd-lsp[{extra}]" if extra else "spd-lsp"]
    return subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)


def missing_for_models() -> str:
    """The packages that models in Hugging Face folders lack, and the remedy, in a sentence; "" if none."""
    missing = [name for name in MODELS if find_spec(name) is None]
    needs = f"needs {' and '.join(missing)}, which {'are' if len(missing) > 1 else 'is'} not installed"
    return f"{needs}; run: {install_command('models')}" if missing else ""


def remedy_for(module: str | None) -> str:
    """The sentence about a module that a command cannot import; "" if it belongs to no extra."""
    if module in MODELS:
        return f"this command {missing_for_models()}"
    if module in ("msgspec", "prometheus_client", "starlette", "uvicorn"):
        return f"this needs {module}; run: {install_command('http')}"
    return ""
