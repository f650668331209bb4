"""P@k on questions with short answers, in the formats of TriviaQA and Natural Questions (figure 5).

Comes in: a JSONL file (or TriviaQA's JSON with `Data`) that the user brings, and a model that is large enough to
know answers. Zero-shot, as in the paper: no n-grams, and the answer is a draft's first line. A draft is right if
it equals an answer after lower-casing and taking out articles, punctuation and white space, as the measures of
TriviaQA and SQuAD do.
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
from spd_lsp.completion.tokenizer import Tokens
from spd_lsp.decoding.superposed import Model, Start
from spd_lsp.evaluation.bootstrap import Interval, means
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.paper.coverage import coverage
from spd_lsp.evaluation.paper.drafting import NUCLEUS, PLAIN, Way, samples
from spd_lsp.evaluation.paper.passages import some_of
from spd_lsp.evaluation.report_writer import Cell, Report, Table, error_bars

_PROMPT = "Answer these questions:\n\nQ: {question}\nA:"
_PAPERS_TAU = 0.06  # the paper's temperature; n-grams are off here
WAYS = (
    Way("nucleus", "nucleus", NUCLEUS),
    Way("greedy", "greedy"),
    Way("beam", "beam"),
    Way("SPD", "superposed", PLAIN),
    Way(f"SPD, tau {_PAPERS_TAU}", "superposed", replace(PLAIN, temperature=_PAPERS_TAU)),
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and every way to answer it."""

    text: str
    answers: tuple[str, ...]


def read_questions(path: Path, limit: int | None = None, seed: int = 0) -> list[Question]:
    """The questions of a file, or so many drawn at random, in their order."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            whole = json.loads(text)
            rows = whole["Data"] if isinstance(whole, dict) and "Data" in whole else whole
        else:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        questions = [_read_question(row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"expected questions with answers in {path}, found: {type(error).__name__} {error}; each line wants "
            '{"question": "...", "answer": ["..."]} or TriviaQA\'s Question and Answer'
        ) from error
    if not questions:
        raise UserError(f"expected questions in {path}, found none; name another file")
    return some_of(questions, limit, seed)


def _read_question(row: Mapping[str, Any]) -> Question:
    """Natural Questions: question, answer or answers. TriviaQA: Question, Answer with Value and Aliases."""
    if "Question" in row:
        answer = row["Answer"]
        return Question(row["Question"], tuple(dict.fromkeys([answer["Value"], *answer.get("Aliases", ())])))
    answers = row["answer"] if "answer" in row else row["answers"]
    if isinstance(answers, Mapping):  # TriviaQA as the hub keeps it
        answers = [answers["value"], *answers.get("aliases", ())]
    return Question(row["question"], (answers,) if isinstance(answers, str) else tuple(answers))


def normalise(answer: str) -> str:
    """Example: `The  Beatles!` -> `beatles`."""
    words = "".join(letter for letter in answer.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", words).split())


def is_right(draft: str, question: Question) -> bool:
    """Exact match after normalising; an empty text is no answer."""
    said = normalise(draft.strip().split("\n")[0])
    return bool(said) and said in {normalise(answer) for answer in question.answers}


def measure(model: Model, tokens: Tokens, question: Question, *, k: int, longest: int) -> dict[str, list[float]]:
    """P@1 ... P@k by way: whether one of the first drafts is right; greedy decoding writes only one."""
    prompt = [*tokens.opening, *tokens.encode(_PROMPT.format(question=question.text.rstrip("?") + "?"))]
    start = Start(prompt, lambda ids: _ends_answer(tokens, ids), prompt)
    found = {}
    for way in WAYS:
        settings = way.drafting(k, longest)
        if way.decoder == "nucleus":
            drafts = samples(model, start, settings)
        else:
            drafts = DECODERS[way.decoder](model, start, settings, lambda: None)
        right = [is_right(tokens.bytes_of(draft.ids).decode(errors="ignore"), question) for draft in drafts.best]
        found[way.name] = [at(right, n, sampled=way.decoder == "nucleus") for n in range(1, k + 1)]
    return found


def at(right: Sequence[bool], n: int, *, sampled: bool) -> float:
    """Whether one of the first n is right; for samples, the chance that one of any n of them is."""
    if not sampled:
        return float(any(right[:n]))
    return coverage(sum(right), len(right), n)


def _ends_answer(tokens: Tokens, ids: Sequence[int]) -> bool:
    """Whether a draft has ended its line, after it said something, or its text."""
    said = tokens.bytes_of(ids).decode(errors="ignore")
    return tokens.ends(ids[-1]) or "\n" in said.lstrip()


def summarise(measured: Sequence[Mapping[str, Sequence[float]]], facts: Mapping[str, Any], k: int) -> Report:
    """P@1 ... P@k in percent, by way."""
    groups = [("all", str(n)) for n in range(len(measured))]
    found = {name: means(100 * np.array([one[name] for one in measured]), groups) for name in measured[0]}
    rows: list[list[Cell]] = [[name, *values] for name, values in found.items()]
    heads = ["answers by", *(f"P@{n}" for n in range(1, k + 1))]
    caption = "Questions that one of the first drafts answers, in percent."
    return Report("questions", "Questions with short answers", facts, [Table(caption, heads, rows)], found,
                  lambda figure: draw(figure, found, k), (7.0, 4.0))  # fmt: skip


def draw(figure: Any, found: Mapping[str, Sequence[Interval]], k: int) -> None:
    """Bars, as figure 5."""
    axes = figure.subplots()
    width = 0.8 / k
    for n in range(k):
        values = [one[n] for one in found.values()]
        errors = error_bars(values)
        places = np.arange(len(found)) + n * width
        axes.bar(places, [one.mean for one in values], width, yerr=errors, capsize=2, label=f"P@{n + 1}")
    axes.set_xticks(np.arange(len(found)) + 0.4 - width / 2, list(found), rotation=15, fontsize=8)
    axes.set(ylabel="questions answered, %")
    axes.legend(fontsize=8)
