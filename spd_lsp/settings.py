"""Every setting, its default and its one-line meaning. Parsed once, then passed down, never changed."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HUGGING_FACE = re.compile(r"[\w.-]+/[\w.-]+")
DEVICE = re.compile(r"auto|cpu|mps|cuda(:[0-9]{1,2})?")


def _setting(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    expected: Callable[[str], str] = lambda value: "",
    any_folder: bool = False,
) -> Any:
    """A dataclass field that carries its meaning and its bounds.

    `expected` tells what a wrong text should have been; with `any_folder` a folder that is opened may set it.
    """
    bounds = {"low": low, "high": high, "choices": choices, "expected": expected}
    return field(default=default, metadata={"meaning": meaning, "any_folder": any_folder, **bounds})


def _expected_model(name: str) -> str:
    """What a model's name should have been, if it can be none. An editor writes a folder in full."""
    if name == "starter" or _is_there(name) or (HUGGING_FACE.fullmatch(name) and not is_path(name)):
        return ""
    return "`starter`, the full path of a folder that is there, or a Hugging Face id"


def _expected_device(name: str) -> str:
    """What a device's name should have been, if there is none of that name."""
    return "" if DEVICE.fullmatch(name) else "auto, cpu, cuda, mps, or cuda:0 and so on"


def _expected_folder(name: str) -> str:
    """What a data folder should have been, if it cannot be one; it need not be there yet."""
    folder = Path(unabbreviated(name))
    free = folder.is_absolute() and "\0" not in name and not os.path.lexists(folder)
    return "" if not name or free or _is_there(name) else "the full path of a folder"


def _is_there(name: str) -> bool:
    """Whether this is a folder, written in full: an editor's relative paths would mean the folder that is open."""
    folder = Path(unabbreviated(name))
    try:
        return folder.is_absolute() and folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)
    except OSError:
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a person can choose. `parse_options` reads it from an editor, the commands from their flags."""

    enabled: bool = _setting(True, "offer completions", any_folder=True)
    model: str = _setting(
        "starter",
        "`starter`, a folder's full path, or the Hugging Face id of any causal language model",
        expected=_expected_model,
    )
    device: str = _setting(
        "auto", "`auto`, `cpu`, `cuda`, `cuda:1` and so on, or `mps`", expected=_expected_device
    )
    drafts: int = _setting(3, "alternatives offered at once (k in the paper)", low=1, high=16, any_folder=True)
    max_tokens: int = _setting(24, "longest draft, in tokens", low=1, high=512)
    context_tokens: int = _setting(1024, "how much of the file the model sees, in tokens", low=64, high=32768)
    decoder: str = _setting(
        "superposed",
        "how drafts are written: `superposed`, `verified` (read once more before they are ranked), or for "
        "comparison `greedy`, `nucleus`, `beam`, `branches` (of the first token), `nucleus-superposed`",
        choices=("superposed", "verified", "greedy", "nucleus", "beam", "branches", "nucleus-superposed"),
    )
    streams: int = _setting(
        1,
        "rows that `superposed` drafts share (g), all read in one pass a token: with 2, three drafts find about "
        "what beam search finds, and take longer",
        low=1,
        high=16,
    )
    interpolation: str = _setting(
        "nested",
        "how model and n-grams are combined: `nested` (candidates of both, mixed) or `paper` (its formula)",
        choices=("nested", "paper"),
    )
    ranking: str = _setting(
        "probability",
        "what drafts are ranked by: the `probability` of the whole text, or the `mean` of its tokens (the paper)",
        choices=("probability", "mean"),
    )
    alpha: float = _setting(0.54, "weight of the n-grams in the paper's formula", low=0.0, high=1.0)
    temperature: float = _setting(1.0, "sharpness of the model's distribution (tau)", low=0.001, high=10.0)
    candidates: int = _setting(20, "tokens looked at in each step (r)", low=1, high=1000)
    ngram_trust: float = _setting(
        1.0, "factor on the odds of n-grams beside the model; below 1 for a strong model", low=0.0, high=100.0
    )
    longest_order: int = _setting(9, "tokens of the longest n-grams that are asked", low=2, high=9)
    least_probability: float = _setting(
        0.0, "drafts that would be right more seldom are not offered, 0.05 is one of twenty", low=0.0, high=1.0
    )
    reset_every: int = _setting(
        0, "start again from the best draft after so many tokens; 0 never", low=0, high=512
    )
    languages_off: tuple[str, ...] = _setting(
        ("plaintext", "markdown", "csv", "tsv", "git-commit", "gitcommit", "git-rebase", "gitrebase", "dotenv"),
        "languages without completions",
        any_folder=True,
    )
    refresh: bool = _setting(True, "build n-gram tables that fell far behind their files again in the background")
    data_dir: str = _setting(
        "",
        "full path of the folder of the n-gram registry; empty for the user's data folder",
        expected=_expected_folder,
    )

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


@dataclass(frozen=True, slots=True)
class Said:
    """What an editor's options say of one setting."""

    key: str  # as it is written there
    name: str  # of the field, empty if no setting is called so
    value: Any
    fault: str = ""


def read_options(options: Mapping[str, object]) -> list[Said]:
    """What options say, setting by setting. Both spellings are read: {"maxTokens": 8} and {"max_tokens": 8}."""
    known = {f.name: f for f in dataclasses.fields(Settings)}
    found = []
    for key, value in options.items():
        name = re.sub(r"(?<=[a-z])([A-Z])", lambda m: "_" + m[1].lower(), str(key))
        if name not in known:
            found.append(Said(key, "", value, "unknown"))
        elif (problem := fault(known[name], value)) is not None:
            found.append(Said(key, name, value, problem))
        else:
            found.append(Said(key, name, convert(value, known[name].default)))
    return found


def parse_options(options: object) -> tuple[Settings, list[str]]:
    """Read an editor's options; what is unknown or wrong keeps its default and is named in the list."""
    if options is None:
        return Settings(), []
    if not isinstance(options, Mapping):
        return Settings(), [no_object(options)]
    said = read_options(options)
    return Settings(**{one.name: one.value for one in said if not one.fault}), [
        objection(one, getattr(Settings(), one.name, None)) for one in said if one.fault
    ]


def no_object(options: object) -> str:
    """What to tell of options that are none."""
    return f"settings: expected an object, found {type(options).__name__}; they are as before"


def objection(said: Said, used: object) -> str:
    """What to tell of a setting that is not taken over."""
    if not said.name:
        return f"setting {said.key!r} is unknown; it is ignored"
    return f"setting {said.key!r}: {said.fault}; {used!r} is used"


def convert(value: Any, default: Any) -> Any:
    """The value in the type of its default: an editor may write 1 where 1.0 is meant, and knows no tuples."""
    return type(default)(value) if isinstance(default, (float, tuple)) else value


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
    if isinstance(value, str) and (told := known.metadata["expected"](value)):
        return f"expected {told}, found {value!r}"
    low, high = known.metadata["low"], known.metadata["high"]
    if isinstance(value, (int, float)) and low is not None and not low <= value <= high:
        return f"expected {low} to {high}, found {value!r}"
    return None
