"""What an editor can show about the server: whether it is ready, and why the last completion was empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spd_lsp.completion.exclusions import OFF
from spd_lsp.completion.loading import NOT_SUPERPOSED
from spd_lsp.output.printable import printable
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.completion.offer import CompletionResult

LOADING = "the model is loading"
READY = "the model is ready"
FROM_SERVER = f"a model server is asked for whole drafts: {NOT_SUPERPOSED}"
COMPUTING = "the model is still computing"  # the reason if nobody waits for what it computes


@dataclass(slots=True)
class Status:
    """The state of the model, and what the last completion took."""

    kind: str = "loading"  # or "normal", "error"
    message: str = LOADING
    problem: str = ""  # with the model that is set, in whose place another one completes
    reason: str = ""  # why the last completion was empty
    seconds: float = 0.0  # that the last completion took for which there was a pass
    last: CompletionResult | None = None  # of the last completion

    def as_json(
        self, *, busy: bool, settings: Settings, model: str, indexing: tuple[str, float] | None
    ) -> dict[str, Any]:
        """The result of the request `spd-lsp/status`; `busy` while a completion runs.

        model: that completes. indexing: the name of the folder that is being indexed, and the share that is done.
        """
        return {
            "busy": busy or self.kind == "loading",
            "kind": self.kind,
            "message": printable(self.message) if settings.enabled else OFF,
            "reason": printable(self._too_slow() if self.reason == COMPUTING else self.reason),
            "problem": printable(self.problem or (self.last.instead if self.last else "")),
            "model": printable(model),
            "tables": [printable(name) for name in self.last.ngrams] if self.last else [],
            "indexing": {"folder": printable(indexing[0]), "share": indexing[1]} if indexing else None,
            "lastPasses": self.last.passes if self.last else 0,
            "lastTokensRead": self.last.read_tokens if self.last and self.last.passes else 0,
            "lastMilliseconds": round(self.seconds * 1000),
        }

    def _too_slow(self) -> str:
        if self.seconds < 0.05:
            return COMPUTING
        return f"the model takes {self.seconds:.1f} s for a completion, and typing went on before that"
