"""How several commands make a completer: the options that choose its model, and all of its parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.hub import lasting
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Completer
    from spd_lsp.completion.tokenizer import ModelTokenizer


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every command that needs a model."""
    device = click.option(
        "--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ..., or mps."
    )
    model = click.option(
        "--model",
        default="starter",
        show_default=True,
        metavar="M",
        help="`starter`, a folder such as ./mine, a GGUF file, what `spd-lsp models` lists, a Hugging Face id, "
        "which is downloaded once, or `none`: n-grams alone.",
    )
    return model(device(command))


def open_model(folder: Path, device: str, report: Callable[[str], None]) -> Any:
    """Open a model. Takes seconds: imports torch for most, and reads the weights."""
    from spd_lsp.models.load import load

    return load(folder, device, report)


def load_completer(
    settings: Settings,
    report: Callable[[str], None],
    *,
    ngrams: bool = True,
    open_model: Callable[..., Any] = open_model,
) -> Completer:
    """Make a completer from its parts."""
    from ngram_builders.programs import python
    from ngram_builders.registry.registry import Registry
    from spd_lsp.completion.completer import Completer
    from spd_lsp.completion.fill_formats import check_not_for_edits
    from spd_lsp.completion.syntax.parsing import PARSER_POOL
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import bundled_domains, known_languages, locate, vocabulary
    from spd_lsp.ngrams.auto_rebuild import Rebuilder
    from spd_lsp.ngrams.incremental_tokenizer import IncrementalTokenizer
    from spd_lsp.ngrams.interpolation import ORDER_WEIGHTS, Domains
    from spd_lsp.ngrams.live_index import LiveIndex
    from spd_lsp.ngrams.tuned_settings import apply_tuned, read_order_weights

    folder = locate(settings.model, report)
    tokens = ModelTokenizer(folder, settings.fill_format)  # checked before torch is imported
    check_not_for_edits(settings.model, tokens.is_special)
    check_vocabulary(tokens, vocabulary(folder), folder)
    PARSER_POOL.start()
    model = open_model(folder, settings.device, report)
    built_in = bundled_domains(settings.model, folder)
    registry = Registry(Path(settings.data_dir) if settings.data_dir else None)
    languages = known_languages(folder)
    tuned = partial(apply_tuned, folder=registry.folder, model=lasting(settings.model))
    if not ngrams:
        return Completer(model, tokens, Domains(None, tokens.fingerprint, {}), settings, tuned, languages)
    live = LiveIndex(IncrementalTokenizer(tokens), end_of_text=tokens.end_of_text, vocab_size=tokens.vocab_size)
    data = ("--data-dir", str(registry.folder.absolute()))
    rebuild = python("spd_lsp", *data, "ngrams", "rebuild", "--incremental", "--end-with-input")
    rebuilder = Rebuilder(lambda domain: (*rebuild, domain.name)) if settings.indexing != "off" else None
    name = lasting(settings.model)
    rows = read_order_weights(registry.folder, name) or ORDER_WEIGHTS
    domains = Domains(registry, tokens.fingerprint, built_in, live, rebuilder, name, rows)
    return Completer(model, tokens, domains, settings, tuned, languages)


def check_vocabulary(tokens: ModelTokenizer, model_size: int | None, folder: Path) -> None:
    """Refuse a tokenizer with text for ids that the model does not have. Ids without text may exceed it."""
    if model_size is not None and tokens.vocab_size > model_size and any(tokens.pieces[model_size:]):
        raise UserError(
            f"the tokenizer in {folder} has {tokens.vocab_size:,} tokens and its model only {model_size:,}: they "
            "belong to different models; restore the files of one"
        )


def print_status(text: str) -> None:
    """Print to standard error, apart from a command's output."""
    click.echo(text, err=True)
