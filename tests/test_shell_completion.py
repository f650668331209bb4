"""The shells' own completion of the command line, by the real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).parent / "spd-lsp"
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="shells of Unix"),
    pytest.mark.skipif(not PROGRAM.exists(), reason="needs the installed program"),
]
BASH = """
source {script}
COMP_WORDS=(spd-lsp ngr) COMP_CWORD=1
_spd_lsp_completion spd-lsp ngr spd-lsp
echo "${{COMPREPLY[@]}}"
"""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb", **more}


def script_of(shell: str, folder: Path) -> Path:
    """What `_SPD_LSP_COMPLETE=SHELL_source spd-lsp` prints, in a file; skips without the shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    variables = environment(_SPD_LSP_COMPLETE=f"{shell}_source")
    done = subprocess.run([PROGRAM], env=variables, capture_output=True, text=True, check=True)
    script = folder / f"complete.{shell}"
    script.write_text(done.stdout)
    return script


def output(*command: str) -> str:
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_bash_completes_commands(tmp_path: Path):
    script = script_of("bash", tmp_path)
    assert output("bash", "--norc", "-c", BASH.format(script=script)).split() == ["ngrams"]
