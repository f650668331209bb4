"""What else is open costs a completion next to nothing: the steps are counted, not timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.loading import load_completer
from spd_lsp.ngrams.open_documents import OpenDocument
from spd_lsp.settings import Settings
from tests.processes import steps

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


def again(completer: Completer) -> int:
    """The steps of one completion."""
    path = Path("/app.py")
    return steps(lambda: completer.complete(TEXT, CURSOR, "python", path, name=path.as_uri(), explicit=True))


def show(completer: Completer, first: int, end: int) -> None:
    for number in range(first, end):
        one = document(number)
        completer.update_documents({one.name: one})
    while completer.run_idle_work(1.0):
        pass


@pytest.fixture
def completer(tmp_path: Path) -> Completer:
    return load_completer(Settings(data_dir=str(tmp_path)), lambda text: None)


@pytest.mark.slow
def test_a_completion_takes_hardly_more_steps_beside_many_open_documents_than_beside_few(completer: Completer):
    taken = []
    for first, end in ((0, FEW), (FEW, MANY)):
        show(completer, first, end)
        again(completer)
        taken.append(again(completer))
    assert taken[1] < 1.15 * taken[0]
