"""Questions with short answers, on a made-up file and a model that is told what to say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ngram_builders.errors import UserError
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.paper.questions import (
    QUESTION_METHODS,
    ShortQuestion,
    is_right,
    measure,
    normalise,
    read_questions,
    summarise,
)

STARTER = Path(__file__).parents[3] / "spd_lsp" / "starter"
NATURAL = {"question": "who wrote the made up song", "answer": ["The Beatles", "Beatles"]}
TRIVIA = {"Question": "Which city?", "QuestionId": "x", "Answer": {"Value": "Paris", "Aliases": ["Paris, France"]}}
HUB = {"question": "Which city?", "answer": {"value": "Rome", "aliases": ["Roma"]}}


class Scripted:
    """Says one answer and, a little less likely, other first tokens."""

    def __init__(self, tokens: ModelTokenizer, answer: str) -> None:
        self.ids = tokens.encode(answer)
        self.vocab_size = tokens.vocab_size
        self.after = 0

    def logits(self) -> np.ndarray:
        values = np.zeros(self.vocab_size)
        values[self.ids[min(self.after, len(self.ids) - 1)]] = 30
        self.after += 1
        return values

    def prefill(self, ids: Sequence[int], check: object) -> np.ndarray:
        self.after = 0
        return self.logits()

    def step(self, ids: Sequence[int], weights: object) -> np.ndarray:
        return self.logits()

    def step_rows(self, rows: Sequence[object], parents: object) -> np.ndarray:
        return np.stack([self.logits()] * len(rows))


@pytest.fixture(scope="module")
def tokens() -> ModelTokenizer:
    return ModelTokenizer(STARTER)


def test_all_formats_are_read(tmp_path: Path) -> None:
    lines, whole = tmp_path / "questions.jsonl", tmp_path / "trivia.json"
    lines.write_text("\n".join(map(json.dumps, [NATURAL, TRIVIA, HUB])))
    whole.write_text(json.dumps({"Data": [TRIVIA], "Domain": "Web"}))
    natural, trivia, hub = read_questions(lines)
    assert natural.answers == ("The Beatles", "Beatles")
    assert trivia == ShortQuestion("Which city?", ("Paris", "Paris, France"))
    assert hub.answers == ("Rome", "Roma")
    assert read_questions(whole) == [trivia]


@pytest.mark.parametrize("content", ["", "{", '{"question": "no answer"}', "[1]"])
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match="questions"):
        read_questions(path)


def test_answers_are_compared_as_the_benchmarks_do() -> None:
    assert normalise("The  Beatles!") == "beatles"
    question = ShortQuestion("who", ("The Beatles",))
    assert is_right(" beatles.\nQ: next", question)
    assert not is_right(" Beatles fans", question)
    assert not is_right(" ", ShortQuestion("who", ("The",)))  # nothing said is nothing right


def test_a_model_that_knows_the_answer_is_right_by_every_way(tokens: ModelTokenizer) -> None:
    question = ShortQuestion("who wrote it", ("The Beatles",))
    found = measure(Scripted(tokens, " the Beatles\n"), tokens, question, k=3, max_tokens=12)
    assert found.keys() == {method.name for method in QUESTION_METHODS}
    assert all(values == [1.0, 1.0, 1.0] for values in found.values())
    wrong = measure(Scripted(tokens, " nobody\n"), tokens, question, k=3, max_tokens=12)
    assert not any(any(values) for values in wrong.values())


def test_the_report_has_a_row_for_each_way(tokens: ModelTokenizer) -> None:
    rows = [{"SPD": [0.0, 1.0, 1.0]}, {"SPD": [0.0, 0.0, 1.0]}]
    assert "| SPD | 0.00 (0.00 to 0.00) | 50.00" in summarise(rows, {"model": "m"}, 3).markdown()
