"""Every setting with its default, bounds and description. Parsed once, then passed down, never changed."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
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


def _setting(
    default: Any,
    description: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    is_valid: Callable[[str], bool] = lambda value: True,
    allowed: str = "",
    workspace: bool = False,
    advanced: bool = False,
) -> Any:
    """A dataclass field with what documents, editors and validation need to know.

    allowed: what `is_valid` accepts, in words.
    workspace: whether the folder that is open in the editor may set it.
    advanced: whether editors send it inside the object `advanced`.
    """
    validation = {"low": low, "high": high, "choices": choices, "is_valid": is_valid, "allowed": allowed}
    groups = {"workspace": workspace, "advanced": advanced}
    return field(default=default, metadata={"description": description, **groups, **validation})


def _is_model(name: str) -> bool:
    """Whether a text can name a model. Editors must give folders and files in full."""
    is_id = HUGGING_FACE_ID.fullmatch(name) is not None and not is_path(name)
    return (
        name in ("starter", NO_MODEL)
        or is_id
        or STORED_GGUF.fullmatch(name) is not None
        or is_server(name)
        or _is_existing_model(name)
    )


def _is_full_path(name: str) -> bool:
    """Whether a text can be the full path of a file, or is empty."""
    return not name or (Path(expand_home(name)).is_absolute() and "\0" not in name)


def _is_data_folder(name: str) -> bool:
    """Whether a text can name the data folder, which need not exist yet."""
    folder = Path(expand_home(name))
    is_free = folder.is_absolute() and "\0" not in name and not os.path.lexists(folder)
    return not name or is_free or _is_existing_folder(name)


def _is_existing_model(name: str) -> bool:
    """Whether this is the full path of a folder or of a GGUF file."""
    path = Path(expand_home(name))
    return _is_existing_folder(name) or (is_gguf(name) and path.is_absolute() and path.is_file())


def _is_existing_folder(name: str) -> bool:
    """Whether this is the full path of a folder; a relative one would depend on what the editor has open."""
    folder = Path(expand_home(name))
    try:
        return folder.is_absolute() and folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)
    except OSError:
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a user can choose: in the editor's options, or with the flags of a command."""

    enabled: bool = _setting(True, "offer completions", workspace=True)
    model: str = _setting(
        "starter",
        "the model that completes: `starter`, which is bundled; the full path of a GGUF file or of a model's "
        "folder; `ollama:NAME`, `hf:OWNER/NAME:QUANTIZATION` or a Hugging Face id; a model server's "
        "`http://HOST:PORT`; or `none`: your code alone",
        is_valid=_is_model,
        allowed="`starter`, `none`, the full path of an existing folder or GGUF file, a Hugging Face id, or an "
        "address such as http://127.0.0.1:8080 (`spd-lsp models` lists what is here)",
    )
    device: str = _setting(
        "auto",
        "where the model runs: `auto`, `cpu`, `cuda`, `cuda:1` ..., or `mps`",
        is_valid=lambda name: DEVICE_NAME.fullmatch(name) is not None,
        allowed="auto, cpu, mps, cuda or cuda:N",
    )
    threads: int = _setting(
        0,
        "maximum number of threads for the model; 0: as many as run fastest on the cores that other programs "
        "leave free",
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
        0.02, "while you type, hide completions less likely than this to be exactly right", low=0.0, high=1.0
    )
    automatic: bool = _setting(True, "offer completions while you type; else only when you ask for them")
    delay: int = _setting(
        0, "while you type, complete only once no key came for so many milliseconds", low=0, high=10_000
    )
    automatic_menu: bool = _setting(
        False, "open the completion menu while you type even in editors that show ghost text"
    )
    one_line: bool = _setting(False, "offer one line at most, never a whole block")
    next_edits: bool = _setting(
        False, "after an edit, propose the other places in open and imported files where the same change is wanted"
    )
    disabled_languages: tuple[str, ...] = _setting(
        _PROSE_LANGUAGES,
        "languages in which nothing is completed, such as `Python` or `shellscript`",
        workspace=True,
    )
    indexing: str = _setting(
        "folders",
        "what is indexed in the background: the `folders` that you open, also the installed packages that they "
        "import (`dependencies`), or nothing (`off`)",
        choices=("folders", "dependencies", "off"),
    )
    data_dir: str = _setting(
        "",
        "full path of the folder for the tables of your code; empty: the user's data folder",
        is_valid=_is_data_folder,
        allowed="the full path of a folder",
    )

    decoder: str = _setting(
        "auto",
        "how drafts are written: `superposed` (they share the passes), `best-first` (a pass reads the likeliest), "
        "or `auto`: best-first in llama.cpp, else superposed",
        choices=("auto", "superposed", "best-first"),
        advanced=True,
    )
    interpolation: str = _setting(
        "linear",
        "how your code and the model are combined: `linear` (mixes candidates of both) or `paper` (the formula of "
        "Superposed Decoding)",
        choices=("linear", "paper"),
        advanced=True,
    )
    ranking: str = _setting(
        "probability",
        "rank drafts by the `probability` of the whole text, or by the `mean` per token as the paper does",
        choices=("probability", "mean"),
        advanced=True,
    )
    alpha: float = _setting(0.54, "weight of your code in the paper's formula", low=0.0, high=1.0, advanced=True)
    temperature: float = _setting(
        1.0,
        "below 1, what the model finds likely counts more; above 1, what it finds unlikely",
        low=0.001,
        high=10.0,
        advanced=True,
    )
    candidates: int = _setting(
        20, "how many of the model's next tokens are considered at each step", low=1, high=1000, advanced=True
    )
    ngram_weight: float = _setting(
        1.0,
        "how much your code counts against the model (a factor on its odds); the surer the model is, the less",
        low=0.0,
        high=100.0,
        advanced=True,
    )
    max_order: int = _setting(
        6,
        "how many tokens at most are compared with your code, the next one included",
        low=2,
        high=6,
        advanced=True,
    )
    fill_format: str = _setting(
        "auto",
        "how the text right of the cursor enters the prompt: `auto`, the format of a family of models "
        "(spd-lsp doctor names it), or `none`",
        choices=("auto", *_FILL_FORMATS, NO_FILL_FORMAT),
        advanced=True,
    )
    reset_every: int = _setting(
        0, "restart from the best draft after this many tokens; 0: never", low=0, high=512, advanced=True
    )
    python_interpreter: str = _setting(
        "",
        "full path of the Python interpreter whose packages are dependencies; empty: that of the project's own "
        "environment, or of the shell's",
        is_valid=_is_full_path,
        allowed="a full path",
        advanced=True,
    )

    def __post_init__(self) -> None:
        """Expand `~` here: in editor options, environment variables and quotes no shell has done it."""
        for name in ("model", "data_dir", "python_interpreter"):
            object.__setattr__(self, name, expand_home(getattr(self, name)))


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


def invalid_reason(setting: dataclasses.Field[Any], value: object) -> str | None:
    """Why a setting cannot have this value, or None. Example: `must be from 1 to 16, not 0`."""
    expected = _expectation(setting, value)
    return None if expected is None else f"must be {expected}, not {value!r}"


def _expectation(setting: dataclasses.Field[Any], value: object) -> str | None:
    """What the value should have been, or None if it is valid."""
    kind = type(setting.default)
    about = setting.metadata
    if kind is tuple:
        is_list = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
        return None if is_list else "a list of strings"
    if not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool) != (kind is bool):
        return {bool: "true or false", int: "an integer", float: "a number"}.get(kind, "a string")
    if about["choices"] and value not in about["choices"]:
        return f"one of {', '.join(about['choices'])}"
    if isinstance(value, str) and not about["is_valid"](value):
        return str(about["allowed"])
    if isinstance(value, (int, float)) and about["low"] is not None and not about["low"] <= value <= about["high"]:
        return f"from {about['low']} to {about['high']}"
    return None
