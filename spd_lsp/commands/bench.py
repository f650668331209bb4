"""The command `bench`: how long drafts take on this machine, beside other ways to write them."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ngram_builders.errors import UserError
from spd_lsp.progress import progress

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
MOST_DRAFTS, MOST_EDITORS = 16, 128


@click.command("bench")
@click.option("--model", default="starter", show_default=True, metavar="M", help="`starter`, a folder, or an id.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
@click.option("-k", "drafts", default="1,3,5,8", show_default=True, metavar="K,K", help="Numbers of drafts.")
@click.option(
    "--prompt-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Text whose end is the prompt, 512 tokens of it (default: code of this package).",
)
@click.option("--tokens", type=click.IntRange(2, 256), default=16, show_default=True, help="Tokens of each draft.")
@click.option("--repeat", type=click.IntRange(1, 1000), default=15, show_default=True, help="Rounds.")
@click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="For all contenders.")
@click.option("--editors", default="", metavar="N,N", help="Also time so many editors that ask at once: 1,8,32.")
@click.option("--memory/--no-memory", default=True, help="Weigh contenders in processes of their own.")
@click.option(
    "--out",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write it to a file: .md, .json or .png; may be repeated.",
)
def bench(
    model: str,
    device: str,
    drafts: str,
    prompt_file: Path | None,
    tokens: int,
    repeat: int,
    threads: int,
    editors: str,
    memory: bool,
    out: tuple[Path, ...],
) -> None:
    """Time superposed decoding beside greedy, nucleus and beam search, here and in transformers.

    One run, round by round, with medians and quartiles. Let the machine rest meanwhile.
    Example: spd-lsp bench -k 1,3,8 --out bench.md --out bench.png
    """
    for name in THREADS:  # read when the libraries are loaded, which is below
        os.environ[name] = str(threads)
    from spd_lsp.completion import completer
    from spd_lsp.evaluation.bench.report import report_of
    from spd_lsp.evaluation.bench.session import Asked, hold
    from spd_lsp.evaluation.report_writer import check_target, save
    from spd_lsp.models.checkpoint.hub import locate

    for path in out:
        check_target(path)
    ks = parse_numbers(drafts, "-k", MOST_DRAFTS)
    at_once = parse_numbers(editors, "--editors", MOST_EDITORS) if editors else ()
    text = (prompt_file or Path(completer.__file__)).read_text(encoding="utf-8", errors="replace")
    asked = Asked(locate(model), model, device, text, ks, tokens, repeat, threads, memory, at_once)
    with progress() as report:
        found = report_of(hold(asked, report))
    for path in out:
        save(found, path)
    click.echo(found.markdown(), nl=False)


def parse_numbers(text: str, option: str, most: int) -> tuple[int, ...]:
    """Example: `3,1,8` -> (1, 3, 8)."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and 1 <= int(part) <= most for part in parts):
        raise UserError(f"expected {option} with numbers from 1 to {most} such as 1,3,8, found {text!r}")
    return tuple(sorted(set(map(int, parts))))
