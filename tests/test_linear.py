"""Whatever a text holds, the work on it grows as the text does: twice the text, twice the steps."""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import ngram_builders
import spd_lsp
from ngram_builders.sources.filters import read_source_text
from ngram_builders.sources.masking import mask, secret_check
from spd_lsp.completion.completer import Completer
from spd_lsp.completion.loading import load_completer
from spd_lsp.ngrams.open_documents import OpenDocument
from spd_lsp.settings import Settings
from tests.planted import lines, private_key
from tests.processes import steps

HALF = 4_000  # characters; the whole is twice as long
MAX_GROWTH = 2.6  # in steps; what is quadratic takes four times as many
MAX_SECONDS = 0.2  # of processor time for a pattern and a whole text; what is quadratic takes ten
SIZES = (24, 60, 500, 4_000, 16_000, 64_000)  # what is exponential is noticed before it takes forever

KEY = f"{'-' * 5}BEGIN PRIVATE KEY{'-' * 5}"
UNITS = {
    "secrets of all kinds": "\n".join(line for line, _ in lines().values()) + "\n",
    "private keys": private_key() + "\n",
    "keys that only begin, on one line": KEY,
    "keys with long lines": f"{KEY}\n" + ("a" * 60 + "\n") * 60,
    "keys with marks": f"{KEY}\n" + ("#" * 39 + " \n") * 90,
    "addresses": "a://b:c@d ",
    "tokens": "eyJ" + "a" * 1_000 + ".eyJ" * 300,
    "literals": '"' + "aB3" * 14 + '" ',
    "assignments": "password=",
    "one name": "password_",
    "blanks": "password" + " " * 1_000,
    "commands": "curl bearer ",
    "letters and digits": "a1",
    "dots": "a.",
    "words": "word_of_it ",
    "lines of brackets": "[\n",
    "open strings": "'''\n",
    "calls": "f(g(h(\n",
    "imports": "from ..a.b import c, d\n",
    "comments that only begin": "/*\n",
    "signs of generated code": "# generated\n",
    "sections": "\n\n# made by ",
    "rows of a table": "1, 2, 3,\n",
    "blocks": "{" * 99 + "\n",
}


@pytest.fixture
def completer(tmp_path: Path) -> Completer:
    return load_completer(Settings(data_dir=str(tmp_path)), lambda text: None)


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_a_file_is_read_masked_learnt_and_completed_in_linear_time(
    completer: Completer, tmp_path: Path, unit: str
):
    numbers = count()

    def work(text: str) -> None:
        path = tmp_path / f"{next(numbers)}.py"
        path.write_text(text)
        read_source_text(str(path))
        mask(text)
        secret_check(text, "")("x = 1")
        document = OpenDocument(path.as_uri(), path, "python", text)
        completer.update_documents({document.name: document})
        while completer.run_idle_work(60):
            pass
        above = text[: text.find("\n", len(text) // 2) + 1]
        edited = f"{above}x = ab\n{text[len(above) :]}"
        completer.complete(edited, len(above) + 6, "python", path, name=document.name, explicit=True)
        completer.update_documents({document.name: None})

    text = UNITS[unit] * (2 * HALF // len(UNITS[unit]))
    work(text[:100])  # what happens once
    half, whole = (steps(lambda text=text: work(text)) for text in (text[:HALF], text))  # type: ignore[misc]
    assert whole < MAX_GROWTH * half


@cache
def patterns() -> dict[str, list[tuple[str, re.Pattern[Any], str]]]:
    """Module -> name, pattern and method of each that a module of both packages holds."""
    found: dict[str, list[tuple[str, re.Pattern[Any], str]]] = {}
    for package in (spd_lsp, ngram_builders):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not re.search(r"\.(completion|ngrams|edits|output|sources)\b", info.name):
                continue  # knows no texts
            module = importlib.import_module(info.name)
            source = Path(module.__file__ or "").read_text(encoding="utf-8")
            for name, value in vars(module).items():
                used = set(re.findall(rf"\b{name}(?:\[\w+\])?\.(match|fullmatch)\(", source))
                method = used.pop() if len(used) == 1 else "search"
                for pattern in held_by(value):
                    found.setdefault(info.name, []).append((name, pattern, method))
    return found


def held_by(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from held_by(one)


def hostile(pattern: re.Pattern[Any]) -> Iterator[str]:
    """What a text may be made of: the units, and what the pattern itself speaks of, put together by chance."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    pieces = sorted({*re.findall(r"[A-Za-z]+|\W", source), *" \taA1"})
    choose = random.Random(0)
    yield from [*UNITS.values(), *pieces]
    yield from ("".join(choose.choices(pieces, k=choose.randint(2, 4))) for _ in range(20))


def is_quick(ask: Callable[[Any], object], unit: str, end: str, *, as_bytes: bool = False) -> bool:
    """Whether a pattern takes little processor time, for short texts first, as it may be exponential."""
    for size in SIZES:
        text = unit * (size // len(unit)) + end
        asked = text.encode() if as_bytes else text
        taken = min(processor_seconds(ask, asked) for _ in range(2))
        if taken > MAX_SECONDS:
            return False
        if taken * (SIZES[-1] / size) ** 2 < MAX_SECONDS:
            break  # were it quadratic, the longest would still be quick
    return True


def processor_seconds(ask: Callable[[Any], object], text: str | bytes) -> float:
    started = time.process_time()
    ask(text)
    return time.process_time() - started


@pytest.mark.slow
@pytest.mark.parametrize("module", patterns())
def test_a_pattern_is_quick_on_a_whole_text(module: str) -> None:
    for name, pattern, method in patterns()[module]:
        as_bytes = isinstance(pattern.pattern, bytes)
        ask = getattr(pattern, "findall" if method == "search" else method)
        for unit in hostile(pattern):
            assert all(is_quick(ask, unit, end, as_bytes=as_bytes) for end in ("\x00", "a = 1")), (name, unit[:40])
