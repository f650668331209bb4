"""What ended a process when it was first read is left alone by the next one, which says so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ngram_builders.errors import UserError
from spd_lsp.first_use import first_use

WHAT = "the model m.gguf"
READING = """
import faulthandler, os, signal, sys
from pathlib import Path
from spd_lsp.first_use import first_use
with first_use(Path(sys.argv[1]), "the model m.gguf", "1"):
    {}
"""


def read(folder, ending):
    done = subprocess.run([sys.executable, "-c", READING.format(ending), str(folder)], capture_output=True)
    assert done.returncode != 0


def test_what_crashed_is_left_alone_until_it_changes_or_the_marker_is_deleted(tmp_path):
    read(tmp_path, "faulthandler._sigsegv()")
    reason = r"the model m\.gguf ended spd-lsp when it was last opened"
    with pytest.raises(UserError, match=reason) as error, first_use(tmp_path, WHAT, "1"):
        pytest.fail("read again")
    with first_use(tmp_path, WHAT, "2"), first_use(tmp_path, "the model n.gguf", "1"):
        pass
    [marker] = tmp_path.iterdir()
    assert str(marker) in str(error.value)
    marker.unlink()
    with first_use(tmp_path, WHAT, "1"):
        pass


@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), 9)", "raise ValueError"])
def test_what_somebody_ended_is_read_again(tmp_path, ending):
    read(tmp_path, ending)
    with first_use(tmp_path, WHAT, "1"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_keeps_nothing_from_being_read(tmp_path):
    (tmp_path / "file").touch()
    with first_use(tmp_path / "file", WHAT):
        pass
