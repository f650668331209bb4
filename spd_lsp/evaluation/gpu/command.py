"""The command: from flags to a report. What is slow to import is imported where it is used."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from ngram_builders.errors import UserError


def numbers(text: str) -> tuple[int, ...]:
    """Example: `8,1` -> (1, 8)."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and 1 <= int(part) <= 128 for part in parts):
        raise UserError(f"expected numbers from 1 to 128 such as 1,8,32, found {text!r}")
    return tuple(sorted(set(map(int, parts))))


@click.command("gpu", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--shape", default="1.5b", show_default=True, help="0.5b, 1.5b, 7b, starter or tiny.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
@click.option(
    "--context", type=click.IntRange(16, 8192), default=512, show_default=True, help="Tokens of prompts."
)
@click.option("--tokens", type=click.IntRange(2, 256), default=16, show_default=True, help="Tokens of each draft.")
@click.option("--repeat", type=click.IntRange(2, 1000), default=15, show_default=True, help="Rounds.")
@click.option("--rows", default="1,2,4,8,16,32", show_default=True, help="Requests in a step.")
@click.option("--editors", default="1,8,32", show_default=True, help="Editors that ask at once.")
@click.option("--requests", type=click.IntRange(1, 1000), default=6, show_default=True, help="Of each editor.")
@click.option("--compiled", is_flag=True, help="Compile steps before they are captured: a minute for each shape.")
@click.option(
    "--out",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write it to a file: .md or .json; may be repeated.",
)
def gpu(
    shape: str,
    device: str,
    context: int,
    tokens: int,
    repeat: int,
    rows: str,
    editors: str,
    requests: int,
    compiled: bool,
    out: tuple[Path, ...],
) -> None:
    """Time steps, drafts and requests on a GPU, with random weights, beside the limit of its memory."""
    from spd_lsp.evaluation.bench.machine import describe
    from spd_lsp.evaluation.gpu.measure import Asked, Found, longest, measure
    from spd_lsp.evaluation.gpu.report import report_of
    from spd_lsp.evaluation.gpu.subject import prepare
    from spd_lsp.evaluation.report_writer import check_target, save

    def tell(what: str) -> None:
        click.echo(what, err=True)

    try:
        for path in out:
            check_target(path)
        asked = Asked(shape, device, context, tokens, repeat, numbers(rows), numbers(editors), requests, compiled)
        tell(f"a network of shape {shape}")
        subject = prepare(shape, device, longest(asked), compiled)
        for remark in subject.remarks:
            tell(remark)
        where = "device" if subject.engine.selects_on_device else "host"
        found = Found(
            dataclasses.asdict(asked),
            describe(str(subject.engine.device)),
            f"{type(subject.engine).__name__}, {where} chooses among logits",
            subject.remarks,
            subject.weights,
        )
        measure(subject, asked, found, tell)
    except UserError as error:
        raise click.ClickException(str(error)) from error
    report = report_of(found)
    for path in out:
        save(report, path)
    click.echo(report.markdown(), nl=False)
