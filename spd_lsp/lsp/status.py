"""What an editor can show about the server: whether it is ready, and why the last completion was empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spd_lsp.printable import printable

LOADING = "the model is loading"
READY = "the model is ready"
OFF = "completions are off"


@dataclass(slots=True)
class Status:
    """The state of the model, and what the last completion took."""

    kind: str = "loading"  # or "normal", "error"
    message: str = LOADING
    reason: str = ""  # why the last completion was empty
    passes: int = 0
    seconds: float = 0.0

    def as_json(self, *, busy: bool, enabled: bool, indexing: tuple[str, float] | None) -> dict[str, Any]:
        """The result of the request `spd-lsp/status`; `busy` while a completion runs.

        indexing: the name of the folder that is being indexed, and the share that is done.
        """
        return {
            "busy": busy or self.kind == "loading",
            "kind": self.kind,
            "message": printable(self.message) if enabled else OFF,
            "reason": printable(self.reason),
            "indexing": {"folder": printable(indexing[0]), "share": indexing[1]} if indexing else None,
            "lastPasses": self.passes,
            "lastMilliseconds": round(self.seconds * 1000),
        }
