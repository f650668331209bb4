"""Next edits: documents' versions in, proposals out, as `textDocument/copilotInlineEdit` has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spd_lsp.edits import Session
from spd_lsp.lsp.documents import LspDocument

_MAX_CHARS = 200_000  # of a document


class NextEdits:
    """What was changed in the open documents."""

    def __init__(self) -> None:
        self._session = Session()

    def see(self, documents: Iterable[LspDocument]) -> None:
        """Take in the documents in which something may be proposed, as they are now."""
        self._session.see({one.uri: one.source for one in documents if len(one.source) <= _MAX_CHARS})

    def edits(self, document: LspDocument, most: int) -> list[dict[str, Any]]:
        """Where in a document the edit just made in it is wanted, too, the likeliest first."""
        if document.uri != self._session.edited or document.source is not self._session.texts.get(document.uri):
            return []
        edits = []
        for start, end, text in self._session.proposals()[:most]:
            line, last = map(document.client_position_at_offset, (start, end))
            span = {
                "start": {"line": line.line, "character": line.character},
                "end": {"line": last.line, "character": last.character},
            }
            version = {"uri": document.uri, "version": document.version}
            edits.append({"text": text, "range": span, "textDocument": version})
        return edits
