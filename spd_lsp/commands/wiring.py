"""A completer put together from its parts, and the options that choose them: what several commands share."""

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
    """The options that choose a model, the same for every command that needs one."""
    device = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
    model = click.option(
        "--model",
        default="starter",
        show_default=True,
        metavar="M",
        help="`starter`, a folder, or a Hugging Face id; an id that is not stored yet is downloaded.",
    )
    return model(device(command))


def open_model(folder: Path, device: str, report: Callable[[str], None]) -> Any:
    """Import torch and read the weights, which takes seconds."""
    from spd_lsp.models.load import load

    return load(folder, device, report)


def load_completer(
    settings: Settings,
    report: Callable[[str], None],
    *,
    ngrams: bool = True,
    open_model: Callable[..., Any] = open_model,
) -> Completer:
    """Put a completer together."""
    from ngram_builders.programs import python
    from ngram_builders.registry.registry import Registry
    from spd_lsp.completion.completer import Completer
    from spd_lsp.completion.parsing import PARSER_POOL
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.completion.tuned_settings import apply_tuned, read_order_weights
    from spd_lsp.models.checkpoint.hub import STARTER, built_in_domains, locate, vocabulary
    from spd_lsp.ngrams.auto_rebuild import Rebuilder
    from spd_lsp.ngrams.incremental_tokenizer import IncrementalTokenizer
    from spd_lsp.ngrams.interpolation import ORDER_WEIGHTS, Domains
    from spd_lsp.ngrams.live_index import LiveIndex

    folder = locate(settings.model, report)
    tokens = ModelTokenizer(folder)  # a tokenizer that does not fit is refused before torch is imported
    check_tokens(tokens, vocabulary(folder), folder)
    PARSER_POOL.start()
    model = open_model(folder, settings.device, report)
    built_in = built_in_domains(folder) if settings.model == STARTER else {}
    registry = Registry(Path(settings.data_dir) if settings.data_dir else None)
    tuned = partial(apply_tuned, folder=registry.folder, model=lasting(settings.model))
    if not ngrams:
        return Completer(model, tokens, Domains(None, tokens.fingerprint, {}), settings, tuned)
    live = LiveIndex(IncrementalTokenizer(tokens), end_of_text=tokens.end_of_text, vocab_size=tokens.vocab_size)
    again = python("spd_lsp", "--data-dir", str(registry.folder.absolute()), "ngrams", "rebuild")
    rebuilder = Rebuilder(lambda domain: (*again, domain.name)) if settings.auto_rebuild else None
    name = lasting(settings.model)
    rows = read_order_weights(registry.folder, name) or ORDER_WEIGHTS
    domains = Domains(registry, tokens.fingerprint, built_in, live, rebuilder, name, rows)
    return Completer(model, tokens, domains, settings, tuned)


def check_tokens(tokens: ModelTokenizer, known: int | None, folder: Path) -> None:
    """Refuse a tokenizer that writes text in ids unknown to its model; marks that nobody writes may be unknown."""
    if known is not None and tokens.vocab_size > known and any(tokens.pieces[known:]):
        raise UserError(
            f"expected a tokenizer of at most the {known:,} tokens of its model in {folder}, found one of "
            f"{tokens.vocab_size:,}; restore the files of one model"
        )


def tell(text: str) -> None:
    """Say what goes on, beside the output."""
    click.echo(text, err=True)
