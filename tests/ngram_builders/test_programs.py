"""Another Python finds what this one finds and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ngram_builders.programs import NEUTRAL_CWD, python

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs here are scripts of sh")


def test_a_module_runs_with_exactly_this_processs_import_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder where it is started has modules of the same names."""
    for folder, word in (("library", "installed"), ("clone", "clone")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "says_it.py").write_text(f"import json, sys\nprint({word!r}, *sys.argv[1:])\n")
        for name in ("json", "runpy", "re"):
            (tmp_path / folder / f"{name}.py").write_text(f"print({folder!r}, {name!r})\n" * (folder == "clone"))
    (tmp_path / "library" / "runpy.py").unlink()
    (tmp_path / "library" / "re.py").unlink()
    monkeypatch.setattr(sys, "path", ["", *sys.path, str(tmp_path / "library")])
    done = subprocess.run(python("says_it", "a", "b c"), cwd=tmp_path / "clone", capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("installed a b c\n", "")


def test_subprocesses_start_where_this_python_is_installed() -> None:
    assert Path(NEUTRAL_CWD).is_absolute()
    assert Path(sys.executable).is_relative_to(NEUTRAL_CWD)
