"""Every setting, its default and its one-line meaning. Parsed once, then passed down, never changed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError

__all__ = ["Settings", "UserError", "is_path", "parse_options", "unabbreviated"]


def setting(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field that carries its meaning and its bounds."""
    return field(default=default, metadata={"meaning": meaning, "low": low, "high": high, "choices": choices})


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a person can choose. `parse_options` reads it from an editor, the commands from their flags."""

    model: str = setting("starter", "`starter`, a folder, or the Hugging Face id of any causal language model")
    device: str = setting("auto", "`auto`, `cpu`, `cuda` or `mps`")
    drafts: int = setting(3, "alternatives offered at once (k in the paper)", low=1, high=16)
    max_tokens: int = setting(24, "longest draft, in tokens", low=1, high=512)
    context_tokens: int = setting(1024, "how much of the file the model sees, in tokens", low=64, high=32768)
    decoder: str = setting(
        "superposed",
        "how drafts are written: `superposed`, `verified` (read once more before they are ranked), or for "
        "comparison `greedy`, `nucleus`, `beam`, `branches` (of the first token), `nucleus-superposed`",
        choices=("superposed", "verified", "greedy", "nucleus", "beam", "branches", "nucleus-superposed"),
    )
    streams: int = setting(
        1,
        "rows that `superposed` drafts share (g), all read in one pass a token: with 2, three drafts find about "
        "what beam search finds, and take longer",
        low=1,
        high=16,
    )
    interpolation: str = setting(
        "nested",
        "how model and n-grams are combined: `nested` (candidates of both, mixed) or `paper` (its formula)",
        choices=("nested", "paper"),
    )
    ranking: str = setting(
        "probability",
        "what drafts are ranked by: the `probability` of the whole text, or the `mean` of its tokens (the paper)",
        choices=("probability", "mean"),
    )
    alpha: float = setting(0.54, "weight of the n-grams in the paper's formula", low=0.0, high=1.0)
    temperature: float = setting(1.0, "sharpness of the model's distribution (tau)", low=0.001, high=10.0)
    candidates: int = setting(20, "tokens looked at in each step (r)", low=1, high=1000)
    ngram_trust: float = setting(
        1.0, "factor on the odds of n-grams beside the model; below 1 for a strong model", low=0.0, high=100.0
    )
    longest_order: int = setting(9, "tokens of the longest n-grams that are asked", low=2, high=9)
    least_probability: float = setting(
        0.0, "drafts that would be right more seldom are not offered, 0.05 is one of twenty", low=0.0, high=1.0
    )
    reset_every: int = setting(0, "start again from the best draft after so many tokens; 0 never", low=0, high=512)
    languages_off: tuple[str, ...] = setting(
        ("plaintext", "markdown", "csv", "tsv", "git-commit", "gitcommit", "git-rebase", "gitrebase", "dotenv"),
        "languages without completions",
    )
    refresh: bool = setting(True, "build n-gram tables that fell far behind their files again in the background")
    data_dir: str = setting("", "folder of the n-gram registry; empty for the user's data folder")

    def __post_init__(self) -> None:
        """Editors, variables and quotes keep the shell from writing `~` out, so it is done here."""
        for name in ("model", "data_dir"):
            object.__setattr__(self, name, unabbreviated(getattr(self, name)))


def is_path(name: str) -> bool:
    """Whether a name is written as a path: in full, or after `./`, `../` or `~`. `owner/name` is an id."""
    return Path(name).is_absolute() or re.match(r"(?:\.{1,2}|~[^/\\]*)(?:[/\\]|$)", name) is not None


def unabbreviated(path: str) -> str:
    """A path whose `~` is written out; one of an unknown user stays as it is. Example: `~/m` -> `/home/me/m`."""
    try:
        return str(Path(path).expanduser()) if path.startswith("~") else path
    except RuntimeError:
        return path


def parse_options(options: object) -> tuple[Settings, list[str]]:
    """Read an editor's options; what is unknown or wrong keeps its default and is named in the list.

    Both spellings are read: {"maxTokens": 8} and {"max_tokens": 8} give Settings(max_tokens=8).
    """
    if options is None:
        return Settings(), []
    if not isinstance(options, Mapping):
        return Settings(), [f"settings: expected an object, found {type(options).__name__}; defaults are used"]
    known = {f.name: f for f in dataclasses.fields(Settings)}
    chosen: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in options.items():
        name = re.sub(r"(?<=[a-z])([A-Z])", lambda m: "_" + m[1].lower(), str(key))
        if name not in known:
            problems.append(f"setting {key!r} is unknown; it is ignored")
        elif (problem := fault(known[name], value)) is not None:
            problems.append(f"setting {key!r}: {problem}; the default {known[name].default!r} is used")
        else:
            chosen[name] = tuple(value) if isinstance(value, list) else convert(value, known[name].default)
    return Settings(**chosen), problems


def convert(value: Any, default: Any) -> Any:
    """The value in the type of its default: an editor may write 1 where 1.0 is meant."""
    return float(value) if isinstance(default, float) else value


def fault(known: dataclasses.Field[Any], value: object) -> str | None:
    """What is wrong with this value for that setting, or None."""
    wanted: type = type(known.default)
    if wanted is tuple:
        strings = isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value)
        return None if strings else f"expected a list of strings, found {value!r}"
    fits = isinstance(value, (int, float) if wanted is float else wanted)
    if not fits or isinstance(value, bool) != (wanted is bool):
        return f"expected {wanted.__name__}, found {value!r}"
    if known.metadata["choices"] and value not in known.metadata["choices"]:
        return f"expected one of {', '.join(known.metadata['choices'])}, found {value!r}"
    low, high = known.metadata["low"], known.metadata["high"]
    if isinstance(value, (int, float)) and low is not None and not low <= value <= high:
        return f"expected {low} to {high}, found {value!r}"
    return None
