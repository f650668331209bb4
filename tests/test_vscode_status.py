"""What the VS Code extension shows of the server's status record."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from spd_lsp.lsp.loading import READY, Status
from spd_lsp.settings import Settings
from tests.node import needs_node, run_node

pytestmark = needs_node

ASK = """
const { summary, whyNothing } = require(sources + "/status.js");
const [known] = values;
console.log(JSON.stringify({ ...summary(known), why: whyNothing(known) }));
"""


def shown(
    record: dict[str, Any] | None = None, session: str = "running", *, paused: bool = False
) -> dict[str, Any]:
    """What the extension shows; the record is the server's, changed by `record`."""
    ready = Status("normal", READY).as_json(busy=False, settings=Settings(), model="starter", indexing=None)
    known = {"session": {"kind": session, "message": f"it is {session}"}, "paused": paused}
    known["record"] = None if record is None else ready | record
    with TemporaryDirectory() as folder:
        answer: dict[str, Any] = run_node(Path(folder), ASK, known)
    return answer


@pytest.mark.parametrize(
    ("record", "icon", "text"),
    [
        ({}, "list-selection", "spd"),
        ({"kind": "loading", "message": "downloading a/b: 42%"}, "loading~spin", "spd: loading 42 %"),
        ({"kind": "error", "message": "no such model"}, "error", "spd: model failed"),
        ({"indexing": {"folder": "app", "share": 0.07}}, "sync~spin", "spd: indexing 7 %"),
        ({"documentReason": "completions are off for sql"}, "circle-slash", "spd: off"),
        ({"snoozing": 241}, "clock", "spd: snoozing 5 min"),
        ({"automatic": False}, "debug-pause", "spd: on request"),
        ({"indexed": False}, "list-selection", "spd: not indexed"),
    ],
)
def test_the_status_bar_follows_the_record(record: dict[str, Any], icon: str, text: str):
    assert (shown(record)["icon"], shown(record)["text"]) == (icon, text)


def test_a_server_that_is_not_there_is_shown():
    assert shown(session="starting")["icon"] == "loading~spin"
    assert shown(session="failed")["lines"] == ["it is failed"]
    assert shown(None)["lines"] == ["the server does not answer; restart it"]


def test_details_name_model_tables_and_the_last_completion():
    record = {"model": "starter", "tables": ["app", "open files"], "lastPasses": 7, "lastMilliseconds": 36}
    assert shown(record)["lines"] == [
        "model: starter",
        "n-grams: app, open files",
        "last completion: 7 passes, 36 ms",
    ]


def test_details_say_why_a_folder_is_not_indexed():
    record = {"indexed": False, "notIndexedReason": "the disk is full"}
    assert shown(record)["lines"] == ["this folder is not indexed: the disk is full", "model: starter"]


@pytest.mark.parametrize(
    ("record", "paused", "why"),
    [
        (
            {"reason": "text was deleted", "documentReason": "completions are off for sql"},
            False,
            "no suggestion: completions are off for sql.",
        ),
        ({"documentReason": "completions are off"}, True, "completions are paused in this window."),
        ({"kind": "error", "message": "no such model"}, False, "no such model"),
    ],
)
def test_why_nothing_is_suggested(record: dict[str, Any], paused: bool, why: str):
    assert shown(record, paused=paused)["why"] == why
