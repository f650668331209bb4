"""A real Emacs with our eglot configuration and the bundled model, in a hostile project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.emacs import missing
from tests.e2e.installed import HOW
from tests.hostile import Trap

EMACS = shutil.which("emacs")
ROOT = Path(__file__).parents[2]
TIMEOUT = 240.0  # seconds

HAS_EGLOT = ["emacs", "--batch", "--eval", "(require 'eglot)"]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        EMACS is None or subprocess.run(HAS_EGLOT, capture_output=True).returncode != 0,
        reason=f"needs emacs with eglot; {HOW}",
    ),
]

# Connects as M-x eglot does, waits for the model to load, and requests completions as C-M-i does.
DRIVE = """
(require 'project)
(package-initialize)
(load {configuration!r})
(require 'eglot)
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


def run_emacs(script: str, folder: Path, home: Path) -> str:
    """Run Emacs Lisp in a folder with our configuration and a PATH that leads into the folder; what it prints."""
    file = home / "drive.el"
    configuration = lisp_string(str(ROOT / "editors" / "emacs" / "spd-lsp.el"))
    file.write_text(script.replace("{configuration!r}", configuration))
    path = os.pathsep.join([".", "", str(Path(sys.executable).parent), os.environ["PATH"]])
    emacs = subprocess.run(
        [str(EMACS), "--batch", "-q", "-l", str(file)],
        cwd=folder,
        env={**os.environ, "PATH": path, "HOME": str(home), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    return emacs.stdout + emacs.stderr


def test_a_project_can_neither_replace_the_server_nor_choose_its_tables(tmp_path: Path):
    trap = Trap(tmp_path)
    (trap.folder / ".git").mkdir()
    (trap.folder / "app.py").write_text("import os\nprint(os.")
    settings = f'(:spd-lsp (:dataDir {lisp_string(str(tmp_path / "evil"))} :device "meta" :drafts 2))'
    (trap.folder / ".dir-locals.el").write_text(f"((nil . ((eglot-workspace-configuration . {settings}))))\n")
    output = run_emacs(DRIVE, trap.folder, tmp_path)
    assert "OFFERED 2" in output, output
    assert "'dataDir', 'device' ignored: this configuration may come from the open folder" in output
    assert not (tmp_path / "evil").exists()
    assert set(trap.sprung) <= {"program git"}, "Emacs itself runs git"


LANGUAGES = """
(package-initialize)
(load {configuration!r})
(require 'eglot)
(dolist (mode '(python-mode python-ts-mode js-ts-mode tsx-ts-mode c++-ts-mode bash-ts-mode sh-mode))
  (message "MODE %s" (seq-find #'stringp (flatten-tree (eglot--lookup-mode mode)))))
"""


def test_every_mode_has_the_language_id_that_the_server_knows(tmp_path: Path):
    output = run_emacs(LANGUAGES, tmp_path, tmp_path)
    expected = ["python", "python", "javascript", "typescriptreact", "cpp", "shellscript", "shellscript"]
    assert re.findall(r"MODE (.*)", output) == expected


# Opens a file as M-x lsp does, and completes as C-M-i does.
DRIVE_LSP_MODE = """
(package-initialize)
(require 'lsp-mode)
(load {configuration!r})
(setq lsp-auto-guess-root t lsp-enable-file-watchers nil lsp-warn-no-matched-clients nil
      lsp-enabled-clients '(spd-lsp) lsp-session-file (expand-file-name "session" user-emacs-directory))
(find-file "app.py")
(python-mode)
(lsp)
(defun offered ()
  (goto-char (point-max))
  (let ((at (lsp-completion-at-point)))
    (length (all-completions "" (nth 2 at)))))
(let ((end (+ (float-time) 120)) (count 0))
  (while (and (< (float-time) end) (equal count 0))
    (accept-process-output nil 0.5)
    (setq count (condition-case nil (offered) (error 0))))
  (message "OFFERED %S for %S" count (lsp-buffer-language)))
(setq lsp-restart 'ignore)
(lsp-workspace-shutdown (car (lsp-workspaces)))
"""


def test_lsp_mode_offers_drafts(tmp_path: Path):
    has_lsp_mode = '(package-initialize) (message "HAS %S" (require \'lsp-mode nil t))'
    if "HAS lsp-mode" not in run_emacs(has_lsp_mode, tmp_path, tmp_path):
        pytest.skip("needs lsp-mode, such as `apt-get install elpa-lsp-mode`")
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "app.py").write_text("import os\nprint(os.")
    output = run_emacs(DRIVE_LSP_MODE, project, tmp_path)
    assert 'OFFERED 3 for "python"' in output, output


def test_with_the_recipe_of_the_readme_enter_starts_a_new_line_while_a_menu_is_open(tmp_path: Path):
    """And Tab accepts. Of Emacs's menus, company is tried where it is installed."""
    if reason := missing("company"):
        pytest.skip(reason)
    readme = (ROOT / "editors" / "README.md").read_text(encoding="utf-8")
    recipe = readme.split("```elisp\n")[1].split("```")[0]
    keys = """(package-initialize) (require 'company)
    (dolist (key '("RET" "<return>" "TAB" "<tab>"))
      (message "KEY %s %s" key (lookup-key company-active-map (kbd key))))"""
    said = re.findall("KEY (.*)", run_emacs(recipe + keys, tmp_path, tmp_path))
    assert said == [
        "RET nil",
        "<return> nil",
        "TAB company-complete-selection",
        "<tab> company-complete-selection",
    ]
