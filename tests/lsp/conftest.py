"""Nothing is computed ahead in these tests, unless a test wants it: it would be counted among the requests."""

import pytest

from spd_lsp.lsp import idle_work


@pytest.fixture(autouse=True)
def nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_work, "AHEAD_DELAY_SECONDS", 1e6)
