"""Next edits of one session: documents' versions in, proposals out, as `textDocument/copilotInlineEdit` has them.

Off unless the setting `nextEdits` is on. Nothing here waits for the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from lsprotocol import types

from spd_lsp.completion.syntax.languages import LANGUAGES
from spd_lsp.edits.observed import Observed
from spd_lsp.edits.propose import Proposal, propose
from spd_lsp.lsp.documents import LspDocument

_MAX_CHARS = 200_000  # of a document


class NextEdits:
    """What was changed in each open document."""

    def __init__(self) -> None:
        self.observed: dict[str, Observed] = {}
        self.running = asyncio.Lock()

    def see(self, documents: Sequence[LspDocument]) -> None:
        """Take in the open documents as they are now, and forget the others."""
        seen = {}
        for document in documents:
            if len(document.source) <= _MAX_CHARS and not document.may_hold_secrets:
                seen[document.uri] = self.observed.get(document.uri) or Observed(document.source)
                seen[document.uri].see(document.source)
        self.observed = seen

    async def edits(self, document: LspDocument, most: int) -> list[dict[str, Any]]:
        """The likeliest places where the newest edit is wanted, too; none if the document changes meanwhile."""
        observed, version = self.observed.get(document.uri), document.version
        if observed is None:
            return []
        async with self.running:
            if document.version != version:
                return []
            language = LANGUAGES.get(document.language_id or "")
            found = await asyncio.to_thread(propose, observed.recent, document.source, language)
        return [_as_edit(document, one) for one in found[:most]] if document.version == version else []


def _as_edit(document: LspDocument, proposal: Proposal) -> dict[str, Any]:
    span = types.Range(*map(document.client_position_at_offset, (proposal.start, proposal.end)))
    return {
        "text": proposal.text,
        "range": {
            "start": {"line": span.start.line, "character": span.start.character},
            "end": {"line": span.end.line, "character": span.end.character},
        },
        "textDocument": {"uri": document.uri, "version": document.version},
        "probability": round(proposal.probability, 3),
    }
