"""`eval llama-server` asks llama.cpp's own server and ours at the same places."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from tests.conftest import STARTER_FILES

READER = "def read_{0}(path):\n    with open(path, encoding='utf-8') as file:\n        return file.read()\n\n\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
def test_both_servers_answer_at_the_same_places(tmp_path: Path):
    for number in range(3):
        code = "".join(READER.format(f"{name}_{number}") for name in ("one", "two", "three"))
        (tmp_path / f"reader_{number}.py").write_text(code, encoding="utf-8")
    done = CliRunner().invoke(main, ["eval", "llama-server", str(tmp_path), "--places", "2", "--timed", "2"])
    assert done.exit_code == 0, done.output
    rows = {row[0].strip("| "): row[1:] for row in (line.split(" | ") for line in done.stdout.splitlines()[2:])}
    assert float(rows["the first answer, CPU ms"][0].split()[0]) > 0
    assert all(float(cell.strip(" |")) > 100 for cell in rows["memory, MiB"])
    found = [int(re.sub(r"\D", "", cell)) for cell in rows["exact first answers of 2"]]
    assert found[1] == 2, "what stands above in the file is copied"
    assert found[0] <= 2


def test_a_folder_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    for name in ("tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_bytes((STARTER_FILES / "tokenizer.json").read_bytes())
    done = CliRunner().invoke(main, ["eval", "llama-server", str(tmp_path), "--model", str(tmp_path)])
    assert (done.exit_code, "needs a GGUF file" in done.output) == (1, True)
