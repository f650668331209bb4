"""Emacs in a terminal, driven with real keys, with our recipe for eglot or lsp-mode.

In: a text, and what else the user has configured. Out: the screen and the cursor. Knows nothing about completions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tests.e2e.installed import FOLDER, HOW
from tests.e2e.terminal import Terminal
from tests.processes import wait_until

EMACS = shutil.which("emacs")
_PATIENCE = 50  # tenths of a second until it is asked again
RECIPE = Path(__file__).parents[2] / "editors" / "emacs" / "spd-lsp.el"
NEWER = FOLDER / "prefix" / "usr" / "share" / "emacs" / "site-lisp" / "elpa-src"  # packages of a newer release

INIT = """
(setq make-backup-files nil auto-save-default nil create-lockfiles nil inhibit-startup-screen t)
(setq native-comp-async-report-warnings-errors nil) ; of Debian's packages, in a window of their own
(column-number-mode)
(load {recipe})
"""

# lsp-mode runs ours beside another server, which comes first.
_LSP_MODE = """
(require 'lsp-mode)
(setq lsp-auto-guess-root t lsp-enable-file-watchers nil lsp-warn-no-matched-clients nil
      lsp-enabled-clients '(spd-lsp second))
(lsp-register-client
  (make-lsp-client :server-id 'second :major-modes '(python-mode) :priority 1
                   :new-connection (lsp-stdio-connection '({command}))))
(add-hook 'python-mode-hook #'lsp)
"""
CLIENTS = {"eglot": "(add-hook 'python-mode-hook #'eglot-ensure)", "lsp-mode": _LSP_MODE}

# The state of our server's model.
READY = {
    "eglot": "(plist-get (jsonrpc-request (eglot-current-server) :spd-lsp/status nil) :kind)",
    "lsp-mode": """(when (lsp-find-workspace 'second nil) (with-lsp-workspace (lsp-find-workspace 'spd-lsp nil)
      (lsp-get (lsp-request "spd-lsp/status" nil) :kind)))""".replace("\n", ""),
}


def newer_packages() -> str:
    """Return what puts the packages of a newer release before Debian's."""
    return f'(dolist (it (directory-files {lisp_string(str(NEWER))} t "^[^.]")) (push it load-path))'


def lisp_string(text: str) -> str:
    """Return the text as an Emacs Lisp string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@cache
def missing(*packages: str) -> str:
    """Return why tests that need Emacs with these packages are skipped; empty if all of them are there."""
    if not EMACS or not find_spec("pyte"):
        return f"needs Emacs and Python's pyte; {HOW}"
    script = [
        "--eval",
        "(package-initialize)",
        *(part for name in packages for part in ("--eval", f"(require '{name})")),
    ]
    found = subprocess.run([EMACS, "--batch", *script], capture_output=True, check=False)
    return f"needs Emacs with {', '.join(packages)}; {HOW}" if found.returncode else ""


class Emacs(Terminal):
    """Emacs, and what its screen shows."""

    _asked = 0

    @property
    def cursor(self) -> tuple[int, int]:
        """Return line and column, from 0, from the mode line."""
        self.wait(0)
        line, column = re.findall(r"\((\d+),(\d+)\)", self.text)[-1]
        return int(line) - 1, int(column)

    def evaluates(self, expression: str, result: str) -> bool:
        """Return whether an expression has this result; an error is none. Old answers have other numbers."""
        self._asked += 1
        self.type(f"\x1b:(list {self._asked} (ignore-errors {expression}))\r")
        for _ in range(_PATIENCE):  # Emacs forgets keys that wait when it reports an error
            if self.shows(f"({self._asked} "):
                break
        return self.screen.display[-1].strip() == f"({self._asked} {result})"

    def save(self) -> None:
        """Write the file."""
        self.type("\x18\x13")
        wait_until("the file is written", lambda: self.shows("Wrote"))


@contextmanager
def emacs(file: Path, configuration: str, text: str = "") -> Iterator[Emacs]:
    """Run Emacs on a Python file in a project of its own, with our recipe and this configuration."""
    home = Path(os.environ["HOME"])
    init = home / ".emacs.d" / "init.el"
    init.parent.mkdir(parents=True)
    init.write_text(INIT.format(recipe=lisp_string(str(RECIPE))) + configuration)
    (file.parent / ".git").mkdir(parents=True)
    file.write_text(text)
    editor = Emacs([str(EMACS), "-nw", str(file)])
    try:
        wait_until("the file is shown", lambda: editor.shows(f" {file.name} "))
        yield editor
    finally:
        editor.quit()
