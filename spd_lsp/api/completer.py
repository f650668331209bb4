"""Completions of code for programs, by the pipeline of the server and the command line.

with spd_lsp.load() as completer:
    for completion in completer.complete(text, cursor, path="app.py"):
        print(completion.text, completion.probability)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePath
from typing import Any, Literal, Self

from spd_lsp.completion import ranking
from spd_lsp.completion.completer import Completer as Pipeline
from spd_lsp.completion.exclusions import exclusion_reason, language_id
from spd_lsp.completion.loading import load_completer
from spd_lsp.models.hub import absolute_model_name
from spd_lsp.settings import FIELDS, Settings, converted, hint, invalid_reason

_UNNAMED = "untitled:spd_lsp"  # a text that is no file
Source = Literal["draft", "beginning", "copy", "name"]  # of the model, how one begins; both others: your code


@dataclass(frozen=True, slots=True)
class Completion:
    """A text to insert at the cursor."""

    text: str
    probability: float | None  # that exactly this line will be written; None where more of it is to follow
    source: Source
    ends: bool  # whether its line or block ends with it


@dataclass(frozen=True, slots=True)
class Completions:
    """Completions, best first, and what they cost."""

    items: tuple[Completion, ...]
    reason: str = ""  # why there are none
    passes: int = 0  # forward passes of the model, the prompt's included
    ngrams: tuple[str, ...] = ()  # tables that were used
    problems: tuple[str, ...] = ()  # tables that could not be used, and the remedies

    def __iter__(self) -> Iterator[Completion]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Completion:
        return self.items[number]


class Completer:
    """A model, the user's n-gram tables, and the settings. Serves one thread at a time; `with` closes it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._open: Pipeline | None = pipeline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the model, which frees its memory, and the tables."""
        self._open = None

    @property
    def _pipeline(self) -> Pipeline:
        if self._open is None:
            raise ValueError("this completer was closed; open another with spd_lsp.load")
        return self._open

    @property
    def settings(self) -> Settings:
        """The settings in use, those tuned for the model included."""
        return self._pipeline.settings

    def complete(
        self,
        text: str,
        cursor: int,
        *,
        path: str | PathLike[str] | None = None,
        language: str | None = None,
        while_typing: bool = False,
        block: bool = True,
    ) -> Completions:
        """Return what may be written at the cursor, an offset in the text, best first.

        path: of the file, which need not exist; its language and its n-gram tables follow from it.
        language: an id as editors have them, such as "typescriptreact", where the path does not say it.
        while_typing: return what an editor would show unasked: nothing where nothing is likely enough.
        block: where the first one opens a block, write that to its end, which takes more passes.
        """
        if not 0 <= cursor <= len(text):
            raise ValueError(f"expected a cursor from 0 to {len(text)}, the length of the text, found {cursor}")
        file = None if path is None else Path(path)
        if language is None and file is not None:
            language = language_id(file)
        if reason := exclusion_reason(file or PurePath(), self.settings, language):
            return Completions((), reason)
        place = None if file is None else file.resolve()
        name = _UNNAMED if place is None else place.as_uri()
        found = self._pipeline.complete(text, cursor, language, place, name=name, explicit=not while_typing)
        if block:
            found = self._pipeline.write_block(text, cursor, language, place, found, name=name)
        # Drop the text: the next call may be about another version, or another project.
        self._pipeline.update_documents({name: None})
        items = tuple(map(_public, found.completions))
        return Completions(items, found.reason, found.passes, found.ngrams, found.problems)


def load(
    model: str | PathLike[str] = "starter",
    *,
    ngrams: bool = True,
    report: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> Completer:
    """Open a model, and the n-gram tables that were built for it.

    model: `starter`, `none`, a folder, a GGUF file, what `spd-lsp models` lists, or a Hugging Face id, which is
        downloaded once.
    ngrams: whether to use the tables, or the model alone.
    report: called with the progress of what takes long, such as a download.
    settings: those of editors by their Python names, such as `drafts=5` or `device="cuda"`; the configuration file
        is not read, so that a program does the same for everyone.

    Raises TypeError for an unknown setting, and ValueError for a value that a setting cannot have.
    """
    for name, value in settings.items():
        if name not in FIELDS:
            raise TypeError(f"{name!r} is not a setting{hint(name)}")
        if reason := invalid_reason(FIELDS[name], value):
            raise ValueError(f"{name} {reason}")
        settings[name] = converted(value, FIELDS[name].default)
    chosen = Settings(model=absolute_model_name(str(model)), **settings)
    return Completer(load_completer(chosen, report, ngrams=ngrams))


def _public(one: ranking.Completion) -> Completion:
    """A completion as programs see it."""
    source: Source = "draft"
    if one.is_name:
        source = "name"
    elif not one.is_rated:
        source = "beginning"
    elif one.is_copy:
        source = "copy"
    return Completion(one.text, one.shown_probability, source, one.ends)
