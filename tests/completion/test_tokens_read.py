"""While someone types, models that people use read little more than what was typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.loading import load_completer
from spd_lsp.settings import Settings
from tests.completion.test_prompt_reading import after_each_key
from tests.lsp.test_real_models import LINES

ABOVE, TYPED, BELOW = ("\n".join(LINES[start:end]) for start, end in ((0, 12), (12, 19), (19, None)))


def tokens_read(completer: Completer, monkeypatch: pytest.MonkeyPatch, *, closes: bool) -> list[int]:
    """Type seven lines into the middle of a file; the tokens of the prompt that are read at each key.

    closes: the editor closes brackets.
    """
    engine: Any = completer.model
    forward, read = engine.forward_batch, 0

    def counted(inputs: Any) -> Any:
        nonlocal read
        read += sum(len(row) for each in inputs for row in each.ids)
        return forward(inputs)

    monkeypatch.setattr(engine, "forward_batch", counted)
    counts = []
    for left, right in after_each_key(TYPED, closes=closes):
        source, read = f"{ABOVE}\n{left}{right}\n{BELOW}", 0
        completer.complete(source, len(ABOVE) + 1 + len(left), "python", explicit=True)
        counts.append(read)
    return counts[1:]


@pytest.mark.slow
@pytest.mark.parametrize("context", [1024, 128], ids=["whole file", "part of the file"])
@pytest.mark.parametrize("closes", [False, True], ids=["", "brackets closed by the editor"])
def test_a_key_reads_few_tokens(
    real_model: Path, context: int, closes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = Settings(
        model=str(real_model), device="cpu", data_dir=str(tmp_path), drafts=1, max_tokens=1, context_tokens=context
    )
    completer = load_completer(settings, lambda text: None, ngrams=False)
    read = tokens_read(completer, monkeypatch, closes=closes)
    assert len(read) > 100
    assert np.mean(read) <= 3 and np.percentile(read, 95) <= 20
