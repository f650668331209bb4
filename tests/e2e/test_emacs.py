"""A real Emacs with our eglot configuration and the bundled model, in a hostile project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile import Trap

EMACS = shutil.which("emacs")
ROOT = Path(__file__).parents[2]
TIMEOUT = 240.0  # seconds

HAS_EGLOT = ["emacs", "--batch", "--eval", "(require 'eglot)"]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        EMACS is None or subprocess.run(HAS_EGLOT, capture_output=True).returncode != 0,
        reason="needs emacs with eglot, such as `apt-get install emacs-nox elpa-eglot`",
    ),
]

# Connects as M-x eglot does, waits for the model to load, and requests completions as C-M-i does.
DRIVE = """
(require 'project)
(package-initialize)
(load {configuration!r})
(setq eglot-sync-connect 120 eglot-autoshutdown nil)
(find-file "app.py")
(python-mode)
(hack-local-variables)
(apply #'eglot--connect (eglot--guess-contact))
(let ((server (eglot-current-server)) (end (+ (float-time) 120)))
  (while (and (< (float-time) end)
              (equal "loading" (plist-get (jsonrpc-request server :spd-lsp/status nil) :kind)))
    (sleep-for 0.2))
  (goto-char (point-max))
  (eglot--signal-textDocument/didOpen)
  (let* ((at (eglot-completion-at-point)) (table (nth 2 at)))
    (message "OFFERED %S" (length (all-completions (buffer-substring (nth 0 at) (nth 1 at)) table))))
  (accept-process-output nil 0.5)
  (kill-process (jsonrpc--process server)))
"""


def lisp_string(text: str) -> str:
    """Return the text as an Emacs Lisp string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def test_a_project_can_neither_replace_the_server_nor_choose_its_tables(tmp_path: Path):
    trap = Trap(tmp_path)
    (trap.folder / ".git").mkdir()
    (trap.folder / "app.py").write_text("import os\nprint(os.")
    settings = f'(:spd-lsp (:dataDir {lisp_string(str(tmp_path / "evil"))} :device "meta" :drafts 2))'
    (trap.folder / ".dir-locals.el").write_text(f"((nil . ((eglot-workspace-configuration . {settings}))))\n")
    script = tmp_path / "drive.el"
    configuration = lisp_string(str(ROOT / "editors" / "emacs" / "spd-lsp.el"))
    script.write_text(DRIVE.replace("{configuration!r}", configuration))
    path = os.pathsep.join([".", "", str(Path(sys.executable).parent), os.environ["PATH"]])
    emacs = subprocess.run(
        [str(EMACS), "--batch", "-q", "-l", str(script)],
        cwd=trap.folder,
        env={**os.environ, "PATH": path, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    output = emacs.stdout + emacs.stderr
    assert "OFFERED 2" in output, output
    assert "'dataDir', 'device' ignored: this configuration may come from the open folder" in output
    assert not (tmp_path / "evil").exists()
    assert set(trap.sprung) <= {"program git"}, "Emacs itself runs git"
