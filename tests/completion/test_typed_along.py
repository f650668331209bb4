"""Whoever types along with recent drafts gets the rest of them; anything else is answered by the model."""

from __future__ import annotations

import dataclasses

import pytest

from spd_lsp.completion.offer import CompletionResult
from spd_lsp.completion.ranking import Completion
from spd_lsp.completion.typed_along import (
    CompletionRequest,
    RecentResults,
    advance,
    after_accepting,
    merge_previous,
    remaining,
    typed_since,
)

PREVIOUS = CompletionRequest("x = \ny\n", 4, "python", None, "u", explicit=False)


def result_of(*drafts: str) -> CompletionResult:
    return CompletionResult(
        [Completion(text, 0.5 / rank) for rank, text in enumerate(drafts, 1)], passes=4, tokens=4
    )


def after(typed: str, **changes: object) -> CompletionRequest:
    source = PREVIOUS.source[:4] + typed + PREVIOUS.source[4:]
    return dataclasses.replace(PREVIOUS, **{"source": source, "cursor": 4 + len(typed), **changes})


def remaining_texts(result: CompletionResult, request: CompletionRequest) -> list[str]:
    left = remaining(PREVIOUS, result, request)
    return [draft.text for draft in left.completions] if left else []


@pytest.mark.parametrize(("typed", "texts_left"), [
    ("c", ["ompute(y)", "opy(y)"]), ("comp", ["ute(y)"]), ("compute(y", [")"]),
    ("compute(y)", []),  # there is nothing left to offer
    ("cop", ["y(y)"]),  # the best draft was rejected, another one was not
    ("", ["compute(y)", "copy(y)"]), ("d", []),
])  # fmt: skip
def test_what_remains_of_the_drafts(typed: str, texts_left: list[str]):
    assert remaining_texts(result_of("compute(y)", "copy(y)"), after(typed)) == texts_left


def closed(typed: str, by_editor: str) -> CompletionRequest:
    """A request behind what was typed, where the editor has closed a bracket or a quote."""
    source = PREVIOUS.source[:4] + typed + by_editor + PREVIOUS.source[4:]
    return dataclasses.replace(PREVIOUS, source=source, cursor=4 + len(typed))


@pytest.mark.parametrize(("typed", "by_editor", "texts_left"), [
    ("f(", ")", ["['a', g(b)]"]), ("f([", "])", ["'a', g(b)"]), ("f(['", "'])", ["a"]), ("f(['a", "'])", []),
    ("f(['a', g(", ")])", ["b"]), ("f(['a', g(b)])", "", [".h"]),
    ("f(", "x", []), ("f(", ")))", []), ("", ")", []),
])  # fmt: skip
def test_what_remains_ends_before_what_the_editor_has_closed(typed: str, by_editor: str, texts_left: list[str]):
    assert remaining_texts(result_of("f(['a', g(b)]).h"), closed(typed, by_editor)) == texts_left


def test_a_computation_may_go_on_while_the_editor_closes_what_is_typed():
    assert typed_since(PREVIOUS, closed("f(['", "'])")) == "f(['"
    assert typed_since(PREVIOUS, closed("f(", "x")) == ""
    assert typed_since(PREVIOUS, dataclasses.replace(after("f"), explicit=True)) == ""


@pytest.mark.parametrize("change", [
    {"source": "z = c\ny\n"}, {"source": "x = c\nz\n"}, {"uri": "v"}, {"language": "go"}, {"cursor": 3},
])  # fmt: skip
def test_a_change_elsewhere_is_another_request(change: dict[str, object]):
    assert remaining_texts(result_of("compute(y)"), after("c", **change)) == []


def test_an_explicit_request_is_not_answered_by_what_typing_asked_for():
    assert remaining_texts(result_of("compute(y)"), after("", explicit=True)) == []


def found_texts(recent: RecentResults, request: CompletionRequest) -> list[str]:
    result = recent.find(request, 0)
    return [draft.text for draft in result.completions] if result else []


def test_the_matching_result_with_the_least_typed_since_answers():
    recent = RecentResults()
    recent.add(PREVIOUS, result_of("compute(y)", "copy(y)"))
    recent.add(after("cop"), result_of("y(z)", "ies"))
    assert found_texts(recent, after("copy")) == ["(z)"]
    assert found_texts(recent, after("co")) == ["mpute(y)", "py(y)"]  # a letter was deleted
    assert found_texts(recent, PREVIOUS) == ["compute(y)", "copy(y)"]
    recent.add(dataclasses.replace(PREVIOUS, explicit=True), result_of("call(y)"))
    assert found_texts(recent, after("c")) == ["all(y)"], "the newest of those at one place"


def test_a_result_of_another_state_of_the_index_does_not_answer():
    recent = RecentResults()
    recent.add(PREVIOUS, dataclasses.replace(result_of("compute(y)"), index_revision=1))
    assert found_texts(recent, after("c")) == []


