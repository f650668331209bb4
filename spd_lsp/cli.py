"""The commands. The only place that puts the parts together; anything slow is imported where it is used."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp import __version__
from spd_lsp.commands.bench import bench
from spd_lsp.commands.build_ngrams import build_ngrams
from spd_lsp.commands.connect import connect, door_at, token_options
from spd_lsp.commands.evaluate import evaluate
from spd_lsp.commands.ngrams import ngrams
from spd_lsp.commands.rebuild import rebuild
from spd_lsp.commands.tune import tune
from spd_lsp.lsp.transport.addresses import DEFAULT_PORT, is_number
from spd_lsp.models.checkpoint.hub import lasting
from spd_lsp.printable import as_json
from spd_lsp.settings import Settings, unabbreviated
from spd_lsp.surroundings import settle_elsewhere
from spd_lsp.terminal import guard_output

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Answer, Completer
    from spd_lsp.completion.tokenizer import Tokens


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_LINE_END = re.compile(r"\r\n|\r|\n")  # as editors count lines
_OURS = ("model", "device", "data_dir")  # what editors elsewhere cannot choose of a shared server


class Commands(click.Group):
    """Commands whose errors a person can mend end as one sentence and exit status 1, not as a traceback."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the program; what cannot be written for want of space is one sentence, what is printed printable."""
        guard_output()
        try:
            return super().main(*args, **options)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            _give_up_output()
            tell(f"Error: expected to write, found: {error.strerror}; make room, or write elsewhere")
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; say what went wrong in one line."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            raise click.ClickException(str(error)) from error


def _give_up_output() -> None:
    """Forget what standard output still holds, if it takes no more: Python would try again when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="spd-lsp %(version)s")
@click.option(
    "--data-dir",
    envvar="SPD_LSP_DATA_DIR",
    default="",
    metavar="DIR",
    help="Folder of the n-gram tables (default: the user's data folder).",
)
@click.pass_context
def main(ctx: click.Context, data_dir: str) -> None:
    """Complete code locally: several drafts for one model pass per token."""
    ctx.obj = Settings(data_dir=data_dir and str(Path(unabbreviated(data_dir)).absolute()))


def _model_options(command: Callable[..., None]) -> Callable[..., None]:
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


@main.command()
@_model_options
@click.option("--stdio", is_flag=True, help="Speak over standard input and output (the default).")
@click.option(
    "--socket",
    metavar="[PATH]",
    is_flag=False,
    flag_value="",
    help="Listen for any number of your editors, which share the model, at a socket that is yours alone.",
)
@click.option(
    "--tcp", metavar="[HOST:PORT]", is_flag=False, flag_value=DEFAULT_PORT, help="Listen at a port instead."
)
@token_options
@click.option("--sessions", type=click.IntRange(1), default=64, show_default=True, help="Most editors at once.")
@click.option("-v", "--verbose", count=True, help="Log more to standard error; never code.")
@click.pass_obj
def serve(
    settings: Settings,
    model: str,
    device: str,
    stdio: bool,
    socket: str | None,
    tcp: str | None,
    token_file: Path | None,
    unencrypted: bool,
    sessions: int,
    verbose: int,
) -> None:
    """Run the language server; an editor starts it."""
    from spd_lsp.lsp.server import create_server
    from spd_lsp.lsp.transport.serve import SharedModel, serve_at, serve_stdio

    settings = dataclasses.replace(settings, model=lasting(model), device=device)
    if stdio + (socket is not None) + (tcp is not None) > 1:
        raise UserError("expected one way to be reached, found several; choose --stdio, --socket or --tcp")
    door = door_at(socket, tcp, token_file, unencrypted)
    settle_elsewhere()
    if door is None:
        sys.exit(serve_stdio(create_server(load_completer, settings), verbose=verbose))
    load = partial(load_completer, open_model=SharedModel(open_model).seat)
    make = partial(create_server, load, settings, _OURS)
    sys.exit(serve_at(door, make, tell, most=sessions, verbose=verbose))


@main.command()
@click.argument("place", metavar="FILE:LINE:COL")
@click.option("-k", "drafts", type=click.IntRange(1, 16), default=3, show_default=True, help="How many drafts.")
@_model_options
@click.option("--max-tokens", type=click.IntRange(1, 512), default=24, show_default=True, help="Longest draft.")
@click.option("--ngrams/--no-ngrams", default=True, help="Ask the n-gram tables or only the model.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def complete(
    settings: Settings,
    place: str,
    drafts: int,
    model: str,
    device: str,
    max_tokens: int,
    ngrams: bool,
    as_json: bool,
) -> None:
    """Print k drafts for a place in a file; lines and columns count from 1, as editors show them."""
    from spd_lsp.completion.completer import Answer
    from spd_lsp.lsp.exclusions import editors_name, refusal

    path, source, cursor = _read_place(place)
    settings = dataclasses.replace(settings, drafts=drafts, model=model, device=device, max_tokens=max_tokens)
    language = editors_name(path)
    if reason := refusal(path, language, settings.languages_off):
        answer = Answer([], reason=reason)
    else:
        completer = load_completer(settings, tell, ngrams=ngrams)
        path = path.resolve()
        answer = completer.complete(source, cursor, language, path, name=path.as_uri(), forced=True)
    for problem in answer.problems:
        tell(problem)
    click.echo(_as_object(answer, model) if as_json else _as_table(answer))


def _read_place(place: str) -> tuple[Path, str, int]:
    """A file, its text and the offset of a line and a column in it, both counted from 1."""
    parts = place.rsplit(":", 2)
    if len(parts) != 3 or not (is_number(parts[1]) and is_number(parts[2])):
        raise UserError(f"expected FILE:LINE:COL such as app.py:12:8, found {place!r}")
    path, line, column = Path(parts[0]), int(parts[1]), int(parts[2])
    source = _read_source(path)
    lines, starts = _LINE_END.split(source), [0, *(end.end() for end in _LINE_END.finditer(source))]
    if not 1 <= line <= len(lines):
        raise UserError(f"expected a line from 1 to {len(lines)} of {path}, found {line}")
    width = len(lines[line - 1])
    if not 1 <= column <= width + 1:
        raise UserError(f"expected a column from 1 to {width + 1} in line {line} of {path}, found {column}")
    return path, source, starts[line - 1] + column - 1


def _read_source(path: Path) -> str:
    """A file's text; binary files and other encodings are named as such."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"expected a file at {path}, found: {error.strerror}; check the path") from error
    if b"\0" in content:
        raise UserError(f"expected source code in {path}, found a binary file; name a text file")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"expected UTF-8 in {path}, found byte 0x{content[error.start]:02x} at offset {error.start}; "
            "save the file as UTF-8"
        ) from error


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
    from spd_lsp.completion.parsing import PARSERS
    from spd_lsp.completion.tokenizer import Tokens
    from spd_lsp.completion.tuned_settings import read_weights, with_tuned
    from spd_lsp.models.checkpoint.hub import STARTER, built_in_domains, locate, vocabulary
    from spd_lsp.ngrams.auto_rebuild import Rebuilder
    from spd_lsp.ngrams.incremental_tokenizer import Retokeniser
    from spd_lsp.ngrams.interpolation import ROWS, Domains
    from spd_lsp.ngrams.live_index import Live

    folder = locate(settings.model, report)
    tokens = Tokens(folder)  # a tokenizer that does not fit is refused before torch is imported
    check_tokens(tokens, vocabulary(folder), folder)
    PARSERS.start()
    model = open_model(folder, settings.device, report)
    built_in = built_in_domains(folder) if settings.model == STARTER else {}
    registry = Registry(Path(settings.data_dir) if settings.data_dir else None)
    tuned = partial(with_tuned, folder=registry.folder, model=lasting(settings.model))
    if not ngrams:
        return Completer(model, tokens, Domains(None, tokens.fingerprint, {}), settings, tuned)
    live = Live(Retokeniser(tokens), end_of_text=tokens.end_of_text, vocab_size=tokens.vocab_size)
    again = python("spd_lsp", "--data-dir", str(registry.folder.absolute()), "ngrams", "rebuild")
    rebuilder = Rebuilder(lambda domain: (*again, domain.name)) if settings.refresh else None
    name = lasting(settings.model)
    rows = read_weights(registry.folder, name) or ROWS
    domains = Domains(registry, tokens.fingerprint, built_in, live, rebuilder, name, rows)
    return Completer(model, tokens, domains, settings, tuned)


