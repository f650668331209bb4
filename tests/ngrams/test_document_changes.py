"""The inbox: the newest state of each document is heard once, whatever the event loop does meanwhile."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from spd_lsp.ngrams.document_changes import DocumentChange, DocumentChanges, OpenDocument
from tests.planted import lines

A = OpenDocument("a", None, "python", "x = 1\n")
B = OpenDocument("b", None, "python", "y = 1\n")


def changed(document: OpenDocument, text: str) -> OpenDocument:
    return OpenDocument(document.name, document.path, document.language, text)


def test_new_changed_and_closed_documents_are_heard_once():
    inbox = DocumentChanges()
    inbox.update([A, B])
    assert inbox.drain() == {"a": DocumentChange(A, False), "b": DocumentChange(B, False)}
    inbox.update([A, B])
    assert inbox.drain() == {}
    newer = changed(A, "x = 2\n")
    inbox.update([newer])
    assert inbox.drain() == {"a": DocumentChange(newer, False), "b": DocumentChange(None, False)}
    assert inbox.drain() == {}


def test_only_the_newest_state_is_kept():
    inbox = DocumentChanges()
    for text in ("1", "2", "3"):
        inbox.update([changed(A, text)])
    assert [news.document.text for news in inbox.drain().values()] == ["3"]


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


def test_a_new_listener_hears_everything():
    inbox = DocumentChanges()
    inbox.update([A])
    inbox.drain()
    inbox.reset()
    inbox.update([A])
    assert inbox.drain() == {"a": DocumentChange(A, False)}


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


def test_changed_files_are_heard_once():
    inbox = DocumentChanges()
    inbox.mark_files_changed([Path("a"), Path("b"), Path("a")])
    assert inbox.drain_files() == [Path("a"), Path("b")]
    assert inbox.drain_files() == []


def names_at(marked, *others):
    document = OpenDocument("a", None, "python", marked.replace("¦", ""))
    near = [OpenDocument(f"b{number}", None, "python", text) for number, text in enumerate(others)]
    return list(document.matching_names(marked.index("¦"), near))


@pytest.mark.parametrize(
    ("marked", "names"),
    [
        ("config = 1\ncontext = 2\nx = con¦\n", ["context", "config"]),  # the later one first
        ("config = config\ncontext = 2\nx = con¦\n", ["config", "context"]),  # unless it is much rarer
        ("x = con¦\ncontext = 2\n", ["context"]),
        ("config = 1\nx = c¦\n", []),  # of one letter
        ("config = 1\nx = ¦\n", []),
        ("config = 1\nx = my_con¦\n", []),
        ("config = 1\nx = config¦\n", []),
        ("config = 1\nx = con¦tent\n", []),
        ("1234 = 1\nx = 12¦\n", []),
        ("größe = 1\nx = grö¦\n", ["größe"]),
        (f"x{'y' * 100} = 1\nx = xy¦\n", []),
    ],
)
def test_the_names_of_a_document_that_a_word_begins(marked, names):
    assert names_at(marked) == names


def test_names_of_other_open_documents_matter_where_this_one_has_none():
    other = "contents = 1\ncontext = 2\n"
    assert names_at("x = con¦\n", other) == ["contents", "context"]
    assert names_at("config = 1\nx = con¦\n", other) == ["config"]


def test_of_many_names_only_those_that_are_worth_a_place_are_left():
    many = " ".join(f"config_{number}" for number in range(100))
    assert names_at(f"{'config ' * 30}\n{many}\nx = con¦\n") == ["config"]
    assert names_at(f"{many}\nx = con¦\n") == []
    assert names_at("x = con¦\n", many) == []


@pytest.mark.parametrize("what", lines())
def test_no_secret_is_a_name(what):
    line, secret = lines()[what]
    begun = re.match(r"[A-Za-z]?\w{3}", secret)
    if begun and begun[0][0].isalpha():
        assert names_at(f"{line}\n{begun[0]}¦") == []
        assert names_at(f"{begun[0]}¦", line) == []


def test_the_probabilities_of_names_sum_to_at_most_one():
    names = OpenDocument("a", None, None, "abc abd abe\nab").matching_names(14)
    assert 0 < sum(names.values()) <= 1
