"""No regular expression of either package takes more than linear time, whatever text it is given.

The expressions are found in the source, so that a new one is tried as well.
"""

from __future__ import annotations

import ast
import importlib
import random
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ngram_builders
import spd_lsp

try:
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as parser

ROOTS = [Path(package.__file__ or "").parent for package in (spd_lsp, ngram_builders)]
WORST = 64_000  # characters
BOUND = 0.2  # seconds of processor time for them; what is quadratic takes ten
LADDER = (24, 60, 500, 4_000, WORST)  # what is exponential is noticed before it takes forever
METHODS = {"search", "match", "fullmatch", "sub", "findall", "finditer", "split"}
USUAL = list(" \taA1(){}[]\"'\\/#-.:|=_")


class Expression(NamedTuple):
    """One that stands in the source, and how it is asked."""

    place: str
    pattern: re.Pattern[Any]
    method: str

    def ask(self, text: str) -> None:
        subject = text.encode() if isinstance(self.pattern.pattern, bytes) else text
        if self.method == "sub":
            self.pattern.sub(subject[:0], subject)
        elif self.method in ("findall", "finditer", "split"):
            self.pattern.findall(subject)
        else:
            getattr(self.pattern, self.method)(subject)


def expressions() -> Iterator[Expression]:
    """Every call of `re` with a literal in both packages."""
    for root in ROOTS:
        for path in sorted(root.rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if not re.search(r"\bre\.", source):
                continue
            tree = ast.parse(source)
            names = names_given(tree)
            calls = [node for node in ast.walk(tree) if is_call(node)]
            for node in calls:
                if isinstance(node.args[0], ast.Constant):
                    yield read(node, names.get(node, ""), path.relative_to(root.parent), source)
            if not all(isinstance(node.args[0], ast.Constant) for node in calls):
                yield from put_together(path.relative_to(root.parent), source)


def put_together(path: Path, source: str) -> Iterator[Expression]:
    """The compiled ones that a module holds, also within others; what its functions make has tests of its own."""
    module = importlib.import_module(".".join(path.with_suffix("").parts))
    for name, held in vars(module).items():
        waiting, number = [held], 0
        while waiting:
            one = waiting.pop()
            if isinstance(one, re.Pattern):
                number += 1
                yield Expression(f"{path}:{name}:{number}", one, how_used(name, source))
            elif isinstance(one, (tuple, list)):
                waiting.extend(one)


def names_given(tree: ast.AST) -> dict[ast.AST, str]:
    """What each value is assigned to, or passed as; the innermost name counts."""
    names: dict[ast.AST, str] = {}
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.update(dict.fromkeys(ast.walk(node.value), node.targets[0].id))
        elif isinstance(node, ast.keyword) and node.arg:
            names.update(dict.fromkeys(ast.walk(node.value), node.arg))
    return names


def is_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in METHODS | {"compile"}
    )


def read(call: ast.Call, name: str, path: Path, source: str) -> Expression:
    literal = call.args[0]
    assert isinstance(literal, ast.Constant)
    named = [ast.unparse(one) for one in [*call.args[1:], *(keyword.value for keyword in call.keywords)]]
    flags = [getattr(re, flag) for one in named for flag in re.findall(r"\bre\.([A-Z]+)\b", one)]
    pattern = re.compile(literal.value, sum(flags))
    method = call.func.attr  # type: ignore[attr-defined]
    used = how_used(name, source) if method == "compile" else method
    return Expression(f"{path}:{call.lineno}:{call.col_offset}", pattern, used)


def how_used(name: str, source: str) -> str:
    """What is asked of a compiled one: anything that looks at every place counts as `search`."""
    if name == "import_line":  # a field of `languages.Language`
        return "match"
    used = set(re.findall(rf"\b{name}(?:\[\w+\])?\.(\w+)\(", source)) & METHODS if name else set()
    return used.pop() if len(used) == 1 else "search"


EXPRESSIONS = list({(one.pattern, one.method): one for one in expressions()}.values())  # each once


def alphabet_of(pattern: re.Pattern[Any]) -> list[str]:
    """Some letters of each kind that an expression tells apart, and its words, which no draw would hit upon."""
    found: set[str] = set()

    def visit(items: Any) -> None:
        word = ""
        for item in items if isinstance(items, (tuple, list, parser.SubPattern)) else ():
            kind = str(item[0]) if isinstance(item, tuple) and len(item) == 2 else ""
            if kind in ("LITERAL", "NOT_LITERAL"):
                found.add(chr(item[1]))
                word += chr(item[1])
            elif kind == "RANGE":
                found.update(map(chr, item[1]))
            else:
                word = ""
                visit(item)
            found.add(word)

    visit(parser.parse(pattern.pattern, pattern.flags))
    return sorted(found - {""})


def hostile(pattern: re.Pattern[Any], draws: int = 25) -> Iterator[Callable[[int], str]]:
    """Texts of any size: a beginning, a fragment again and again, and an end that fits or does not."""
    choose = random.Random(0)
    own = alphabet_of(pattern)
    pieces = [*dict.fromkeys([*own, *USUAL])]
    drawn = ("".join(choose.choices(pieces, k=choose.randint(2, 5))) for _ in range(draws))
    for fragment in [*pieces, *(f"{piece} " for piece in own), *drawn]:
        start, end = choose.choice([("", "\x00"), (choose.choice(pieces), choose.choice(pieces))])
        yield partial(repeated, fragment, start, end)


def repeated(fragment: str, start: str, end: str, size: int) -> str:
    return start + fragment * (size // len(fragment)) + end


def seconds(work: Callable[[], object]) -> float:
    """Processor time; the least of three where one run does not settle it."""
    times = []
    for _ in range(3):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
        if not BOUND / 2 < times[-1] < 10 * BOUND:
            break
    return min(times)


def slow(expression: Expression) -> str | None:
    """The beginning of a text for which it takes too long, if there is one."""
    for text_of in hostile(expression.pattern):
        for size in LADDER:
            text = text_of(size)
            taken = seconds(partial(expression.ask, text))
            if taken > BOUND:
                return f"{text[:40]!r} up to {size} characters and {text[-10:]!r}: {taken:.3f} s"
            if taken * (WORST / size) ** 2 < BOUND:
                break  # were it quadratic, the longest would still be quick
    return None


@pytest.mark.slow
@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda one: one.place)
def test_an_expression_is_linear_in_any_text(expression: Expression) -> None:
    assert slow(expression) is None
