"""The inbox: the newest state of each document is heard once, whatever the event loop does meanwhile."""

from __future__ import annotations

import threading

from spd_lsp.ngrams.document_changes import Inbox, News, Open

A = Open("a", None, "python", "x = 1\n")
B = Open("b", None, "python", "y = 1\n")


def changed(document: Open, text: str) -> Open:
    return Open(document.name, document.path, document.language, text)


def test_new_changed_and_closed_documents_are_heard_once():
    inbox = Inbox()
    inbox.look([A, B])
    assert inbox.take() == {"a": News(A, False), "b": News(B, False)}
    inbox.look([A, B])
    assert inbox.take() == {}
    newer = changed(A, "x = 2\n")
    inbox.look([newer])
    assert inbox.take() == {"a": News(newer, False), "b": News(None, False)}
    assert inbox.take() == {}


def test_only_the_newest_state_is_kept():
    inbox = Inbox()
    for text in ("1", "2", "3"):
        inbox.look([changed(A, text)])
    assert [news.now.text for news in inbox.take().values()] == ["3"]


def test_a_saving_is_not_lost_behind_a_later_change():
    inbox = Inbox()
    inbox.look([A])
    inbox.take()
    inbox.save("a")
    newer = changed(A, "x = 2\n")
    inbox.look([newer])
    assert inbox.take() == {"a": News(newer, True)}
    inbox.save("nothing that is open")
    assert inbox.take() == {}


def test_a_new_listener_hears_everything():
    inbox = Inbox()
    inbox.look([A])
    inbox.take()
    inbox.forget()
    inbox.look([A])
    assert inbox.take() == {"a": News(A, False)}


def test_two_threads_lose_nothing():
    inbox, last, done = Inbox(), [""] * 3, threading.Event()

    def hear() -> None:
        while True:
            finished = done.is_set()
            for name, news in inbox.take().items():
                last[int(name)] = news.now.text
            if finished:
                return

    listener = threading.Thread(target=hear)
    listener.start()
    for number in range(3_000):
        inbox.look([Open(str(n), None, None, f"{number}") for n in range(3)])
    done.set()
    listener.join()
    assert last == ["2999"] * 3
