"""The program `spd-lsp`: its commands, and how whatever goes wrong in one of them is told."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import click

from ngram_builders.errors import UserError
from spd_lsp import __version__
from spd_lsp.commands.bench import bench
from spd_lsp.commands.build_ngrams import build_ngrams
from spd_lsp.commands.complete import complete
from spd_lsp.commands.connect import connect
from spd_lsp.commands.doctor import doctor
from spd_lsp.commands.evaluate import evaluate
from spd_lsp.commands.ngrams import ngrams
from spd_lsp.commands.rebuild import rebuild
from spd_lsp.commands.serve import serve
from spd_lsp.commands.tune import tune
from spd_lsp.commands.wiring import tell
from spd_lsp.settings import Settings, expand_home
from spd_lsp.terminal import guard_output

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


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
    ctx.obj = Settings(data_dir=data_dir and str(Path(expand_home(data_dir)).absolute()))


main.add_command(serve)
main.add_command(complete)
main.add_command(doctor)
main.add_command(bench)
main.add_command(connect)
main.add_command(build_ngrams)
main.add_command(ngrams)
main.add_command(evaluate)
ngrams.add_command(tune)
ngrams.add_command(rebuild)
