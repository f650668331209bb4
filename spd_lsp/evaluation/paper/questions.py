"""P@k on questions with short answers, in the formats of TriviaQA and Natural Questions (figure 5).

The user brings a JSONL file (or TriviaQA's JSON with `Data`), and a model that is large enough to know answers.
Zero-shot, as in the paper: no n-grams, and the answer is a draft's first line. A draft is right if it equals an
answer after lower-casing and removing articles, punctuation and white space, as TriviaQA and SQuAD compare.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.errors import UserError
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.decoding.superposed import DecodingRequest, Model
from spd_lsp.evaluation.bootstrap import mean_intervals
from spd_lsp.evaluation.paper.coverage import coverage
from spd_lsp.evaluation.paper.drafting import DEFAULTS, NUCLEUS, PAPER, Method, decode
from spd_lsp.evaluation.paper.passages import sample_in_order
from spd_lsp.evaluation.report_writer import Cell, Panel, Report, Table

_PROMPT = "Answer these questions:\n\nQ: {question}\nA:"
QUESTION_METHODS = (
    Method("nucleus", "nucleus", NUCLEUS),
    Method("greedy", "greedy"),
    Method("beam", "beam"),
    Method("SPD", "superposed"),
    Method(f"SPD, tau {PAPER.temperature}", "superposed", replace(DEFAULTS, temperature=PAPER.temperature)),
)


@dataclass(frozen=True, slots=True)
class ShortQuestion:
    """A question and all accepted answers."""

    text: str
    answers: tuple[str, ...]


def read_questions(path: Path, limit: int | None = None, seed: int = 0) -> list[ShortQuestion]:
    """The questions of a file, or a random sample of them in their order."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            whole = json.loads(text)
            rows = whole["Data"] if isinstance(whole, dict) and "Data" in whole else whole
        else:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        questions = [_parse_question(row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"cannot read questions from {path}: {type(error).__name__} {error}; each line must be "
            '{"question": "...", "answer": ["..."]} or have TriviaQA\'s Question and Answer'
        ) from error
    if not questions:
        raise UserError(f"{path} holds no questions; name another file")
    return sample_in_order(questions, limit, seed)


def _parse_question(row: Mapping[str, Any]) -> ShortQuestion:
    """Natural Questions: question, answer or answers. TriviaQA: Question, Answer with Value and Aliases."""
    if "Question" in row:
        answer = row["Answer"]
        return ShortQuestion(row["Question"], tuple(dict.fromkeys([answer["Value"], *answer.get("Aliases", ())])))
    answers = row["answer"] if "answer" in row else row["answers"]
    if isinstance(answers, Mapping):  # TriviaQA in the hub's format
        answers = [answers["value"], *answers.get("aliases", ())]
    return ShortQuestion(row["question"], (answers,) if isinstance(answers, str) else tuple(answers))


def normalise(answer: str) -> str:
    """Example: `The  Beatles!` -> `beatles`"""
    letters = "".join(letter for letter in answer.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", letters).split())


def is_right(draft: str, question: ShortQuestion) -> bool:
    """Exact match after normalising; an empty text is no answer."""
    answer = normalise(draft.strip().split("\n")[0])
    return bool(answer) and answer in {normalise(accepted) for accepted in question.answers}


def measure(
    model: Model, tokens: ModelTokenizer, question: ShortQuestion, *, k: int, max_tokens: int
) -> dict[str, list[float]]:
    """P@1 ... P@k by method: whether one of the first n drafts is right; of samples, the expectation."""
    prompt = [*tokens.opening, *tokens.encode(_PROMPT.format(question=question.text.rstrip("?") + "?"))]
    start = DecodingRequest(prompt, lambda ids: _ends_answer(tokens, ids), prompt)
    results = {}
    for method in QUESTION_METHODS:
        drafts = decode(model, method, start, method.settings_for(k, max_tokens)).best
        right = [is_right(tokens.bytes_of(draft.ids).decode(errors="ignore"), question) for draft in drafts]
        results[method.name] = [
            coverage(sum(right), len(right), n) if method.decoder == "nucleus" else float(any(right[:n]))
            for n in range(1, k + 1)
        ]
    return results


def _ends_answer(tokens: ModelTokenizer, ids: Sequence[int]) -> bool:
    """Whether a draft has ended its line with something on it, or its text."""
    text = tokens.bytes_of(ids).decode(errors="ignore")
    return tokens.ends(ids[-1]) or "\n" in text.lstrip()


def summarise(measured: Sequence[Mapping[str, Sequence[float]]], facts: Mapping[str, Any], k: int) -> Report:
    """P@1 ... P@k in percent, by method."""
    groups = [("all", str(n)) for n in range(len(measured))]
    values = {n: mean_intervals(100 * np.array([one[n] for one in measured]), groups) for n in measured[0]}
    rows: list[list[Cell]] = [[name, *intervals] for name, intervals in values.items()]
    heads = ["method", *(f"P@{n}" for n in range(1, k + 1))]
    table = Table("Questions that one of the first drafts answers, in percent.", heads, rows)
    series = {f"P@{n}": [(name, intervals[n - 1]) for name, intervals in values.items()] for n in range(1, k + 1)}
    panel = Panel("questions answered, %", "", series, horizontal=True)
    return Report("questions", "Questions with short answers", facts, [table], values, [panel])
