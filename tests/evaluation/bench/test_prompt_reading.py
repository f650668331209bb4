"""Whoever types makes the model read what was typed, and hardly anything that it has read before."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tokenizers import AddedToken, Tokenizer

from spd_lsp.cli import main
from spd_lsp.completion.fill_formats import FILL_FORMATS
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.bench import prompt_reading
from spd_lsp.evaluation.bench.prompt_reading import CountingTypist, Reading, after_each_key
from spd_lsp.settings import NO_FILL_FORMAT
from tests.conftest import STARTER

MEAN, P95 = 3, 20  # tokens that a key may cost
FORMATS = {one.name: one for one in FILL_FORMATS}


def tokenizer(folder, fill_format):
    """The starter's vocabulary with the special tokens of a format, chosen by the model's type."""
    chosen = FORMATS.get(fill_format)
    marks = [] if chosen is None else [*chosen.marks, *chosen.family_tokens]
    marks += sorted(chosen.repository.marks) if chosen and chosen.repository else []
    extended = Tokenizer.from_file(str(STARTER / "tokenizer.json"))
    extended.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    extended.save(str(folder / "tokenizer.json"))
    config = {"model_type": chosen.repository.model_types[0]} if chosen and chosen.repository else {}
    (folder / "config.json").write_text(json.dumps(config))
    return ModelTokenizer(folder, fill_format)


def typed(tmp_path, typist, *, closes=False, size=None):
    """What is read while lines in the middle of a module of the standard library are typed."""
    path = tmp_path / "wrap.py"
    path.write_text(Path(textwrap.__file__).read_text(encoding="utf-8")[:size])
    reading = Reading("")
    typist.type_lines(path, reading, closes=closes)
    assert len(reading.tokens) > 150
    return reading


def is_little(reading):
    return np.mean(reading.tokens) <= MEAN and np.percentile(reading.tokens, 95) <= P95


@pytest.mark.slow
@pytest.mark.parametrize("fill_format", [*FORMATS, NO_FILL_FORMAT])
def test_a_key_makes_a_model_read_little(fill_format, tmp_path):
    reading = typed(tmp_path, CountingTypist(tokenizer(tmp_path, fill_format), 1024))
    assert reading.first[0] > 400
    assert is_little(reading), (np.mean(reading.tokens), np.percentile(reading.tokens, 95))


@pytest.mark.slow
@pytest.mark.parametrize("fill_format", [one.name for one in FILL_FORMATS if one.repository])
def test_other_files_are_not_read_again_while_they_are_edited(fill_format, tmp_path, monkeypatch):
    """Between two keys, a line at the top of another file grows, as when someone edits both in turn."""
    typist = CountingTypist(tokenizer(tmp_path, fill_format), 2048, reads_others=True)
    ask, count = typist.ask, iter(range(10_000))
    other = "def area(width, height):\n    return width * height\n\n" * 12
    typist.show(tmp_path / "other.py", other)

    def edit_and_ask(*arguments):
        typist.show(tmp_path / "other.py", "# " + "x" * next(count) + "\n" + other)
        return ask(*arguments)

    monkeypatch.setattr(typist, "ask", edit_and_ask)
    monkeypatch.setattr(prompt_reading, "_LINES", 10)
    reading = typed(tmp_path, typist, size=2_500)
    assert b"def area" in typist.completer.tokens.bytes_of(typist.engine.prompts[-1].ids)
    assert is_little(reading), (np.mean(reading.tokens), np.percentile(reading.tokens, 95))


def test_what_stands_around_the_cursor_after_each_key():
    assert list(after_each_key("f()\n  x")) == [
        ("f", ""),
        ("f(", ""),
        ("f()", ""),
        ("f()\n  ", ""),
        ("f()\n  x", ""),
    ]
    assert list(after_each_key("f([]", closes=True)) == [("f", ""), ("f(", ")"), ("f([", "])"), ("f([]", ")")]
    assert list(after_each_key("isn't", closes=True))[-1] == ("isn't", "")


@pytest.mark.slow
def test_the_command_reports_each_layout(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    shutil.copy(textwrap.__file__, folder / "wrap.py")
    out = tmp_path / "reading.json"
    ran = CliRunner().invoke(main, ["bench", "--reading", str(folder), "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    assert "| no text right of the cursor |" in ran.output
    counts = json.loads(out.read_text())["data"]
    assert {"starter", "starter, brackets closed by the editor"} <= set(counts)
    assert all(len(tokens) > 150 for tokens in counts.values())
