"""The command `ngrams rebuild`: builds tables again from what the registry recorded of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.build_ngrams import count, describe_build
from spd_lsp.commands.ngram_listing import sources_gone
from spd_lsp.commands.ngrams import example, open_registry
from spd_lsp.models.checkpoint.hub import lasting
from spd_lsp.progress import progress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.build import Summary
    from ngram_builders.registry.domains import Domain
    from spd_lsp.completion.tokenizer import ModelTokenizer


@click.command("rebuild", epilog=example("rebuild --model Qwen/Qwen2.5-Coder-0.5B"))
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--model", metavar="M", help="Whose tokens are counted (default: as each was built).")
@click.option("--all", "everything", is_flag=True, help="Every table that was built here.")
@click.option("--fresh", is_flag=True, help="Use nothing that earlier builds kept, such as token ids.")
@click.pass_obj
def rebuild(settings: Settings, names: tuple[str, ...], model: str | None, everything: bool, fresh: bool) -> None:
    """Build tables again from their repositories, as they were asked for.

    Without names: those that cannot serve the model, because they are broken, old, or of another tokenizer and
    without a table of the same sources that can. One that serves another model is kept beside a new one.
    """
    from ngram_builders.registry.model_match import covering_domains

    registry = open_registry(settings)
    if names:
        domains = [registry.find(name) for name in dict.fromkeys(names)]
    else:
        known = registry.domains()
        fitting = [one for one in known if model and not _unfit(one, model)]
        domains = [
            one
            for one in known
            if (_unfit(one, model) and (one.fault or not covering_domains(fitting, one)))
            or (everything and _has_sources(one))
        ]
    if not domains:
        click.echo(f"nothing to rebuild: every table can serve {model or 'the model that it was built for'}")
    failed = 0
    made: list[Domain] = []
    for domain in domains:
        beside = model is not None and not names and _serves_another(domain, model)
        if beside and covering_domains(made, domain):
            continue
        try:
            done = again(settings, domain, model, fresh, beside=beside)
            made.append(registry.find(done.domain))
            click.echo(describe_build(done))
        except UserError as error:
            failed += 1
            click.echo(f"{domain.name} was not rebuilt: {error}", err=True)
    if failed:
        raise UserError(f"{failed} of {len(domains)} tables could not be rebuilt, see above")


def _unfit(domain: Domain, model: str | None) -> bool:
    """Whether a table cannot serve a model, or the one that it was built for."""
    if domain.fault:
        return True
    if model is None and not _has_sources(domain):
        return False
    return domain.fingerprint != _load_tokens(model or _model_of(domain)).fingerprint


def _serves_another(domain: Domain, model: str) -> bool:
    """Whether a sound table was built for another model, which would lose it."""
    from ngram_builders.registry.model_match import is_for_another_model

    return not domain.fault and is_for_another_model(domain, lasting(model), _load_tokens(model).fingerprint)


def _has_sources(domain: Domain) -> bool:
    """Whether a table was built here, not imported."""
    return "imported" not in domain.recipe


def _model_of(domain: Domain) -> str:
    """The model that a table was built for."""
    return str(domain.recipe.get("model") or "starter")


@cache
def _load_tokens(model: str) -> ModelTokenizer:
    """A model's tokenizer."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import locate

    return ModelTokenizer(locate(model))


def again(settings: Settings, domain: Domain, model: str | None, fresh: bool, *, beside: bool = False) -> Summary:
    """Build one table from its recorded roots and recipe, in its place or beside it."""
    _check_sources(domain)
    with progress() as report:
        made, _ = count(
            settings,
            [*domain.roots, *map(Path, domain.recipe.get("rows", ()))],
            report,
            domain=None if beside else domain.name,
            engine=str(domain.recipe.get("engine") or "local"),
            model=model or _model_of(domain),
            fresh=fresh,
            **asked(domain),
        )
    return made


def asked(domain: Domain) -> dict[str, Any]:
    """What the build was asked; what a damaged or old index does not tell is left to the build."""
    orders = domain.recipe.get("orders") or domain.orders
    if not orders:
        return {}
    least = domain.recipe.get("min_count") or [1] * len(orders)
    return {
        "orders": tuple(orders),
        "min_count": dict(zip(orders, least, strict=True)),
        "min_files": int(domain.recipe.get("min_files") or 1),
        "language": domain.recipe.get("language"),
    }


def _check_sources(domain: Domain) -> None:
    """Refuse to build what is not there."""
    if not _has_sources(domain):
        raise UserError(
            f"expected a repository to build from, found that it was imported from {domain.recipe['imported']}; "
            "import one that was built with this model, or run: spd-lsp ngrams remove " + domain.name
        )
    if not domain.roots and not domain.recipe.get("rows"):
        raise UserError(domain.fault or f"no repository is recorded for {domain.name}; build it with build-ngrams")
    if gone := sources_gone(domain):
        raise UserError(
            f"expected its repository at {', '.join(map(str, gone))}, found nothing; "
            f"run: spd-lsp build-ngrams REPO --domain {domain.name} with where it is now, "
            f"or spd-lsp ngrams remove {domain.name}"
        )
