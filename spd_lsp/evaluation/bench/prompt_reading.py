"""How much of its prompt a model has to read again at each key, while someone types in files of a repository.

Counted, not timed: no model runs. In: a folder, and a model's tokenizer. Out: the tokens that an engine would read
at each key, for each layout of a prompt that the tokenizer has the special tokens of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np

from ngram_builders.arrays import Floats
from ngram_builders.sources.language_ids import language_of
from spd_lsp.completion.completer import Completer
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.bench.stages import choose_files
from spd_lsp.evaluation.report_writer import Cell, Report, ReportTable
from spd_lsp.models.base import Engine, ForwardInput
from spd_lsp.ngrams.incremental_tokenizer import IncrementalTokenizer
from spd_lsp.ngrams.live_index import LiveIndex
from spd_lsp.ngrams.open_documents import DocumentChange, OpenDocument
from spd_lsp.ngrams.serving_tables import ServingTables
from spd_lsp.progress import ReportProgress
from spd_lsp.settings import NO_FILL_FORMAT, Settings

_MANY = 20  # tokens; reading more of them is felt on a CPU
_LINES = 20  # typed in each file
_OTHERS = 2  # further files that are open, where a model reads them
_OTHERS_SHARE = 4  # times as much room where it does: else a file of usual length leaves none
_KEY = re.compile(r"\n[ \t]*|.", re.DOTALL)  # Enter brings the indentation of the next line
_CLOSERS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}
_CAPTION = f"""\
Tokens of the prompt that are read at a key, the first one in a file apart. {_LINES} lines are typed in the middle
of each file, and a completion is asked for at every key."""


class _NoCache:
    """A cache that holds nothing."""

    def crop(self, length: int) -> None:
        """Nothing to drop."""

    def fork(self, length: int) -> _NoCache:
        """Another one."""
        return _NoCache()


class CountingEngine(Engine):
    """Keeps prompts as every engine does, reads nothing, and predicts the end of the text."""

    max_positions, device = 1 << 20, "none"

    def __init__(self, vocab_size: int, end_of_text: int) -> None:
        super().__init__()
        self._logits = np.zeros((1, 1, vocab_size), np.float32)
        self._logits[..., end_of_text] = 1

    def new_cache(self) -> _NoCache:
        """As in `Engine`."""
        return _NoCache()

    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """As in `Engine`, for prompts."""
        return [self._logits for _ in inputs]


@dataclass
class Reading:
    """What was read with one layout."""

    name: str
    tokens: list[int] = field(default_factory=list)  # at each key
    first: list[int] = field(default_factory=list)  # at the first one of each file

    @property
    def row(self) -> list[Cell]:
        """A row of the report."""
        read = np.array(self.tokens)
        p95, many = float(np.percentile(read, 95)), f"{(read > _MANY).mean():.1%}"
        return [self.name, len(read), float(read.mean()), p95, many, float(np.mean(self.first))]


class CountingTypist:
    """Types in files, and counts what a model would read at each key."""

    def __init__(self, tokens: ModelTokenizer, context_tokens: int, *, reads_others: bool = False) -> None:
        live = LiveIndex(IncrementalTokenizer(tokens))
        settings = Settings(drafts=1, max_tokens=1, context_tokens=context_tokens, repository_prompt=reads_others)
        self.engine = CountingEngine(tokens.vocab_size, tokens.end_of_text)
        self.completer = Completer(
            self.engine, tokens, ServingTables(None, tokens.fingerprint, {}, live), settings
        )

    def show(self, path: Path, text: str) -> None:
        """Open a further file, or change it."""
        document = OpenDocument(path.as_uri(), path, language_of(path), text)
        self.completer.update_documents({document.name: DocumentChange(document, saved=False)})
        self.completer.run_idle_work(60)

    def ask(self, path: Path, source: str, cursor: int) -> int | None:
        """The tokens that a completion reads; None where there is none."""
        result = self.completer.complete(source, cursor, language_of(path), path, name=path.as_uri())
        return result.read_tokens if result.passes else None

    def type_lines(self, path: Path, reading: Reading, *, closes: bool = False) -> None:
        """Take lines out of a file's middle and type them again; `closes`: the editor closes brackets."""
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        middle = len(lines) // 2
        parts = lines[:middle], lines[middle : middle + _LINES], lines[middle + _LINES :]
        before, typed, after = map("".join, parts)
        asked = [
            self.ask(path, f"{before}{left}{right}\n{after}", len(before + left))
            for left, right in after_each_key(typed.rstrip("\n"), closes=closes)
        ]
        counts = [count for count in asked if count is not None]
        reading.first += counts[:1]
        reading.tokens += counts[1:]


def after_each_key(text: str, *, closes: bool = False) -> Iterator[tuple[str, str]]:
    """What stands left and right of the cursor after each key; `closes`: as in editors that close brackets.

    Example: `f()` gives `f` and ``, `f(` and `` or, if the editor closes it, `)`, and `f()` and ``.
    """
    left, right = "", ""
    for key in _KEY.findall(text):
        is_apostrophe = key in "\"'" and left[-1:].isalnum()
        left += key
        if key[0] == "\n":
            right = ""
        elif closes and key == right[:1]:
            right = right[1:]
        elif closes and key in _CLOSERS and not is_apostrophe:
            right = _CLOSERS[key] + right
        yield left, right


def reading_report(folder: Path, files: int, model: Path, context_tokens: int, report: ReportProgress) -> Report:
    """Type in so many files of a folder with each layout."""
    chosen = choose_files(folder, files)
    readings = []
    for fill_format, closes in product(("auto", NO_FILL_FORMAT), (False, True)):
        tokens = ModelTokenizer(model, fill_format)
        for others in (False, True)[: 1 + (tokens.repository_format is not None)]:
            layout = tokens.fill_format.name if tokens.fill_format else "no text right of the cursor"
            reading = Reading(layout + ", other files" * others + ", brackets closed by the editor" * closes)
            for number, path in enumerate(chosen):
                report(reading.name, number, len(chosen))
                room = context_tokens * (_OTHERS_SHARE if others else 1)
                typist = CountingTypist(tokens, room, reads_others=others)
                for other in [each for each in chosen if each != path][: _OTHERS * others]:
                    typist.show(other, other.read_text(encoding="utf-8", errors="replace"))
                typist.type_lines(path, reading, closes=closes)
            readings.append(reading)
    facts = {"folder": f"{folder.name}, {len(chosen)} files", "context": f"{context_tokens:,} tokens"}
    columns = ["prompt", "keys", "tokens, mean", "95th percentile", f"more than {_MANY}", "first key"]
    table = ReportTable(_CAPTION, columns, [reading.row for reading in readings], 1)
    data = {reading.name: reading.tokens for reading in readings}
    return Report("reading", "What a model reads of its prompt at each key", facts, [table], data)
