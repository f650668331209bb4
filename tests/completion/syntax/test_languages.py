"""The tree: what a place stands in, and which lines can stand there, in any language and however broken."""

from __future__ import annotations

import random
import resource
import sys
from pathlib import Path

import pytest

from spd_lsp.completion.surroundings import Surroundings
from spd_lsp.completion.syntax.languages import (
    LANGUAGES,
    ParserBudgetExceeded,
    breaks_line,
    find_heads,
    load_grammar,
    parse,
)

# A document, the heads of what the mark stands in, innermost first, and the lines of imports.
HEADS = {
    "python": (
        """import os
from a import (
    b,
)
def before():
    pass
class A(
    Base,
):
    def f(self):
        if x:
            y()
        else:
            try:
                z()
                ¦
""",
        ["            try:", "        else:", "        if x:", "    def f(self):", "):", "class A("],
        ["import os", "from a import (", "    b,", ")"],
    ),
    "typescript": (
        """import { a } from 'a';
export class A {
  f() {
    return g(() => {
      h();
      ¦
    });
  }
}
""",
        ["    return g(() => {", "  f() {", "export class A {"],
        ["import { a } from 'a';"],
    ),
    "go": (
        'package a\nimport (\n\t"fmt"\n)\nfunc f() {\n\tfor {\n\t\tx()\n\t\t¦\n\t}\n}\n',
        ["\tfor {", "func f() {"],
        ["package a", "import (", '\t"fmt"', ")"],
    ),
    "c": (
        "#ifndef A\n#include <a.h>\nint f(void)\n{\n  if (x)\n  {\n    g();\n    ¦\n  }\n}\n#endif\n",
        ["  {", "  if (x)", "{", "int f(void)", "#ifndef A"],
        ["#include <a.h>"],
    ),
    "ruby": (
        "require 'a'\nclass A\n  def f\n    xs.each do |x|\n      g x\n      ¦\n    end\n  end\nend\n",
        ["    xs.each do |x|", "  def f", "class A"],
        ["require 'a'"],
    ),
    "": ("a:\n  b:\n    c: 1\n    ¦\n", ["  b:", "a:"], []),  # a language without a grammar
}


@pytest.mark.parametrize("language", HEADS)
def test_heads_are_the_lines_that_the_cursor_stands_in(language: str):
    text, heads, imports = HEADS[language]
    lines = text.splitlines(keepends=True)
    [gap] = [row for row, line in enumerate(lines) if "¦" in line]
    found = find_heads(LANGUAGES.get(language), tuple(lines[:gap]), tuple(lines[gap + 1 :]))
    assert [[lines[row].rstrip("\n") for row in rows] for rows in found] == [heads, imports]


def test_the_steps_of_a_parser_are_bounded_by_a_count():
    """The same texts are too hard on every machine; their heads are found by indentation alone."""
    with pytest.raises(ParserBudgetExceeded):
        parse(LANGUAGES["csharp"], "/* " * 2_000)
    assert find_heads(LANGUAGES["csharp"], ("a\n", " " + "/* " * 2_000 + "\n"), ()) == ([0], [])
    assert not parse(LANGUAGES["csharp"], "class A { void F() { G(1); } }\n" * 4_000).root_node.has_error


def test_ten_thousand_open_brackets_are_read_without_recursion():
    assert find_heads(LANGUAGES["javascript"], ("([{" * 10_000 + "\n", "  x\n"), ()) == ([0], [])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process holds")
def test_what_was_parsed_does_not_stay_in_memory():
    """The binding of tree-sitter frees nothing that a callback returns: hours of typing would cost a gigabyte."""
    text = "def f():\n" + "    print('a line of code')\n" * 3_000
    sizes = []
    for number in range(100):
        parse(LANGUAGES["python"], f"{text}x = {number}\n")
        fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
        sizes.append((int(fields[1]) - int(fields[2])) * resource.getpagesize())
    assert sizes[-1] - sizes[20] < 20 * len(text)  # of eighty


LINES = [
    ("python", "def f(x):\n    ¦\n    return 1\n", ["x = g(1)", "if x: pass"], ["return g(x:)", "g(1,,2)", "x y"]),
    ("python", "x = g(\n    ¦\n    b=2,\n)\n", ["a=1,"], ["a=1 b,"]),
    ("typescript", "class A {\n  f() {\n    ¦\n  }\n}\n", ["return x => {}", "g(1);"], ["g(a b)", "x = = 1"]),
    ("go", "package a\n\nfunc f() {\n\t¦\n}\n", ["if err != nil {}"], ["if err != {} nil {}"]),
    ("rust", "fn f() {\n    ¦\n}\n", ["let x = Some(1);"], ["let x = Some(1 2);"]),
    ("java", "class A {\n  void f() {\n    ¦\n  }\n}\n", ["int x = 1;"], ["int x = );"]),
    ("c", "int f(void) {\n  return ¦\n}\n", ["g(1);"], ["g(1 2);"]),
    ("ruby", "def f\n  ¦\nend\n", ["puts(1)"], ["puts(1))"]),
    ("php", "<?php\nfunction f() {\n  ¦\n}\n", ["$x = 1;"], ["$x = );"]),
    ("python", "x = ) 1\n¦\nz = (\n", ["y = 2", "y = = 2"], []),  # broken already
]


@pytest.mark.parametrize(("language", "marked", "sound", "broken"), LINES)
def test_a_line_that_cannot_be_code_is_known_where_all_around_it_is(
    language: str, marked: str, sound: list[str], broken: list[str]
):
    source, cursor = marked.replace("¦", ""), marked.index("¦")
    far = "x = 1\n" * 20_000 if language == "python" else ""
    for above in ("", far):
        breaks = breaks_line(LANGUAGES[language], Surroundings.at(above + source, len(above) + cursor, language))
        assert [breaks(line) for line in (*sound, *broken)] == [False] * len(sound) + [True] * len(broken)


def test_no_line_of_a_real_file_is_broken_wherever_the_cursor_stood():
    choose = random.Random(5)
    lines = (Path(__file__).parents[1] / "snippets" / "service.py").read_text(encoding="utf-8").split("\n")
    for row in range(len(lines)):
        for column in (choose.randrange(len(lines[row]) + 1) for _ in range(4)):
            source = "\n".join([*lines[:row], lines[row][:column], *lines[row + 1 :]])
            around = Surroundings.at(source, sum(len(line) + 1 for line in lines[:row]) + column, "python")
            breaks = breaks_line(LANGUAGES["python"], around)
            line = lines[row][column:]
            assert around.literal or not breaks(line) or not breaks(around.closed(line))


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_row_names_only_nodes_that_its_grammar_has(name: str):
    row = LANGUAGES[name]
    known = load_grammar(row.module, row.entry)
    assert {kind for kind in row.imports.split() if known.id_for_node_kind(kind, True) is None} == set()
