"""The settings of commands: from the configuration file, environment variables and options; and what they open.

The file holds settings of commands and the server, in kebab-case as in ruff.toml and uv.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import platformdirs
from click.core import ParameterSource

from spd_lsp.settings import FIELDS, Settings, converted, hint, invalid_reason

if TYPE_CHECKING:
    from ngram_builders.registry.registry import Registry
    from spd_lsp.completion.tokenizer import ModelTokenizer


_KEYS = {name.replace("_", "-"): field for name, field in FIELDS.items()}


class _ConfigError(click.ClickException):
    exit_code = 2  # as for a wrong option


class Choices(NamedTuple):
    """The settings in use, the sources of those that are not defaults, and problems in the file."""

    settings: Settings
    origins: dict[str, str]  # such as `--model`, `SPD_LSP_MODEL` or the file's path
    problems: list[str]

    def with_options(self, context: click.Context, **changes: Any) -> Choices:
        """Replace settings by the options given to a command. changes: other values for these options."""
        settings = {name: getattr(self.settings, name) for name in FIELDS}
        origins = dict(self.origins)
        for option in context.command.params:
            name = option.name or ""
            source = context.get_parameter_source(name)
            if name in FIELDS and source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
                settings[name] = {**context.params, **changes}[name]
                is_variable = source is ParameterSource.ENVIRONMENT
                origins[name] = str(option.envvar) if is_variable else max(option.opts, key=len)
        return Choices(Settings(**settings), origins, self.problems)


def config_path() -> Path:
    """Where the file is, if there is one. Example: `~/.config/spd-lsp/config.toml` on Linux."""
    return platformdirs.user_config_path("spd-lsp", appauthor=False) / "config.toml"


def read_config() -> tuple[dict[str, Any], list[str]]:
    """The valid settings in the file by their fields' names, and a sentence about each other one."""
    path = config_path()
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # editors on Windows begin with a mark
    except (FileNotFoundError, NotADirectoryError):
        return {}, []
    except OSError as error:
        return {}, [f"cannot read {path}: {error.strerror}; make it readable, or delete it"]
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor TOML
        return {}, [f"{path} must be TOML, such as `drafts = 5`, but is not: {error}"]
    valid: dict[str, Any] = {}
    problems = []
    for key, value in written.items():
        if key not in _KEYS:
            problems.append(f"{path}: unknown setting {key!r}{hint(key, _KEYS)}")
        elif reason := invalid_reason(_KEYS[key], value):
            problems.append(f"{path}: {key!r} {reason}")
        else:
            valid[_KEYS[key].name] = converted(value, _KEYS[key].default)
    return valid, problems


def with_choices(command: Callable[..., None]) -> Callable[..., None]:
    """Call a command with `Choices` instead of those of its options that are settings."""

    @wraps(command)
    def call(**options: Any) -> None:
        context = click.get_current_context()
        others = {name: value for name, value in options.items() if name not in FIELDS}
        command(context.obj.with_options(context), **others)

    return call


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Call a command with `Settings` instead of those of its options that are settings, if the file is right."""

    @wraps(command)
    def call(choices: Choices, **options: Any) -> None:
        if choices.problems and not options.get(
            "ends_with_input"
        ):  # the server that starts such a command reports them
            raise _ConfigError("\n".join(choices.problems))
        command(choices.settings, **options)

    return with_choices(call)


def setting_option(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option of a setting, which its last name says; `Settings` describes it."""
    setting = FIELDS[names[-1].removeprefix("--").replace("-", "_")]
    low, high, choices, text = (setting.metadata[about] for about in ("low", "high", "choices", "description"))
    kind = click.Choice(choices) if choices else str if low is None else click.IntRange(low, high)
    text = f"{text[0].upper()}{text[1:].replace('`', '')}."

    def check(context: click.Context, option: click.Parameter, value: Any) -> Any:
        if reason := invalid_reason(setting, value):
            raise click.BadParameter(reason)
        return value

    return click.option(*names, type=kind, default=setting.default, show_default=True, help=text, callback=check)


def model_option(description: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option of every command that needs a model or its tokenizer."""
    shown: dict[str, Any] = {"show_default": True, "show_envvar": True, "metavar": "M", "help": description}
    return click.option("--model", envvar="SPD_LSP_MODEL", default="starter", **shown)


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every command that runs a model."""
    model = model_option(
        "Model to use: `starter`, a GGUF file, a folder such as ./mine, a name from `spd-lsp models get`, a "
        "Hugging Face id, the http:// address of a model server, or `none` for n-grams only."
    )
    return model(setting_option("--device")(command))


def open_registry(settings: Settings) -> Registry:
    """The n-gram tables in the data folder."""
    from ngram_builders.registry.registry import Registry

    return Registry(Path(settings.data_dir) if settings.data_dir else None)


def load_tokens(model: str) -> ModelTokenizer:
    """The tokenizer of a model; a model that is named by its Hugging Face id may be downloaded."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.hub import locate

    return ModelTokenizer(locate(model))


def print_status(text: str) -> None:
    """Print to standard error, apart from a command's output."""
    click.echo(text, err=True)
