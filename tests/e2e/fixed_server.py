"""The server with its real model, but completions that a test has written down.

In: a JSON file with a list of fields of completions, and the server's arguments. Out: those, everywhere, or where
the text before the cursor ends in `behind`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from spd_lsp.cli import main
from spd_lsp.completion.completer import Completer
from spd_lsp.completion.offer import CompletionResult
from spd_lsp.completion.ranking import Completion


def run(written: Path, arguments: list[str]) -> None:
    """Serve until the editor leaves."""

    def complete(self: Completer, source: str, cursor: int, *place: Any, **more: Any) -> CompletionResult:
        drafts = json.loads(written.read_text())
        here = [fields for fields in drafts if source[:cursor].endswith(fields.pop("behind", ""))]
        completions = [Completion(**fields) for fields in here]
        return CompletionResult(completions, passes=1, seconds=0.01, index_revision=self.index_revision)

    Completer.complete = complete  # type: ignore[assignment,method-assign]
    main(arguments)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