def test_only_the_latest_results_of_one_document_are_kept_and_none_of_a_closed_one():
    recent = RecentResults()
    recent.add(after("d"), result_of("one"))
    recent.add(PREVIOUS, result_of("compute(y)"))
    recent.drop("u")
    assert found_texts(recent, PREVIOUS) == []
    recent.add(PREVIOUS, result_of("compute(y)"))
    recent.add(dataclasses.replace(PREVIOUS, uri="v"), result_of("other"))
    assert found_texts(recent, PREVIOUS) == []
    for number in range(20):
        recent.add(after("d" * number), result_of("one"))
    assert found_texts(recent, after("d")) == []
    assert found_texts(recent, after("d" * 19)) == ["one"]


@pytest.mark.parametrize(("draft", "follows"), [
    (Completion("f(", 0.5, ends=False), "x = f(|\ny\n"), (Completion("f(y)", 0.5), "x = f(y)\n|\ny\n"),
    (Completion("f(\n    y) if y:", 0.5), "x = f(\n    y) if y:\n        |\ny\n"),
])  # fmt: skip
def test_what_follows_an_accepted_draft_is_its_end_or_the_next_line(draft: Completion, follows: str):
    request = after_accepting(dataclasses.replace(PREVIOUS, explicit=True), draft)
    assert f"{request.source[: request.cursor]}|{request.source[request.cursor :]}" == follows
    assert not request.explicit


def test_drafts_that_are_white_space_from_here_on_are_not_offered():
    assert remaining_texts(result_of("ab", "a  "), after("a")) == ["b"]


def test_where_the_best_draft_is_typed_out_the_others_are_not_offered_and_no_model_is_asked():
    left = remaining(PREVIOUS, result_of("found", "found.keys()"), after("found"))
    assert left is not None and left.completions == [] and left.passes == 0
    assert left.reason == "the best draft is typed out"
    assert remaining_texts(result_of("found", "found.keys()"), after("found.")) == ["keys()"]
    assert remaining_texts(result_of("find", "found", "found.keys()"), after("found")) == []


def test_names_of_other_files_stay_while_they_are_typed():
    """They came from an imported module; the next letter was answered from this document alone, without them."""
    drafts = [
        Completion("mpute(y)", 0.5),
        Completion("unt_petals", 0.2, is_name=True),
        Completion("py", 0.1, is_name=True),
    ]
    began, typed = after("co"), after("cou")
    left = remaining(began, CompletionResult(drafts), after("com"))
    assert left is not None and [one.text for one in left.completions] == ["pute(y)"]
    left = remaining(began, CompletionResult([Completion("unt(y)", 0.5), *drafts[1:]]), typed)
    assert left is not None
    assert [(one.text, one.is_name) for one in left.completions] == [("nt(y)", False), ("nt_petals", True)]


def test_the_draft_that_is_typed_along_with_stays_before_names_unless_one_was_the_first():
    previous = dataclasses.replace(PREVIOUS, source="count = 1\nx = \ny\n", cursor=14)
    typed = dataclasses.replace(previous, source="count = 1\nx = co\ny\n", cursor=16)
    unlikely, name = Completion("copy(y)", 0.05), Completion("count", 0.9, is_name=True)
    dead = Completion("min(y)", 0.5)  # typed otherwise by the first of two letters, before the editor asked
    for drafts, texts_left in (
        ([unlikely], ["py(y)", "unt"]),
        ([name, unlikely], ["unt", "py(y)"]),
        ([dead, unlikely], ["py(y)", "unt"]),
        ([dead, name, unlikely], ["unt", "py(y)"]),
    ):
        left = remaining(previous, CompletionResult(drafts), typed)
        assert left is not None and [one.text for one in left.completions] == texts_left


@pytest.mark.parametrize(
    ("typed", "seconds", "asks_again"),
    [("c", 0.01, False), ("c", 1.0, False), ("cu", 0.01, True), ("co", 0.01, True), ("co", 1.0, False)],
)
def test_the_model_is_asked_again_where_drafts_are_few_or_the_best_was_not_typed(
    typed: str, seconds: float, asks_again: bool
):
    """Unless it answers too late for that."""
    drafts = ["compute(y)", "cut(y)", "cup(y)", "cutout(y)", "cube(y)"]
    result = dataclasses.replace(result_of(*drafts), seconds=seconds, limit=5)
    assert advance(result, typed).needs_refresh == asks_again


def test_the_draft_that_stays_first_is_shown_without_a_probability_that_would_not_put_it_there():
    earlier = advance(result_of("compute(y)", "count"), "co")  # .5 and .25
    for p, shown in ((0.4, [None, 0.4, None]), (0.2, [0.2, None])):
        newer = CompletionResult([Completion("mpose(y)", p), Completion("mpute(y)", 0.2)][p < 0.4 :])
        merged = merge_previous(newer, earlier).completions
        assert merged[0].text == "mpute(y)"
        assert [one.shown_probability for one in merged] == shown


def test_behind_a_draft_that_was_cut_off_more_may_follow():
    result = CompletionResult([Completion("found", 0.5, ends=False)])
    assert remaining(PREVIOUS, result, after("found")) is None
