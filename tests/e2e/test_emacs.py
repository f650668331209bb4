"""A real Emacs with our eglot configuration and the bundled model, in a hostile project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.emacs import NEWER, RECIPE, emacs, lisp_string, missing, newer_packages
from tests.e2e.installed import HOW
from tests.e2e.nvim import environment
from tests.hostile import Trap
from tests.processes import wait_until

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


def run_emacs(script: str, folder: Path, home: Path) -> str:
    """Run Emacs Lisp in a folder with our configuration and a PATH that leads into the folder; what it prints."""
    file = home / "drive.el"
    file.write_text(script.replace("{configuration!r}", lisp_string(str(RECIPE))))
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


# Packages that are installed need no `require`.
GHOST_TEXT = """
(require 'lsp-mode)
(require 'lsp-inline-completion)
(setq lsp-auto-guess-root t lsp-enable-file-watchers nil lsp-warn-no-matched-clients nil
      lsp-enabled-clients '(spd-lsp))
(add-hook 'python-mode-hook #'lsp)
"""
ASKS = '(lsp-get (lsp-request "spd-lsp/status" nil) :{key})'


@pytest.mark.skipif(not NEWER.is_dir(), reason=f"needs lsp-mode 10; {HOW}")
def test_lsp_mode_shows_ghost_text_and_tab_accepts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With the recipe of the README."""
    for name, value in (environment(tmp_path) | {"HOME": str(tmp_path / "home")}).items():
        monkeypatch.setenv(name, value)
    recipe = (ROOT / "editors" / "README.md").read_text(encoding="utf-8").split("```elisp\n")[2].split("```")[0]
    file, text = tmp_path / "project" / "app.py", "import json\n\n\ndef load(file):\n    return json"
    with emacs(file, newer_packages() + GHOST_TEXT + recipe, text) as editor:
        wait_until("the model is loaded", lambda: editor.evaluates(ASKS.format(key="kind"), '"normal"'))
        editor.type("\x1b>.")  # at the end of the buffer
        wait_until("drafts are offered", lambda: editor.shows("Completion 1/"))
        editor.type("\x0c")  # have it drawn: what a timer did, Emacs 28 draws with the next key only
        (draft,) = wait_until(
            "the first is shown", lambda: re.findall(r"json(\.\w.*\S)", editor.text) or editor.wait(0.1)
        )
        editor.press("Tab")
        editor.save()
        assert file.read_text() == f"{text}{draft}\n"
        wait_until("it is counted", lambda: not editor.evaluates(ASKS.format(key="usage"), '""'))


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
