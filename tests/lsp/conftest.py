"""Nothing is computed ahead in these tests, unless a test wants it: it would be counted among the requests."""

import pytest

from spd_lsp.lsp import session


@pytest.fixture(autouse=True)
def nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "AHEAD_DELAY_SECONDS", 1e6)
