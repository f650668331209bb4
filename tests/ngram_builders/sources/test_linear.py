"""Whatever a file holds, the time that each stage takes grows as the file does: twice the text, twice the time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ngram_builders.sources.discovery import survey
from ngram_builders.sources.filters import decode_source
from ngram_builders.sources.masking import find_secret_lines, secret_check
from ngram_builders.sources.unwritten import find_reason
from tests.planted import lines, private_key

HALF = 60_000  # characters, and the whole is twice as many
MARK = "-" * 5
LINEAR = 3.0  # times as long; four is quadratic
SECRETS = {
    "secrets of all kinds": "\n".join(line for line, _ in lines().values()) + "\n",
    "short secrets": "pwd='aB3$%%x1'\n",
    "private keys": private_key() + "\n",
    "beginnings of keys": f"{MARK}BEGIN PRIVATE KEY{MARK}\n",
    "beginnings in headers": f"a: {MARK}BEGIN PRIVATE KEY{MARK}\n",
    "beginnings on one line": f"{MARK}BEGIN PRIVATE KEY{MARK}",
    "secrets on one line": "pwd='aB3$%%x1' ",
    "addresses on one line": "a://b:c@d ",
    "letters": "a",
    "letters and digits": "a1",
    "quotes": '"',
    "words": "password ",
    "assignments": "password=",
    "assigned quotes": 'token="',
    "names": "password_",
    "colons": "://a:",
    "anchors": "AKIA",
    "tokens": "eyJ" + "a" * 3_000 + ".eyJ" * 800,
    "blanks": "password" + " " * 6_000,
    "commands": "curl bearer ",
    "dots": "a.",
    "marks": f"{MARK}BEGIN PRIVATE KEY{MARK}\n" + ("#" * 39 + " \n") * 300,
    "literals": '"' + "aB3" * 14 + '" ',
    "long key lines": f"{MARK}BEGIN PRIVATE KEY{MARK}\n" + ("a" * 60 + "\n") * 300,
}
UNWRITTEN = ("/*\n", "# generated\n", "do not edit ", '"""\n', "1, 2, 3,\n", "{" * 99 + "\n", "\n\n# made by ")


def seconds(work: Callable[[str], object], text: str) -> float:
    """Processor time."""
    started = time.process_time()
    work(text)
    return time.process_time() - started


def growth(work: Callable[[str], object], unit: str, half: int = HALF) -> float:
    """How many times as long a text of twice the length takes; what takes next to nothing counts as linear."""
    text = unit * (2 * half // len(unit))
    ratios = ((seconds(work, text) + 0.02) / (seconds(work, text[:half]) + 0.02) for _ in range(3))
    return next((ratio for ratio in ratios if ratio < LINEAR), LINEAR)  # tried again where the machine was busy


@pytest.mark.slow
@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize(
    "work", [find_secret_lines, lambda text: secret_check(text, "")("x = 1")], ids=["mask", "check"]
)
def test_masking_is_linear(kind: str, work: Callable[[str], object]) -> None:
    assert growth(work, SECRETS[kind]) < LINEAR


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNWRITTEN)
def test_the_search_for_generated_text_is_linear(unit: str) -> None:
    assert growth(find_reason, unit) < LINEAR


@pytest.mark.slow
@pytest.mark.parametrize("kind", SECRETS)
def test_decoding_a_notebook_is_linear(kind: str) -> None:
    def decode(text: str) -> object:
        cells = [{"cell_type": "code", "source": text.splitlines(keepends=True)}]
        return decode_source(json.dumps({"cells": cells}).encode(), "a.ipynb")

    assert growth(decode, SECRETS[kind]) < LINEAR


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["\xe9", "\xe9\n", "\xe9\xe8 x\n", "caf\xe9 = 1\n", "\x82\xa0"])
def test_telling_an_encoding_is_linear(unit: str) -> None:
    assert growth(lambda text: decode_source(text.encode("latin-1")), unit) < LINEAR


RULES: dict[str, Callable[[int], str]] = {
    "many stars": lambda number: "**/" + "a*" * 30 + f"b{number}",
    "as many stars as count": lambda number: "**/" + "a*" * 16 + f"b{number}",
    "paths to one name": lambda number: f"r{number}/module.py",
    "deep paths": lambda number: "/".join(["**", "m*"] * 20) + f"/module.p{number}",
    "deep paths to any name": lambda number: "/".join(["**", f"m*{number}"] * 20) + "/*.py",
    "one folder": lambda number: f"f/*{number}*/**/*.py",
}


def compared(folder: Path, rules: int, rule: Callable[[int], str], file: str, files: int = 30) -> float:
    """Processor time of finding the files below so many rules; the least of three: a busy machine adds to it."""
    end = " -linguist-vendored" * (file == ".gitattributes")
    (folder / file).write_text("".join(f"{rule(number)}{end}\n" for number in range(rules)))
    for number in range(files):
        (folder / "f" / f"n{number}").mkdir(parents=True, exist_ok=True)
        (folder / "f" / f"n{number}" / "module.py").write_text("x = 1\n")
        (folder / "f" / "vendor" / f"n{number}").mkdir(parents=True, exist_ok=True)
    return min(seconds(lambda _: survey(folder), "") for _ in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("file", [".gitignore", ".gitattributes"])
@pytest.mark.parametrize("kind", RULES)
def test_ignore_rules_cost_a_bounded_time_a_file(kind: str, file: str, tmp_path: Path) -> None:
    """Beyond as many rules as are compared, more of them cost only what it takes to read them."""
    few, many = (compared(tmp_path, rules, RULES[kind], file) for rules in (1_500, 6_000))
    assert many < 4 * few + 0.1
    assert many < 3.0  # seconds; before, 40
