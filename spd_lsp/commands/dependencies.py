"""What `build-ngrams --dependencies` does, and the server with the setting `indexing: "dependencies"`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spd_lsp.commands.ngrams import open_registry
from spd_lsp.output.progress import ReportProgress, format_count
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.registry.ngram_table import NgramTable


def count_dependencies(
    settings: Settings,
    project: Path,
    model: str,
    report: ReportProgress,
    has_time: Callable[[], bool] = lambda: True,
) -> list[NgramTable]:
    """Build the tables that a project's packages lack while there is time; have them serve it. -> the tables"""
    from ngram_builders.build import min_count_by_order
    from ngram_builders.counting.pipeline import CountOptions
    from ngram_builders.dependencies.project import build_dependencies, find_packages
    from ngram_builders.dependencies.tables import PackageTables
    from ngram_builders.ngrams import ORDERS
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import absolute_model_name, locate

    tokens = ModelTokenizer(locate(model))
    options = CountOptions(token_space=tokens.space, orders=ORDERS, min_count=min_count_by_order(ORDERS, 1))
    packages = find_packages(project.resolve(), settings.python_interpreter)
    target = PackageTables(open_registry(settings), absolute_model_name(model), tokens.encode_batch, options)
    return build_dependencies(project, packages, target, report, has_time)


def describe_dependencies(project: Path, tables: Sequence[NgramTable]) -> str:
    """Describe which packages serve a project."""
    if not tables:
        return (
            f"{project}: no installed packages that it imports or declares; looked in .venv, venv, .conda, env, "
            "VIRTUAL_ENV, CONDA_PREFIX, node_modules, Go's module cache and Cargo's registry"
        )
    tokens = sum(table.tokens for table in tables)
    names = ", ".join(str(table.recipe["package"]) for table in tables)
    return f"{project} is served by {format_count(len(tables), 'package')}, {tokens:,} tokens: {names}"
