"""Bodies are found by their indentation, and what was written of them is counted up to the first wrong line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.completion.offer import Completion, CompletionResult
from spd_lsp.evaluation.infilling.blocks import bodies_of, write_body
from spd_lsp.evaluation.quality.examples import PackageFile

TEXT = '''\
def add(first, second):
    total = first + second

    return total


def told():
    """Text."""
    return 1


if add(1, 2):
    pass
'''
FILE = PackageFile("shop", "sums.py", "python", TEXT)


def test_a_body_of_several_lines_that_does_not_begin_with_text_is_taken():
    (body,) = bodies_of(FILE)
    assert TEXT[body.start : body.end] == "total = first + second\n\n    return total"


@pytest.mark.parametrize(
    ("text", "shown", "kept"),
    [
        ("total = first + second\n    return total", 2, 2),
        ("total = first + second\n    return first", 2, 1),
        ("return first + second", 1, 0),
    ],
)
def test_lines_are_kept_until_one_is_wrong(text: str, shown: int, kept: int):
    asked: list[Any] = []
    result = CompletionResult([Completion(text, 0.5)], passes=3)
    completer: Any = SimpleNamespace(
        update_documents=lambda *changes: None,
        complete=lambda *place, name: asked.append(place) or result,
        write_block=lambda *place, name: place[-1],
    )
    (body,) = bodies_of(FILE)
    written = write_body(completer, body)
    assert (written.lines, written.shown, written.kept, written.passes) == (2, shown, kept, 3)
    assert "total" not in asked[0][0] and asked[0][0][: asked[0][1]].endswith(":\n    ")


@pytest.mark.slow
def test_the_command_writes_the_bodies_of_a_repository(repository):
    done = CliRunner().invoke(main, ["eval", "blocks", str(repository), "--files", "2"])
    assert done.exit_code == 0, done.output
    assert [line[:12].strip() for line in done.stdout.splitlines()] == [
        "bodies", "lines shown", "lines kept,", "first line r", "edit similar", "passes",
    ]  # fmt: skip
