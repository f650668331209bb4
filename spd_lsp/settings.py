"""Every setting with its default, bounds and description. Parsed once, then passed down, never changed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

HUGGING_FACE_ID = re.compile(r"[\w.-]+/[\w.-]+")
STORED_GGUF = re.compile(r"ollama:[\w./-]+(?::[\w.-]+)?|hf:[\w.-]+/[\w.-]+:[\w.-]+")  # kept by another program
_SERVER_ADDRESS = re.compile(r"https?://[^\s/@?#]+(?:/[^\s@?#]*)?(?:#\S+)?")  # without a name or password in it
DEVICE_NAME = re.compile(r"auto|cpu|mps|cuda(:[0-9]{1,2})?")

NO_MODEL = "none"  # n-grams, copies and names alone
NO_FILL_FORMAT = "none"  # the text right of the cursor is not in the prompt
_FILL_FORMATS = (  # rows of `completion/fill_formats.py`
    "starter", "starcoder", "granite-code", "mellum", "stable-code", "qwen", "codegemma", "granite", "deepseek",
    "code-llama", "codestral", "seed-coder",
)  # fmt: skip

# Language ids of texts that are not code, by several editors' names.
_PROSE_LANGUAGES = (
    "plaintext", "markdown", "csv", "tsv", "log", "scminput", "git-commit", "gitcommit", "git-rebase", "gitrebase",
    "dotenv",
)  # fmt: skip


_KINDS = {bool: "true or false", int: "an integer", float: "a number", tuple: "a list of strings", str: "a string"}
_ABOUT: dict[str, Any] = {
    "low": None,
    "high": None,
    "choices": (),
    "is_valid": lambda value: True,
    "allowed": "",  # what `is_valid` accepts, in words
    "workspace": False,  # whether the folder that is open in the editor may set it
    "in_editors": True,  # whether editors may set it; the others are for commands, Python and evaluation
}


def _setting(default: Any, description: str, **about: Any) -> Any:
    """A dataclass field with what documents, editors and validation need to know: see `_ABOUT`."""
    return field(default=default, metadata={**_ABOUT, "description": description, **about})


def _is_model(name: str) -> bool:
    """Whether a text can name a model; a relative path would depend on what the editor has open."""
    forms = (STORED_GGUF, _SERVER_ADDRESS, HUGGING_FACE_ID)
    is_other = name in ("starter", NO_MODEL) or any(form.fullmatch(name) for form in forms)
    return _is_absolute(name) or (is_other and not is_path(name))


def _is_absolute(name: str) -> bool:
    return Path(expand_home(name)).is_absolute() and "\0" not in name


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings of the configuration file, the editor's options and the flags of commands."""

    enabled: bool = _setting(True, "offer completions", workspace=True)
    model: str = _setting(
        "starter",
        "the model: `starter` (bundled), `none` (only your code), a name from `spd-lsp models get`, a full path, "
        "a Hugging Face id, or a model server's `http://HOST:PORT`",
        is_valid=_is_model,
        allowed="`starter`, `none`, the full path of a folder or GGUF file, a Hugging Face id, or an "
        "address such as http://127.0.0.1:8080 (`spd-lsp models` lists what is here)",
    )
    device: str = _setting(
        "auto",
        "device that runs the model: `auto`, `cpu`, `cuda`, `cuda:1` ..., or `mps`",
        is_valid=lambda name: DEVICE_NAME.fullmatch(name) is not None,
        allowed="auto, cpu, mps, cuda or cuda:N",
    )
    threads: int = _setting(
        0,
        "maximum number of threads for the model; 0: one for each core that other programs leave free",
        low=0,
        high=256,
    )
    drafts: int = _setting(3, "number of completions to offer", low=1, high=16, workspace=True)
    max_tokens: int = _setting(
        24, "maximum length of a completion, in tokens of about four characters", low=1, high=512
    )
    context_tokens: int = _setting(
        1024, "maximum amount of code that the model reads for a completion, in tokens", low=64, high=32768
    )
    min_probability: float = _setting(
        0.02, "minimum probability of a completion while you type", low=0.0, high=1.0
    )
    automatic: bool = _setting(True, "offer completions while you type; `false`: only on request")
    delay: int = _setting(0, "while you type, wait this many milliseconds for another key", low=0, high=10_000)
    automatic_menu: bool = _setting(False, "open the menu while you type, also in editors with ghost text")
    one_line: bool = _setting(False, "offer at most one line, never a block")
    next_edits: bool = _setting(
        True, "after two similar edits, propose the same change at other places in the file"
    )
    disabled_languages: tuple[str, ...] = _setting(
        _PROSE_LANGUAGES, "languages without completions, such as `Python` or `shellscript`", workspace=True
    )
    indexing: str = _setting(
        "folders",
        "index the `folders` that you open, in the background, or nothing (`off`)",
        choices=("folders", "off"),
    )
    data_dir: str = _setting(
        "",
        "full path of the folder for n-gram tables; empty: your data folder",
        is_valid=lambda name: not name or _is_absolute(name),
        allowed="the full path of a folder",
    )

    decoder: str = _setting(
        "auto",
        "decoding method: `superposed` (a pass extends all drafts), `best-first` (a pass extends the likeliest "
        "draft), or `auto`: `best-first` while a pass takes up to 30 ms, else `superposed`",
        choices=("auto", "superposed", "best-first"),
        in_editors=False,
    )
    interpolation: str = _setting(
        "linear",
        "mixture of model and n-grams: `linear` (both propose tokens) or `paper` (Superposed Decoding's formula)",
        choices=("linear", "paper"),
        in_editors=False,
    )
    ranking: str = _setting(
        "probability",
        "order of drafts: by `probability` of the whole text, or by `mean` per token as in the paper",
        choices=("probability", "mean"),
        in_editors=False,
    )
    alpha: float = _setting(
        0.54, "weight of the n-grams in the paper's formula", low=0.0, high=1.0, in_editors=False
    )
    temperature: float = _setting(
        1.0, "temperature of the model's probabilities; nothing is sampled", low=0.001, high=10.0, in_editors=False
    )
    candidates: int = _setting(
        20, "number of tokens that the model proposes at each step", low=1, high=1000, in_editors=False
    )
    ngram_weight: float = _setting(
        1.0, "how strongly your code influences completions; 0: not at all", low=0.0, high=100.0
    )
    max_order: int = _setting(6, "length of the longest n-gram, in tokens", low=2, high=6, in_editors=False)
    fill_format: str = _setting(
        "auto",
        "prompt format of the text after the cursor: `auto`, a model family's (`spd-lsp doctor` names it), "
        "or `none`",
        choices=("auto", *_FILL_FORMATS, NO_FILL_FORMAT),
    )
    reset_every: int = _setting(
        0, "restart from the best draft after this many tokens; 0: never", low=0, high=512, in_editors=False
    )

    def __post_init__(self) -> None:
        """Expand `~`: no shell has done it in editor options, environment variables and quotes."""
        for name in ("model", "data_dir"):
            object.__setattr__(self, name, expand_home(getattr(self, name)))


