"""The inbox: the newest state of each document is heard once, whatever the event loop does meanwhile."""

from __future__ import annotations

import threading

from spd_lsp.lsp.completion_worker import DocumentChanges
from spd_lsp.ngrams.open_documents import DocumentChange, OpenDocument

A = OpenDocument("a", None, "python", "x = 1\n")
B = OpenDocument("b", None, "python", "y = 1\n")


def changed(document: OpenDocument, text: str) -> OpenDocument:
    return OpenDocument(document.name, document.path, document.language, text)


def test_a_saving_is_not_lost_behind_a_later_change():
    inbox = DocumentChanges()
    inbox.update([A])
    inbox.drain()
    inbox.mark_saved("a")
    newer = changed(A, "x = 2\n")
    inbox.update([newer])
    assert inbox.drain() == {"a": DocumentChange(newer, True)}
    inbox.mark_saved("nothing that is open")
    assert inbox.drain() == {}


def test_two_threads_lose_nothing():
    inbox, last, done = DocumentChanges(), [""] * 3, threading.Event()

    def hear() -> None:
        while True:
            finished = done.is_set()
            for name, news in inbox.drain().items():
                last[int(name)] = news.document.text
            if finished:
                return

    listener = threading.Thread(target=hear)
    listener.start()
    for number in range(3_000):
        inbox.update([OpenDocument(str(n), None, None, f"{number}") for n in range(3)])
    done.set()
    listener.join()
    assert last == ["2999"] * 3
