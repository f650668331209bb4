"""What else is open costs a completion next to nothing: the steps are counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.loading import load_completer
from spd_lsp.ngrams.open_documents import DocumentChange, OpenDocument
from spd_lsp.settings import Settings

FEW, MANY = 20, 250
TEXT = "import os\n\n\ndef total(basket):\n    amount_of_all = 0\n    for item in basket:\n        amount_\n"
CURSOR = len(TEXT) - 1


def document(number: int) -> OpenDocument:
    """One that shares no habits with others, and whose names begin otherwise than what is typed."""
    name = f"n{number}"
    lines = [
        f"def {name}_{line}({name}_x, {name}_y):\n    return {name}_x.{name}_{line} + {line}\n"
        for line in range(20)
    ]
    return OpenDocument(f"file:///{name}.py", Path(f"/{name}.py"), "python", "".join(lines))


def steps(completer: Completer, text: str = TEXT, cursor: int = CURSOR, name: str = "app") -> int:
    """The functions that one completion calls, of C too."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        path = Path(f"/{name}.py")
        completer.complete(text, cursor, "python", path, name=path.as_uri(), explicit=True)
    finally:
        sys.setprofile(None)
    return count


def show(completer: Completer, first: int, end: int) -> None:
    for number in range(first, end):
        one = document(number)
        completer.update_documents({one.name: DocumentChange(one, False)})
    while completer.run_idle_work(1.0):
        pass


@pytest.fixture
def completer(tmp_path: Path) -> Completer:
    return load_completer(Settings(data_dir=str(tmp_path)), lambda text: None)


def after_leaving_a_line(completer: Completer) -> int:
    steps(completer)
    written = TEXT[:CURSOR] + "of_all += item\n    return amount_\n"
    return steps(completer, written, len(written) - 1)


def after_a_look_elsewhere(completer: Completer) -> int:
    steps(completer, name="other")
    return steps(completer)


@pytest.mark.slow
@pytest.mark.parametrize("ask", [steps, after_leaving_a_line, after_a_look_elsewhere])
def test_a_completion_takes_hardly_more_steps_beside_many_open_documents_than_beside_few(
    completer: Completer, ask: Callable[[Completer], int]
):
    taken = []
    for first, end in ((0, FEW), (FEW, MANY)):
        show(completer, first, end)
        ask(completer)
        taken.append(ask(completer))
    assert taken[1] < 1.15 * taken[0]
