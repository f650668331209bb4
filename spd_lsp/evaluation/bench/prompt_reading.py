"""How much of the prompt a model has to read again at each key, while someone types in files of a repository.

Counted, not timed: no model runs. In: a folder and the tokenizer of a model. Out: the tokens that its engine would
read at each key, for each way of laying out a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from ngram_builders.sources.language_ids import language_of
from spd_lsp.completion.completer import Completer
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.bench.stages import choose_files
from spd_lsp.evaluation.report_writer import Report, ReportTable
from spd_lsp.models.base import Engine, ForwardInput
from spd_lsp.ngrams.incremental_tokenizer import IncrementalTokenizer
from spd_lsp.ngrams.interpolation import Domains
from spd_lsp.ngrams.live_index import LiveIndex
from spd_lsp.ngrams.open_documents import DocumentChange, OpenDocument
from spd_lsp.progress import ReportProgress
from spd_lsp.settings import NO_FILL_FORMAT, Settings

LINES = 20  # typed in each file
MANY = 20  # tokens; reading more of them can be felt on a CPU
_OTHERS = 2  # further files that are open
_KEY = re.compile(r"\n[ \t]*|.", re.DOTALL)  # Enter brings the indentation of the next line
_CLOSERS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}
_POSITIONS = 1 << 20
_CAPTION = f"""\
Tokens of the prompt that are read at a key, the first one in a file apart. {LINES} lines are typed in the middle of
each file; a completion is asked for at every key."""


class _NoCache:
    """A cache that holds nothing."""

    def crop(self, length: int) -> None:
        """Nothing to drop."""

    def fork(self, length: int) -> _NoCache:
        """Another one."""
        return _NoCache()


class CountingEngine(Engine):
    """Keeps prompts as every engine does, and counts what is read; it predicts the end of the text."""

    max_positions, device = _POSITIONS, "none"

    def __init__(self, vocab_size: int, end_of_text: int) -> None:
        super().__init__()
        self.read = 0  # tokens
        self._logits = np.zeros((1, 1, vocab_size), np.float32)
        self._logits[..., end_of_text] = 1

    def new_cache(self) -> _NoCache:
        """As in `Engine`."""
        return _NoCache()

    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """As in `Engine`, for prompts."""
        self.read += sum(len(each.ids[0]) for each in inputs)
        return [self._logits for _ in inputs]


@dataclass
class Reading:
    """What was read."""

    name: str  # of the layout
    tokens: list[int] = field(default_factory=list)  # at each key
    first: list[int] = field(default_factory=list)  # at the first one of each file

    def row(self) -> list[Any]:
        """A row of the report."""
        read = np.array(self.tokens)
        p95 = float(np.percentile(read, 95))
        return [
            self.name,
            len(read),
            float(read.mean()),
            p95,
            f"{(read > MANY).mean():.1%}",
            float(np.mean(self.first)),
        ]


def counting_completer(tokens: ModelTokenizer, settings: Settings) -> Completer:
    """A completer whose model only counts."""
    sizes = {"end_of_text": tokens.end_of_text, "vocab_size": tokens.vocab_size}
    live = LiveIndex(IncrementalTokenizer(tokens), **sizes) if settings.repository_prompt else None
    engine = CountingEngine(tokens.vocab_size, tokens.end_of_text)
    return Completer(engine, tokens, Domains(None, tokens.fingerprint, {}, live), settings)


def keys(text: str, *, closed: bool = False) -> Iterator[tuple[str, str]]:
    """What stands left and right of the cursor on what was typed, after each key; `closed` by the editor: brackets.

    Example: `f()` gives `f`, ``; `f(`, ``; `f()`, `` -- and closed, `f`, ``; `f(`, `)`; `f()`, ``.
    """
    left, right = "", ""
    for key in _KEY.findall(text):
        left += key
        if closed and key == right[:1]:
            right = right[1:]
        elif closed and key in _CLOSERS and not (key in "\"'" and left[-2:-1].isalnum()):
            right = _CLOSERS[key] + right
        elif key[0] == "\n":
            right = ""
        yield left, right


def type_in(completer: Completer, path: Path, reading: Reading, *, closed: bool = False) -> None:
    """Take some lines out of a file's middle, type them again, and note what is read at each key."""
    engine: Any = completer.model
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    middle = len(lines) // 2
    parts = lines[:middle], lines[middle : middle + LINES], lines[middle + LINES :]
    before, typed, after = map("".join, parts)
    counts = []
    for left, right in keys(typed.rstrip("\n"), closed=closed):
        engine.read = 0
        source = f"{before}{left}{right}\n{after}"
        result = completer.complete(source, len(before + left), language_of(path), path, name=path.as_uri())
        if result.passes:
            counts.append(engine.read)
    reading.first += counts[:1]
    reading.tokens += counts[1:]


def reading_report(folder: Path, files: int, model: Path, settings: Settings, report: ReportProgress) -> Report:
    """Type in so many files of a folder with each layout that a model's tokenizer has."""
    chosen = choose_files(folder, files)
    readings = []
    for name, closed in ((name, closed) for name in ("auto", NO_FILL_FORMAT) for closed in (False, True)):
        tokens = ModelTokenizer(model, name)
        shown = tokens.fill_format.name if tokens.fill_format else "text left of the cursor"
        shown += ", brackets closed" * closed
        for others in (False, True)[: 1 + (tokens.repository_format is not None)]:
            reading = Reading(shown + ", other files" * others)
            for number, path in enumerate(chosen):
                report(reading.name, number, len(chosen))
                budget = settings.context_tokens * (1 + 3 * others)
                chosen_settings = Settings(drafts=1, max_tokens=1, context_tokens=budget, repository_prompt=others)
                completer = counting_completer(tokens, chosen_settings)
                if others:
                    show(completer, [each for each in chosen if each != path][:_OTHERS])
                type_in(completer, path, reading, closed=closed)
            readings.append(reading)
    facts = {"folder": f"{folder.name}, {len(chosen)} files", "tokenizer": model.name}
    columns = ["prompt", "keys", "tokens, mean", "95th percentile", f"more than {MANY}", "first key"]
    table = ReportTable(_CAPTION, columns, [reading.row() for reading in readings], 1)
    return Report(
        "reading", "What is read again at each key", facts, [table], {r.name: r.tokens for r in readings}
    )


def show(completer: Completer, paths: Sequence[Path]) -> None:
    """Open further files."""
    opened = (OpenDocument(one.as_uri(), one, language_of(one), one.read_text(errors="replace")) for one in paths)
    completer.update_documents({one.name: DocumentChange(one, saved=False) for one in opened})
    completer.run_idle_work(60)