FIELDS = {field.name: field for field in dataclasses.fields(Settings)}


def field_name(key: str) -> str | None:
    """The setting that a key stands for, in any spelling. Example: `maxTokens` or `max-tokens` -> `max_tokens`."""
    name = re.sub(r"(?<=[a-z])([A-Z])", lambda letter: "_" + letter[1].lower(), key).replace("-", "_")
    return name if name in FIELDS else None


def hint(key: str, names: Collection[str] = tuple(FIELDS)) -> str:
    """Name the setting that an unknown key may mean, or all. Example: `draft` -> "; did you mean 'drafts'?"."""
    near = get_close_matches(key, names, 1, 0.75)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(names))}"


def converted(value: Any, default: Any) -> Any:
    """The value in its setting's type: JSON has no tuples, and people write 1 for 1.0."""
    return type(default)(value) if isinstance(default, (float, tuple)) else value


def is_path(name: str) -> bool:
    """Whether a name is written as a path: in full, after `./`, `../` or `~`, or that of a GGUF file.

    `owner/name` is an id.
    """
    begins_as_one = re.match(r"(?:\.{1,2}|~[^/\\]*)(?:[/\\]|$)", name) is not None
    return begins_as_one or Path(name).is_absolute() or (is_gguf(name) and not STORED_GGUF.fullmatch(name))


def is_server(name: str) -> bool:
    """Whether a name is the address of a model server."""
    return _SERVER_ADDRESS.fullmatch(name) is not None


def is_gguf(name: str) -> bool:
    """Whether a name is that of a GGUF file."""
    return name.lower().endswith(".gguf")


def expand_home(path: str) -> str:
    """The path with a leading `~` expanded, unless its user is unknown. Example: `~/m` -> `/home/me/m`."""
    try:
        return str(Path(path).expanduser()) if path.startswith("~") else path
    except RuntimeError:
        return path


def invalid_reason(setting: dataclasses.Field[Any], value: Any) -> str | None:
    """Why a setting cannot have this value, or None. Example: `must be from 1 to 16, not 0`."""
    kind, about = type(setting.default), setting.metadata
    if kind is tuple:
        is_kind = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    else:  # as JSON writes it; a bool is an int in Python
        is_kind = isinstance(value, (int, float) if kind is float else kind)
        is_kind = is_kind and isinstance(value, bool) == (kind is bool)
    expected = ""
    if not is_kind:
        expected = _KINDS[kind]
    elif about["choices"] and value not in about["choices"]:
        expected = f"one of {', '.join(about['choices'])}"
    elif not about["is_valid"](value):
        expected = about["allowed"]
    elif about["low"] is not None and not about["low"] <= value <= about["high"]:
        expected = f"from {about['low']} to {about['high']}"
    return f"must be {expected}, not {value!r}" if expected else None
