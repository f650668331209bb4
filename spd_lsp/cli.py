"""The program `spd-lsp`: its commands, and how their errors are shown. A command is imported when it is run."""

from __future__ import annotations

import errno
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from ngram_builders.errors import UserError
from spd_lsp import __version__
from spd_lsp.command_options import Choices, config_path, print_status, read_config
from spd_lsp.output.printable import guard_output
from spd_lsp.settings import Settings, expand_home

_COMMANDS = {  # the module and its function, and what that says of itself first
    "bench": ("evaluation.commands:bench", "Measure the speed of decoders on this machine."),
    "build-ngrams": ("commands.build_ngrams:build_ngrams", "Build or update an n-gram table of your code."),
    "complete": ("commands.complete:complete", "Print completions at a position of a file, or at its end."),
    "connect": ("commands.connect:connect", "Connect an editor to a shared server."),
    "doctor": ("commands.doctor:doctor", "Check the installation, the configuration, the model and the tables."),
    "eval": ("evaluation.commands:evaluate", "Measure the quality of completions."),
    "models": ("commands.models:models", "List and download models."),
    "ngrams": ("commands.ngrams:ngrams", "Manage n-gram tables."),
    "serve": ("commands.serve:serve", "Run the language server."),
    "stats": ("commands.stats:stats", "Show accepted completions and saved keystrokes."),
}
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Commands(click.Group):
    """Shows a UserError, or a missing extra, as one line with exit status 1, not as a traceback."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the program with printable output; a full disk is one line, too."""
        guard_output()
        try:
            return super().main(*args, **options)
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            print_status(f"Error: cannot write: {error.strerror}; make room, or write elsewhere")
            os._exit(1)  # Python would write the rest at exit, and fail again

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command to run, imported now."""
        command: Any
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:  # a shell that completes a line may name anything
            module, _, function = _COMMANDS[name][0].partition(":")
            command = getattr(import_module(f"spd_lsp.{module}"), function)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            raise click.ClickException(str(error)) from error
        except ModuleNotFoundError as error:
            from spd_lsp.extras import remedy_for

            if not (remedy := remedy_for(error.name)):
                raise
            raise click.ClickException(remedy) from error


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"\b\nConfiguration file: {config_path()}",
)
@click.version_option(__version__, "-V", "--version", message="spd-lsp %(version)s")
@click.option(
    "--data-dir",
    envvar="SPD_LSP_DATA_DIR",
    default="",
    metavar="DIR",
    help="Folder for n-gram tables (default: the user's data folder).",
)
@click.pass_context
def main(ctx: click.Context, data_dir: str) -> None:
    """Complete code on your own machine, with a local model and n-grams of your code."""
    written, problems = read_config()
    choices = Choices(Settings(**written), dict.fromkeys(written, str(config_path())), problems)
    ctx.obj = choices.with_options(ctx, data_dir=data_dir and str(Path(expand_home(data_dir)).absolute()))


for _name, (_, _help) in _COMMANDS.items():
    main.add_command(click.Command(_name, help=_help))
