"""Drafts that a parser cannot read to their end are no code; a line that was broken before proves nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import spd_lsp
from spd_lsp.completion.syntax import cursor_syntax
from spd_lsp.completion.syntax.cursor_syntax import could_follow, nearest_lines
from spd_lsp.completion.syntax.languages import LANGUAGES, parse

PYTHON = "import os\n\n\ndef names(path):\n    if path:\n        ¦\n    return path\n\n\ndef last():\n    pass\n"


def can_follow(marked, draft, language="python"):
    source, cursor = marked.replace("¦", ""), marked.index("¦")
    return could_follow(LANGUAGES[language], source, cursor, [draft], 1)[0]


def at(line):
    """A Python document whose cursor stands in this line."""
    return PYTHON.replace("¦", line)


@pytest.mark.parametrize(
    ("line", "draft"),
    [
        ("if ¦", "isinstance ispattern, pattern):"),
        ("¦", "| | = None"),
        ("app.register(¦", "app)app)"),
        ("x = f(a¦", " b)"),
        ("x = f(¦)", "a b"),
        ("x = [¦", "1, 2)"),
        ("x = ¦", "= 1"),
        ("return ¦", "x y"),
        ("for ¦", "x of y:"),
        ("x = is¦", "pattern pattern"),
        ("print(¦", "'a' 3)"),
        ("¦", "if path:\n            x x"),
    ],
)
def test_a_draft_that_cannot_begin_code_is_none(line, draft):
    assert not can_follow(at(line), draft)


@pytest.mark.parametrize(
    ("line", "draft"),
    [
        ("if ¦", "isinstance(pattern, str):"),
        ("x = f(¦", "a,"),
        ("x = f(¦", "a, b=["),
        ("x = f(¦)", "a, b"),
        ("x = ¦", "a if b"),
        ("¦", "for x in"),
        ("¦", "try:"),
        ("¦", "@cache"),
        ("¦", "x = lambda"),
        ("¦", '"""Return the'),
        ("¦", "x = 'abc"),
        ("x = f'{¦", "path"),
        ("¦", "def inner(self,"),
        ("x = is¦", "instance(path, str)"),
        ("¦", "if path:\n            return 1\n        x"),
        ("x = y z w¦", " = 3"),  # it was broken before
        ("# as ¦", "if x y"),
    ],
)
def test_a_draft_that_may_go_on_is_code_and_what_was_broken_before_proves_nothing(line, draft):
    assert can_follow(at(line), draft)


@pytest.mark.parametrize(
    ("language", "marked", "right", "wrong"),
    [
        ("javascript", "function f() {\n  const x = ¦\n}\n", "g(() => {", "g(a b)"),
        ("typescript", "class A {\n  f(¦) {}\n}\n", "x: number", "x y"),
        ("go", "package a\n\nfunc f() {\n\tif ¦\n}\n", "err != nil {", "err != {} nil"),
        ("rust", "fn f() {\n    let x = ¦\n}\n", "Some(1);", "Some(1 2);"),
        ("java", "class A {\n  void f() {\n    ¦\n  }\n}\n", "int x = 1;", "int x = );"),
        ("c", "int f(void) {\n  return ¦\n}\n", "g(1);", "g(1 2);"),
        ("cpp", "int f() {\n  ¦\n}\n", "std::vector<int> x;", "std::;;vector< x)"),
        ("csharp", "class A {\n  void F() {\n    ¦\n  }\n}\n", "var x = 1;", "var x = );"),
        ("ruby", "def f\n  ¦\nend\n", "puts(1)", "puts(1))"),
        ("php", "<?php\nfunction f() {\n  ¦\n}\n", "$x = 1;", "$x = );"),
        ("lua", "function f()\n  ¦\nend\n", "local x = 1", "local = 1"),
    ],
)
def test_every_language_s_parser_is_asked(language, marked, right, wrong):
    assert can_follow(marked, right, language)
    assert not can_follow(marked, wrong, language)


def test_below_an_unfinished_line_drafts_are_still_code():
    assert can_follow("x = f(1\ny = ¦\nz = 3\n", "g(2)")
    assert can_follow("x = ) 1\n¦\nz = 3\n", "y = 2")


LONG = {
    "python": (
        "class A:\n",
        "    def f{}(\n        self,\n    ):\n        return g(1)\n\n",
        "    def f(self):\n        return g¦\n",
    ),
    "typescript": ("class A {\n", "  f{}() {{\n    return g(1);\n  }}\n\n", "  f() {\n    return g¦\n  }\n}\n"),
    "csharp": (
        "class A\n{\n",
        "  int F{}()\n  {{\n    return G(1);\n  }}\n\n",
        "  int F()\n  {\n    return g¦\n  }\n}\n",
    ),
    "php": (
        "<?php\nclass A\n{\n",
        "  function f{}()\n  {{\n    return g(1);\n  }}\n",
        "  function f()\n  {\n    return g¦\n  }\n}\n",
    ),
}


@pytest.mark.parametrize("language", LONG)
def test_drafts_are_parsed_in_documents_of_any_length_with_the_lines_nearby(language):
    head, method, end = LONG[language]
    marked = head + "".join(map(method.format, range(8_000))) + end
    right = "(2)" if language == "python" else "(2);"
    assert can_follow(marked, right, language) and not can_follow(marked, "(2 3);", language)
    near, cursor = nearest_lines(marked.replace("¦", ""), marked.index("¦"))
    assert near[:cursor].endswith("return g") and len(near) < 10_000 < len(marked)
    assert not parse(LANGUAGES[language], near[:cursor] + right + near[cursor:]).root_node.has_error


def test_no_line_of_a_real_file_is_dropped_wherever_the_cursor_stood():
    choose = random.Random(5)
    for path in sorted(Path(spd_lsp.__file__).parent.glob("completion/*.py")):
        lines = path.read_text(encoding="utf-8").split("\n")
        for row in choose.sample(range(len(lines)), min(4, len(lines))):
            line = lines[row]
            column = choose.randrange(len(line) + 1)
            above, below = lines[:row], lines[row + 1 :]
            marked = "\n".join([*above, line[:column] + "¦", *below])
            assert can_follow(marked, line[column:]), (path.name, row, column)


def test_a_document_that_grows_is_parsed_where_it_changed_with_the_same_verdicts(monkeypatch):
    lines = Path(cursor_syntax.__file__).read_text(encoding="utf-8").split("\n")
    for row in (30, 31, 80, 40):
        marked = "\n".join([*lines[:row], "x = f(¦", *lines[row + 1 :]])
        kept = can_follow(marked, "a b)"), can_follow(marked, "a, b)")
        monkeypatch.setattr(cursor_syntax, "_bases", {})
        assert kept == (can_follow(marked, "a b)"), can_follow(marked, "a, b)"))
