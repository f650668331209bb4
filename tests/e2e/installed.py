"""The editors that `install-editors` installed, or that were here before."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

FOLDER = Path(os.environ.get("SPD_LSP_EDITORS", Path.home() / ".cache" / "spd-lsp-editors"))
HOW = "CONTRIBUTING.md says how to install it"

SECOND_SERVERS = {"jedi": ["jedi-language-server"]}  # as people run it beside ours


def program(*names: str) -> str:
    """Return the path of the first of these programs that is installed, or an empty string."""
    folders = [str(FOLDER / "bin"), str(FOLDER / "python" / "bin"), os.environ.get("PATH", os.defpath)]
    found = (shutil.which(name, path=os.pathsep.join(folders)) for name in names)
    return next(filter(None, found), "")


def neovims() -> list[str]:
    """Return every Neovim: the one that was installed for tests, and the system's."""
    found = [shutil.which("nvim", path=str(FOLDER / "bin")), shutil.which("nvim")]
    return list(dict.fromkeys(filter(None, found)))


def second_server(name: str) -> list[str]:
    """Return the command of another language server; empty if it is not installed."""
    server, *arguments = SECOND_SERVERS[name]
    return [path, *arguments] if (path := program(server)) else []
