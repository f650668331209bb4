"""What the command line says with models that people have."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main

TEXT = """def read_rows(path):
    rows = []
    for line in open(path):
        if not line.strip():
            continue
        cells = line.split(",")
        rows.append(cells)

"""


@pytest.mark.slow
def test_code_begins_where_the_cursor_stands_behind_an_indentation(real_model, tmp_path):
    """With no surplus blank, and the whole statement: an indentation is not cut where the cursor stands."""
    (tmp_path / "rows.py").write_text(TEXT + "    \n", encoding="utf-8")
    run = ["--data-dir", str(tmp_path), "complete", f"{tmp_path}/rows.py:9:5", "--json", "--no-ngrams"]
    answer = CliRunner().invoke(main, [*run, "--model", str(real_model)])
    found = json.loads(answer.stdout)
    texts = [one["text"] for one in found["completions"]]
    assert texts[0] == "return rows"
    assert not any(text[:1].isspace() for text in texts)
