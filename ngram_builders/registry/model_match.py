"""Whose tokens a table counts, and what to tell a person whose model has other tokens.

A repository may have a table for each of several models. Each model asks its own and passes over the others, which
is nobody's fault; it is told where a model has none. Knows domains by their facts, and no tokenizer.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from ngram_builders.registry.domains import Domain

_LONGEST = 62  # characters of a name, before its end is checked


def _recorded_model(domain: Domain) -> str:
    """The model that a table was built for, "" if nobody wrote it down."""
    return str(domain.recipe.get("model") or "")


def _short_name(model: str) -> str:
    """A model's name without where it is from. Example: `Qwen/Qwen2.5-Coder-0.5B` -> `Qwen2.5-Coder-0.5B`."""
    return Path(model).name or model


def model_label(domain: Domain) -> str:
    """Whose tokens a table counts, for people."""
    return _short_name(_recorded_model(domain)) or f"tokenizer {domain.fingerprint}"


def is_for_another_model(domain: Domain, model: str, fingerprint: str) -> bool:
    """Whether a table was made for another model than this one, and counts other tokens."""
    return domain.fingerprint != fingerprint and _recorded_model(domain) not in ("", model)


def covering_domains(domains: Iterable[Domain], other: Domain) -> list[str]:
    """Names of sound domains that among them have all sources of another; none if some source has none.

    What was imported has no sources and stands for anything else that was.
    """
    sound = [domain for domain in domains if domain.fault is None]
    if not other.roots:
        return [domain.name for domain in sound if not domain.roots]
    around = [[one.name for one in sound if any(map(root.is_relative_to, one.roots))] for root in other.roots]
    return list(dict.fromkeys(name for names in around for name in names)) if all(around) else []


def mismatch_message(domain: Domain, model: str) -> str:
    """That a model cannot use a table, and how to make one that it can. model: as a person gives it."""
    owner = (
        f"an earlier tokenizer of {_short_name(model)}"
        if _recorded_model(domain) == model
        else model_label(domain)
    )
    asking = _short_name(model)
    if owner == asking:  # of the same name, from elsewhere
        owner, asking = _recorded_model(domain), model
    told = f"n-gram table {domain.name} was built for {owner}, and {asking} has other tokens"
    return f"{told}; {_todo(domain, model)}"


def _todo(domain: Domain, model: str) -> str:
    """What to do with a table that a model cannot use: one that serves another model is kept beside a new one."""
    if "imported" in domain.recipe:
        return f"import one built with {model}, or run: spd-lsp ngrams remove {domain.name}"
    if _recorded_model(domain) not in ("", model) and domain.roots:
        roots = " ".join(shlex.quote(str(root)) for root in domain.roots)
        language = domain.recipe.get("language")
        only = f" --language {language}" if language else ""
        return f"run: spd-lsp build-ngrams {roots}{only} --model {shlex.quote(model)}"
    return f"run: spd-lsp ngrams rebuild {domain.name} --model {shlex.quote(model)}"


def name_for_model(name: str, model: str) -> str:
    """The name of one more table of the same sources. Example: shop, `/models/Tiny 2` -> `shop-Tiny-2`."""
    own = re.sub(r"[^A-Za-z0-9._-]+", "-", _short_name(model)).strip("-.")[:24] or "other"
    return f"{name[: _LONGEST - len(own)]}-{own}".rstrip(".")
