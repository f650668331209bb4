"""The command `ngrams which`: which tables serve a file, why, and what each of them says at a place in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import print_status
from spd_lsp.commands.complete import read_position
from spd_lsp.commands.ngrams import help_example, open_registry
from spd_lsp.completion.exclusions import exclusion_reason, language_id
from spd_lsp.models.checkpoint.hub import absolute_model_name
from spd_lsp.output.printable import as_json
from spd_lsp.output.progress import format_count
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.registry.assignments import Choice
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.ngrams.serving_tables import ServingTable

_SHOWN_TOKENS = 5


@click.command("which", epilog=help_example("which src/app.py:12:8"))
@click.argument("position", metavar="FILE[:LINE:COL]")
@click.option("--model", default="starter", show_default=True, metavar="M", help="Model that completes FILE.")
@click.option("--json", "print_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def which(settings: Settings, position: str, model: str, print_json: bool) -> None:
    """Show which tables serve a file, and why.

    With LINE and COL, which count from 1, also how much of the next token each table decides there, if the model
    is sure of nothing, and the tokens that it finds likeliest; of the tables as they were built.
    """
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import bundled_tables, locate
    from spd_lsp.ngrams.serving_tables import ServingTables

    history: list[int] | None = None
    folder = locate(model)
    tokens = ModelTokenizer(folder)
    if re.search(r":[0-9]+:[0-9]+\Z", position):
        file, source, cursor = read_position(position, stdin=False)
        history = tokens.prompt(source[:cursor], "").history
    else:
        file = Path(position)
    registry = open_registry(settings)
    language = language_id(file)
    built_in = bundled_tables(model, folder)
    serving = ServingTables(registry, tokens.fingerprint, built_in, model=absolute_model_name(model))
    mixture = serving.mixture_for(file.absolute(), language)
    choices = registry.choices_for(file, language)
    tables = [
        {
            "table": one.name,
            "weight": one.weight,
            **(_why(choices[one.name]) if one.table else {"reason": f"built in: comes with {model}"}),
            **({} if history is None else _likeliest(one, history, tokens)),
        }
        for one in serving.tables
    ]
    if history is not None and mixture is not None:
        shares = mixture.decided([history])
        tables = [{**table, "decides": share} for table, share in zip(tables, shares, strict=True)]
    reason = exclusion_reason(file, settings)
    problems = [f"nothing is completed in {file}: {reason}"] if reason else []
    problems += serving.problems
    if print_json:
        listed = {"file": str(file.absolute()), "language": language, "model": model, "tables": tables}
        click.echo(as_json({**listed, "problems": problems}))
        return
    for problem in problems:
        print_status(problem)
    if not tables:
        raise UserError(f"no n-gram table serves {file}; run: spd-lsp build-ngrams {file.absolute().parent}")
    for table in tables:
        click.echo(_describe(table))


def _why(choice: Choice) -> dict[str, Any]:
    """Why a table serves a file, and where its weight was learnt, if it is."""
    learnt = {"learnt_in": choice.learnt_in, "learnt_from": choice.tokens} if choice.learnt_in else {}
    return {"reason": choice.reason, **learnt}


def _likeliest(table: ServingTable, history: list[int], tokens: ModelTokenizer) -> dict[str, Any]:
    """How long the longest context is that a table knows here, and the tokens that followed it most often."""
    from spd_lsp.ngrams.mixture import Mixture

    mixture = Mixture([table.columns], [1.0])
    candidates = mixture.successors([history], _SHOWN_TOKENS)
    p, seen = mixture.by_order([history], candidates)  # [1, N, C] and [1, N], orders from 2 on
    context = max((number for number, known in enumerate(seen[0], 1) if known), default=0)
    shares = zip(candidates.tolist(), p[0, context - 1].tolist() if context else [], strict=False)
    ranked = sorted(shares, key=lambda share: -share[1])
    following = [
        {"text": tokens.bytes_of([token]).decode(errors="replace"), "share": p} for token, p in ranked if p
    ]
    return {"context": context, "next": following}


def _describe(table: dict[str, Any]) -> str:
    from ngram_builders.registry.learnt_weights import START

    line = f"{table['table']:24} {table['weight']:<5g} {table['reason']}"
    if "learnt_in" in table:
        from ngram_builders.registry.learnt_weights import START  # with NumPy, which `--help` does without

        count = format_count(table["learnt_from"], "accepted token")
        line += f"; weight learnt from {count} here, from {START:g} on"
    if "next" not in table:
        return line
    found = ", ".join(f"{as_json(one['text'])} {one['share']:.0%}" for one in table["next"])
    after = f"after {format_count(table['context'], 'token')}: {found}" if found else "knows nothing like this"
    decides = f"decides up to {table['decides']:.1%}; " if found else ""
    return f"{line}\n{'':24} {decides}{after}"
