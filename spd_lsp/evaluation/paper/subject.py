"""What an experiment is done on: a model, repositories, a judge; and how it is told of.

Slow imports are made late: `--help` shows commands without torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.hub import STARTER, built_in_domains, locate
from spd_lsp.progress import track

if TYPE_CHECKING:
    from spd_lsp.completion.tokenizer import Tokens
    from spd_lsp.evaluation.paper.drafting import Judge, Writer
    from spd_lsp.evaluation.paper.passages import Passage, Source
    from spd_lsp.evaluation.report_writer import Report


@dataclass(frozen=True, slots=True)
class Subject:
    """A model and the places it is asked about."""

    writer: Writer
    sources: list[Source]
    facts: dict[str, Any]

    @property
    def passages(self) -> list[Passage]:
        """All places, repository by repository."""
        return [passage for source in self.sources for passage in source.passages]

    @property
    def groups(self) -> list[tuple[str, str]]:
        """Where each place is, for intervals."""
        return [(passage.repository, passage.file) for passage in self.passages]


def prepare(
    repos: Sequence[Path], model: str, device: str, *, places: int, before: int, after: int, seed: int
) -> Subject:
    """Read the repositories, count what is not asked about, and load the model."""
    from spd_lsp.completion.tokenizer import Tokens

    folder = locate(model, tell)
    tokens = Tokens(folder)
    sources = read_sources(repos, tokens, places=places, before=before, after=after, seed=seed)
    beside = built_in(folder, model, tokens)

    from spd_lsp.evaluation.paper.drafting import Writer, mixtures_of
    from spd_lsp.models.load import load

    network = load(folder, device)
    if before + after > network.max_positions:
        raise UserError(
            f"expected a prefix and drafts of {network.max_positions} tokens or less together, as {model} reads, "
            f"found {before} + {after}; ask for a shorter --prefix"
        )
    writer = Writer(network, tokens, mixtures_of(sources, tokens.vocab_size, beside))
    facts = {
        "model": model,
        "repositories": len(sources),
        "seed": seed,
        "places": sum(len(source.passages) for source in sources),
        "prefix tokens": before,
    }
    return Subject(writer, sources, facts)


def built_in(folder: Path, model: str, tokens: Tokens) -> list[tuple[Any, float]]:
    """The Python counts that come with the starter, and their weight; none for other models."""
    from ngram_builders.table.reader import Table
    from spd_lsp.ngrams.interpolation import BUILT_IN_WEIGHT

    tables = built_in_domains(folder) if model == STARTER else {}
    return [
        (Table.open(path, tokens.fingerprint).columns, BUILT_IN_WEIGHT)
        for language, path in tables.items()
        if language == "python"
    ]


def judge_of(judge: str, model: str, device: str, subject: Subject) -> Judge:
    """The model that judges; by default the one that writes."""
    from spd_lsp.completion.tokenizer import Tokens
    from spd_lsp.evaluation.paper.drafting import Judge
    from spd_lsp.models.load import load

    if judge in ("", model):
        return Judge(subject.writer.model, subject.writer.tokens, same=True)
    folder = locate(judge, tell)
    tokens = Tokens(folder)
    return Judge(load(folder, device), tokens, same=tokens.fingerprint == subject.writer.tokens.fingerprint)


def read_sources(
    repos: Sequence[Path], tokens: Tokens, *, places: int, before: int, after: int, seed: int
) -> list[Source]:
    """The places of all repositories."""
    from spd_lsp.evaluation.paper.passages import read_source

    return [
        read_source(repo, tokens, places=places, before=before, after=after, seed=seed)
        for repo in track(repos, "reading")
    ]


def tell(text: str) -> None:
    """Say what goes on, beside the output."""
    click.echo(text, err=True)


def publish(report: Report, out: Path, *, figure: bool = True) -> None:
    """Write a report into a folder, show its tables, and say where they lie."""
    from spd_lsp.evaluation.report_writer import figures_possible, write

    written = write(report if figure else dataclasses.replace(report, draw=None), out)
    click.echo(report.markdown())
    tell(f"wrote {', '.join(map(str, written))}")
    if figure and report.draw and not figures_possible():
        tell("no figure: matplotlib is missing; pip install 'spd-lsp[bench]'")
