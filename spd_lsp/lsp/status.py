"""What an editor can show of the server: whether it is ready, and why nothing was offered.

Comes in: how loading went and what the last answer took. Goes out: one plain object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spd_lsp.printable import printable

LOADING = "the model is loading"
READY = "the model is ready"
OFF = "completions are off"


@dataclass(slots=True)
class Status:
    """How the server is."""

    kind: str = "loading"  # or "normal", "error"
    message: str = LOADING
    reason: str = ""  # why the last answer was empty
    passes: int = 0
    seconds: float = 0.0

    def told(self, *, busy: bool, enabled: bool) -> dict[str, Any]:
        """The same for a status bar; `busy` with a completion."""
        return {
            "busy": busy or self.kind == "loading",
            "kind": self.kind,
            "message": printable(self.message) if enabled else OFF,
            "reason": printable(self.reason),
            "lastPasses": self.passes,
            "lastMilliseconds": round(self.seconds * 1000),
        }