def check_tokens(tokens: Tokens, known: int | None, folder: Path) -> None:
    """Refuse a tokenizer that writes text in ids unknown to its model; marks that nobody writes may be unknown."""
    if known is not None and tokens.vocab_size > known and any(tokens.pieces[known:]):
        raise UserError(
            f"expected a tokenizer of at most the {known:,} tokens of its model in {folder}, found one of "
            f"{tokens.vocab_size:,}; restore the files of one model"
        )


def tell(text: str) -> None:
    """Say what goes on, beside the output."""
    click.echo(text, err=True)


def _as_table(answer: Answer) -> str:
    """The drafts a line each, best first, then what they took."""
    if not answer.completions:
        return f"no draft: {answer.reason}"
    rows = []
    for number, completion in enumerate(answer.completions, 1):
        first, *others = completion.text.split("\n")
        rows += [f"{number:3} {completion.probability:6.1%}  {first}", *(f"{'':12}{line}" for line in others)]
    count = len(answer.completions)
    rows.append(
        f"{count} draft{'s' * (count > 1)}, {answer.passes} forward passes for {answer.tokens} tokens, "
        f"{answer.seconds * 1000:.0f} ms; n-grams: {', '.join(answer.ngrams) or 'none'}"
    )
    return "\n".join(rows)


def _as_object(answer: Answer, model: str) -> str:
    """The same, for programs."""
    return as_json(
        {
            "completions": [dataclasses.asdict(completion) for completion in answer.completions],
            "passes": answer.passes,
            "tokens": answer.tokens,
            "prompt_tokens": answer.prompt_tokens,
            "milliseconds": round(answer.seconds * 1000, 1),
            "ngrams": list(answer.ngrams),
            "withheld": answer.withheld,
            "model": model,
            "reason": answer.reason,
            "problems": list(answer.problems),
        }
    )


@main.command()
@_model_options
@click.pass_obj
def doctor(settings: Settings, model: str, device: str) -> None:
    """Print what is installed, what would run, what is wrong and how to mend it."""
    from spd_lsp.commands.diagnosis import examine

    settings = dataclasses.replace(settings, model=model, device=device)
    wrong = 0
    for finding in examine(settings, lambda chosen: load_completer(chosen, lambda text: None), lasting(model)):
        click.echo(f"{finding.state:5}  {finding.subject:20} {finding.text}")
        wrong += finding.state == "wrong"
    if wrong:
        raise UserError(f"{wrong} thing{'s' * (wrong > 1)} to mend, see above")


main.add_command(bench)
main.add_command(connect)
main.add_command(build_ngrams)
main.add_command(ngrams)
main.add_command(evaluate)
ngrams.add_command(tune)
ngrams.add_command(rebuild)
