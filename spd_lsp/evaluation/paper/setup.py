"""What an experiment runs on: a model and the passages of repositories.

Slow imports are made late: `--help` lists commands without torch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.hub import bundled_tables, locate

if TYPE_CHECKING:
    from ngram_builders.table.format import Columns
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.evaluation.paper.drafting import DraftWriter
    from spd_lsp.evaluation.paper.passages import Passage, RepositorySplit


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ExperimentSetup:
    """A model and the passages it continues."""

    writer: DraftWriter
    splits: list[RepositorySplit]
    facts: dict[str, Any]

    @property
    def passages(self) -> list[Passage]:
        """All passages, repository by repository."""
        return [passage for split in self.splits for passage in split.passages]

    @property
    def groups(self) -> list[tuple[str, str]]:
        """The cluster of each passage."""
        return [passage.group for passage in self.passages]


def track(items: Iterable[Item], stage: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items one by one, with a bar. total: of items without a length."""
    with click.progressbar(items, length=total, label=stage, file=sys.stderr) as bar:
        yield from bar


def prepare_experiment(
    repos: Sequence[Path], model: str, device: str, *, examples: int, before: int, after: int, seed: int
) -> ExperimentSetup:
    """Draw passages, count the other files, and load the model."""
    from spd_lsp.completion.tokenizer import ModelTokenizer

    folder = locate(model, tell)
    tokens = ModelTokenizer(folder)
    splits = split_repositories(repos, tokens, examples=examples, before=before, after=after, seed=seed)
    built_in = _built_in_columns(folder, model, tokens)

    from spd_lsp.evaluation.paper.drafting import DraftWriter, mixtures_by_repository
    from spd_lsp.models.load import load

    network = load(folder, device)
    if before + after > network.max_positions:
        raise UserError(
            f"{model} reads {network.max_positions} tokens, but prefix and drafts take {before} + {after}; use a "
            "shorter --prefix"
        )
    writer = DraftWriter(network, tokens, mixtures_by_repository(splits, tokens.vocab_size, built_in))
    facts = {
        "model": model,
        "repositories": len(splits),
        "seed": seed,
        "examples": sum(len(split.passages) for split in splits),
        "prefix tokens": before,
    }
    return ExperimentSetup(writer, splits, facts)


def split_repositories(
    repos: Sequence[Path], tokens: ModelTokenizer, *, examples: int, before: int, after: int, seed: int
) -> list[RepositorySplit]:
    """Draw the passages of all repositories."""
    from spd_lsp.evaluation.paper.passages import split_repository

    return [
        split_repository(repo, tokens, examples=examples, before=before, after=after, seed=seed)
        for repo in track(repos, "reading")
    ]


def _built_in_columns(folder: Path, model: str, tokens: ModelTokenizer) -> list[tuple[Columns, float]]:
    """The Python counts shipped with the starter, with their weight; none for other models."""
    from ngram_builders.table.reader import Table
    from spd_lsp.ngrams.serving_tables import BUILT_IN_WEIGHT

    tables = bundled_tables(model, folder)
    return [
        (Table.open(path, tokens.fingerprint).columns, BUILT_IN_WEIGHT)
        for language, path in tables.items()
        if language == "python"
    ]


def tell(text: str) -> None:
    """Print a line to standard error."""
    click.echo(text, err=True)
