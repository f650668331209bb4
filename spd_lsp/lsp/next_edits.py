"""Next edits of one session: documents' versions in, proposals out, as `textDocument/copilotInlineEdit` has them.

Imported files that are not open are read from the disk for each answer, and not kept. Off unless the setting
`nextEdits` is on. Nothing here waits for the model, but a moment to hear which files are imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lsprotocol import types

from ngram_builders.sources.filters import NotSource, is_notebook, read_file
from ngram_builders.sources.language_ids import language_of, related_languages
from spd_lsp.edits.candidates import Opened
from spd_lsp.edits.observed import Observed, Recent
from spd_lsp.edits.propose import Proposal, propose
from spd_lsp.lsp.documents import LspDocument

_MAX_CHARS = 200_000  # of a document
_MAX_BESIDE = 8  # other documents in which places are looked for
_MAX_CLOSED = 16  # files that are read
_MAX_BYTES = 1_000_000  # of them together

Imported = Callable[[LspDocument], Awaitable[list[LspDocument]]]


class NextEdits:
    """What was changed in each open document."""

    def __init__(self) -> None:
        self.observed: dict[str, Observed] = {}  # the document that was edited last comes last
        self.running = asyncio.Lock()

    def see(self, documents: Sequence[LspDocument]) -> None:
        """Take in the open documents as they are now, and forget the others."""
        now = {document.uri: document for document in documents if _is_read(document)}
        self.observed = {uri: observed for uri, observed in self.observed.items() if uri in now}
        for uri, document in now.items():
            if uri not in self.observed:
                self.observed = {uri: Observed(document.source), **self.observed}
            elif self.observed[uri].text is not document.source:
                observed = self.observed.pop(uri)
                observed.see(document.source)
                self.observed[uri] = observed

    async def edits(
        self,
        document: LspDocument,
        documents: Collection[LspDocument],
        most: int | None,
        imported: Imported,
    ) -> list[dict[str, Any]]:
        """The likeliest places where the newest edit is wanted, too: those in the document come first.

        Without a number, one in the document, which is all that some clients can show. None if something changes
        meanwhile. `imported`: the files that a document imports and that are not open.
        """
        if document.uri not in self.observed:
            return []
        async with self.running:
            opened = {one.uri: one for one in documents if one.uri in self.observed}
            revisions = [one.revision for one in opened.values()]
            edited, beside = self._edited_and_beside(opened, document)
            recent = self._recent(edited.name)
            closed = await imported(opened[edited.name]) if recent.now and most is not None else []
            beside += map(_opened, closed)
            found = await asyncio.to_thread(propose, recent, edited, beside)
            if [one.revision for one in opened.values()] != revisions:
                return []
        here = [one for one in found if one.document == document.uri]
        elsewhere = [one for one in found if one.document != document.uri]
        shown = here[:1] if most is None else [*here, *elsewhere][:most]
        known = {one.uri: one for one in closed} | opened
        return [_as_edit(known[one.document], one) for one in shown]

    def _edited_and_beside(
        self, opened: dict[str, LspDocument], asked: LspDocument
    ) -> tuple[Opened, list[Opened]]:
        """The document that was edited last, and others that may share its code, the one asked for first."""
        newest, *rest = [opened[uri] for uri in reversed(self.observed) if uri in opened]
        group = related_languages(newest.language_id or "")
        rest.sort(key=lambda one: one is not asked)
        alike = [one for one in rest if one.language_id in group]
        return _opened(newest), [_opened(one) for one in alike[:_MAX_BESIDE]]

    def _recent(self, uri: str) -> Recent:
        """The edits of a document; the earlier ones of others may have been the same."""
        now, earlier = self.observed[uri].recent
        return Recent(now, (*earlier, *self._elsewhere(uri))) if now else Recent((), ())

    def _elsewhere(self, uri: str) -> Iterator[Any]:
        for other, observed in self.observed.items():
            if other != uri:
                yield from observed.recent.now
                yield from observed.recent.earlier


def read_closed(paths: Iterable[str], encoding: str) -> list[LspDocument]:
    """The files at these paths, without a version; those that are no UTF-8 text, or long, are left out."""
    found: list[LspDocument] = []
    left = _MAX_BYTES
    for path in paths:
        try:
            data = b"" if is_notebook(path) else read_file(path)
            text = data[:left].decode("utf-8-sig")
        except (NotSource, OSError, UnicodeDecodeError):
            continue
        document = LspDocument(Path(path).as_uri(), text, encoding, language_of(path), None)
        if 0 < len(data) <= left and _is_read(document):
            found.append(document)
            left -= len(data)
        if len(found) == _MAX_CLOSED:
            break
    return found


def _is_read(document: LspDocument) -> bool:
    return len(document.source) <= _MAX_CHARS and not document.may_hold_secrets


def _opened(document: LspDocument) -> Opened:
    return Opened(document.uri, document.language_id or "", document.source)


def _as_edit(document: LspDocument, proposal: Proposal) -> dict[str, Any]:
    span = types.Range(*map(document.client_position_at_offset, (proposal.start, proposal.end)))
    return {
        "text": proposal.text,
        "range": {
            "start": {"line": span.start.line, "character": span.start.character},
            "end": {"line": span.end.line, "character": span.end.character},
        },
        "textDocument": {"uri": document.uri, "version": document.version or None},
        "probability": round(proposal.probability, 3),
    }
