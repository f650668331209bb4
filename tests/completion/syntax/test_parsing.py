"""Syntax is read in another process: no text stops, freezes or ends the one that completes."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from spd_lsp.completion.syntax.languages import LANGUAGES, ParserBudgetExceeded, parse
from spd_lsp.completion.syntax.outline import Role, build_outline
from spd_lsp.completion.syntax.parsing import (
    FIRST_COOLDOWN,
    PARSER_POOL,
    SECONDS,
    ParseFailed,
    ParserPool,
    request_begins_body,
    request_could_follow,
    request_outline,
)
from tests.lsp.lsp_client import at
from tests.lsp.test_server_process import process

DEEP = 40_000
NESTS = [
    *(
        "(",
        "[",
        "{",
        "Vec<",
        "a.b.",
        "[{(",
        "if (a) ",
        "else if (a) ",
        "- ",
        "f'{",
        "`${",
        "<<E\n",
        "a/*",
        "a ? ",
        "<a>",
    )
]
LITTLE = 0.2  # seconds of processor time for one of them
KILLERS = [
    ("java", "Vec<"),
    ("python", "a/*"),
    ("csharp", "/* "),
    ("python", "- >>= "),
    ("java", "->:&=yielddoa "),
]
GRAMMARS = sorted({language.module + language.entry: name for name, language in LANGUAGES.items()}.values())
CODE = ["import os\n", "\n", "class A:\n", "    def f(self):\n", "        x = 1\n", "        return x\n"]

needs_limits = pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no processor time")


def memory_of(process: int) -> int:
    """Bytes that a process holds for itself."""
    fields = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()
    return (int(fields[1]) - int(fields[2])) * resource.getpagesize()


def spent() -> float:
    """Processor time of this process and of those that it started."""
    PARSER_POOL.close()  # the time of those that run is not known
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.mark.slow
@needs_limits
@pytest.mark.parametrize("name", GRAMMARS)
def test_no_nest_stops_a_grammar_or_takes_longer_than_the_limit(name: str) -> None:
    parsers = ParserPool(LITTLE)
    before = spent()
    for nest in NESTS:
        text = ("<?php " if name == "php" else "") + nest * DEEP
        with suppress(ParseFailed):
            parsers.request("outline", name, nest, [text[:200_000] + "\n"], 1)
    parsers.close()
    assert spent() - before < len(NESTS) * (LITTLE + 0.8)


@needs_limits
@pytest.mark.parametrize(("name", "nest"), KILLERS)
@pytest.mark.slow
def test_what_no_parser_can_bear_is_plain_lines_and_costs_nothing_more_while_typing(name: str, nest: str) -> None:
    """These ended the server, or kept it for minutes and gigabytes."""
    before = spent()
    for typed in ("", "t", "ty", "typ", "type", "typed"):
        parts = request_outline(LANGUAGES[name], [nest * DEEP + "\n", f"{typed}\n"], ["y\n"])
        assert parts == request_outline(None, ["", ""], [""])
    assert spent() - before < 2 * SECONDS + 1.5
    assert Role.HEAD in {part.role for part in request_outline(LANGUAGES["python"], CODE[:5], CODE[5:])}


def test_the_text_around_a_line_is_parsed_once_while_that_line_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, request = [], PARSER_POOL.request
    monkeypatch.setattr(PARSER_POOL, "request", lambda *given: requests.append(given[0]) or request(*given))
    python, above = LANGUAGES["python"], ["def once(a):\n", "    pass\n"]
    first, second = (request_outline(python, list(above), ["x = 1\n"]) for _ in range(2))
    assert first == second == build_outline(python, above, ["x = 1\n"])
    assert requests == ["outline"]
    for changed in ((python, above, ["x = 2\n"]), (python, above[:1], [above[1], "x = 1\n"])):
        assert request_outline(*changed) == build_outline(*changed)
    assert requests == ["outline"] * 3


def test_a_document_that_was_too_hard_is_tried_again_later() -> None:
    parsers = ParserPool()
    with pytest.raises(ParseFailed):
        parsers.request("no such question", "python", "x = 1")
    for _ in range(FIRST_COOLDOWN):
        with pytest.raises(ParseFailed):
            parsers.request("body", "python", "x = 1", "def f():\n", "    ")
    assert parsers.request("body", "python", "x = 1", "def f():\n", "    ") is True
    assert parsers.request("body", "python", "y = 1", "def f():\n", "    ") is True
    parsers.close()


@pytest.mark.parametrize("lines", [CODE, ["x = 'é😀\ud800'\n", "def f():\n", "    pass\n"]])
def test_another_process_says_what_this_one_would(lines: list[str]) -> None:
    python = LANGUAGES["python"]
    for gap in range(len(lines) + 1):
        assert request_outline(python, lines[:gap], lines[gap:]) == build_outline(python, lines[:gap], lines[gap:])
    assert request_begins_body(python, "def f():\n", "    ") is True
    assert request_begins_body(python, "x = 1\n", "    ") is False
    assert request_could_follow(python, "x = f(", 6, ["a b", "a, b", "c"], 1) == [False, True, False]


def test_the_steps_of_a_parser_are_bounded_by_a_count() -> None:
    """The same texts are too hard on every machine."""
    with pytest.raises(ParserBudgetExceeded):
        parse(LANGUAGES["csharp"], "/* " * 2_000)
    assert not parse(LANGUAGES["csharp"], "class A { void F() { G(1); } }\n" * 4_000).root_node.has_error


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process holds")
def test_what_a_process_has_read_does_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """tree-sitter's binding frees nothing that it reads: whoever typed for hours needed a gigabyte."""
    text = "def f():\n" + "    print('a line of code')\n" * 1_000
    monkeypatch.setattr("spd_lsp.completion.syntax.parsing.MAX_REQUEST_BYTES", 10 * len(text))
    parsers, sizes = ParserPool(), []
    for number in range(60):
        typed = f"{text}x{number} = f"
        assert parsers.request("drafts", "python", text, typed, len(typed), ["(x)"], 1) == [True]
        sizes.append(memory_of(parsers.idle[0].pid))
    assert max(sizes[30:]) < max(sizes[:30]) + 2**20
    parsers.close()


@needs_limits
@pytest.mark.slow
async def test_a_server_survives_what_its_parser_does_not() -> None:
    """Over real pipes, with the model that comes with the package."""
    async with process("-m", "spd_lsp", "serve") as (child, editor):
        await editor.start_and_load()
        for name, nest in KILLERS[:2]:
            uri = f"file:///{name}"
            editor.open(f"{nest * 30_000}\nclass A {{\n    int f() {{\n", uri=uri, language=name)
            await editor.request("textDocument/completion", at(2, 13, uri=uri))
        editor.open("def add(a, b):\n    return a + \n", uri="file:///good.py")
        answer = await editor.request("textDocument/completion", at(1, 15, uri="file:///good.py"))
        assert answer["items"] and child.returncode is None
