"""What stands behind the cursor is not said again: nothing is closed twice, and no line or word is said twice."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.completion.context import Context
from spd_lsp.completion.draft_text import visible_text
from spd_lsp.completion.offer import usable_completions
from spd_lsp.completion.surroundings import Surroundings
from tests.completion.places import context_at


def shown(marked: str, draft: str, language: str, shape: str = "line", indent: str = "") -> list[str]:
    """What is offered of a draft at `¦`."""
    before, after = marked.split("¦")
    place = context_at(shape, indent, after, before, language)
    return [one.text for one in usable_completions([(draft, -0.1)], place)]


TYPESCRIPT_BLOCKS = [
    ("export const add = (a: number, b: number) => {\n  ¦\n}\n", "return a + b\n}\n", ["return a + b"]),
    ("class A {\n  add(a: number) {\n    ¦\n  }\n}\n", "return a\n  }\n}", ["return a"]),
    ("class A {\n  add(a: number) {\n    ¦\n}\n", "return a\n  }\n", ["return a\n  }"]),  # not closed
    ("f(() => {\n  ¦\n", "g()\n})\n", ["g()\n})"]),
    ("function f() {\n  ¦\n}\n", "if (x) {\n    g()\n  }\n}\n", ["if (x) {\n    g()\n  }"]),
    ("function f() {\n  ¦\n}\n", "g()\n  if (x) {\n    h()\n", ["g()"]),  # cut off within a block of its own
]


@pytest.mark.parametrize(("marked", "draft", "expected"), TYPESCRIPT_BLOCKS)
def test_a_block_does_not_end_with_the_line_that_closes_it_below(marked: str, draft: str, expected: list[str]):
    line = marked[: marked.index("¦")].rpartition("\n")[2]
    assert shown(marked, draft, "typescript", "block", line) == expected


@pytest.mark.parametrize(
    ("language", "marked", "draft", "expected"),
    [
        ("typescriptreact", "return (\n    <div>\n      ¦\n    </div>\n  )", "{name}</div>\n", ["{name}"]),
        ("html", "<ul>\n  <li>¦</li>\n</ul>", "one</li>\n", ["one"]),
        ("ruby", "def a\n  ¦\nend\n", "end\n", []),
        ("ruby", "def a\n  if b\n    c\n  ¦\nend\n", "end\n", ["end"]),
        ("shellscript", "for a in b; do\n  ¦\n", "done\n", ["done"]),
        ("go", "func f() {\n\t¦\n}\n", "}\n", []),
        ("java", "/**\n * Adds ¦\n */\nint f() {}\n", "two. */\n", ["two."]),
        ("css", "a {\n  ¦\n}\n", "color: red; }\n", ["color: red;"]),
        ("python", 'def f():\n    """Adds ¦"""\n', 'two."""\n', ["two."]),
        ("python", "x = f(\n    a,\n    ¦\n    c)\n", "b, c)\n", ["b,"]),
        ("elixir", "def a do\n  b\n  ¦\nend\n", "c\nend\n", ["c"]),  # no row of its own: by its lines
    ],
)
def test_a_line_that_stands_below_is_not_offered(language: str, marked: str, draft: str, expected: list[str]):
    shape = "block" if "\n" in draft.strip() else "line"
    assert shown(marked, draft, language, shape) == expected


@pytest.mark.parametrize(
    ("language", "marked", "draft", "expected"),
    [
        ("typescript", "describe('fi¦')", "ndAll', () => {\n", ["ndAll"]),
        ("javascript", 'const names = {\n  first: "ann",\n  second: "¦"\n};', 'ann",\n', ["ann"]),
        ("typescriptreact", '<button className="¦" type="button">', 'button">\n', ["button"]),
        ("typescriptreact", '<button className="¦">Go</button>', 'button" type="submit">Go\n', ["button"]),
        ("javascript", 'app.get("¦")', '/users", (req, res) => {\n', ["/users"]),
        ("javascript", "let a = `${¦}`;", "b} and ${c}`;\n", ["b"]),
        ("javascript", "let a = /[a-z¦]/;", "0-9]/;\n", ["0-9"]),
        ("python", 'print(f"{¦}")', 'name}")\n', ["name"]),
        ("python", 'print(f"{name¦}")', '} and {x}")\n', []),
        ("python", "re.compile(r'¦')", "\\d+')\n", ["\\d+"]),
        ("python", 'x = """¦"""', 'a"""\n', ["a"]),
        ("python", "f('¦, 'b')", "a'\n", ["a'"]),  # the quote is not closed yet
        ("rust", "fn f<'a>(x: &'a str) { g(\"¦\") }", 'x")\n', ["x"]),
        ("csharp", 'var a = $"{¦}";', 'b}";\n', ["b"]),
        ("ruby", 'puts "#{¦}"', 'a}"\n', ["a"]),
        ("shellscript", 'echo "$(¦)"', 'date)"\n', ["date"]),
        ("python", "self.encoding\t¦ = encoding", "= encoding\n", []),
        ("python", "self.encoding¦ = encoding", " = encoding or None\n", []),
    ],
)
def test_a_quote_that_stands_right_of_the_cursor_is_not_closed_again(
    language: str, marked: str, draft: str, expected: list[str]
):
    assert shown(marked, draft, language) == expected


@pytest.mark.parametrize(
    ("language", "marked", "draft", "expected"),
    [
        ("python", "with ¦", "open(path, ' file:\n", False),
        ("python", "with ¦", 'open(path, "wb:\n', False),
        ("python", "with ¦", 'open(path, "wb") as file:\n', True),
        ("python", "x = ¦", '"""Reads\n', True),
        ("python", "x = f(¦)", '"a', False),
        ("python", "x = f(¦)", "g(", False),
        ("python", "# ¦", "don't\n", True),
        ("javascript", "x = ¦", "a.replace(/['\"]/g, '')\n", True),
        ("javascript", "x = ¦", "`a ${b}` + 'c\n", False),
        ("rust", "fn f¦", "<'a>(x: &'a str) {\n", True),
    ],
)
def test_a_draft_that_leaves_a_string_open_on_its_line_is_not_shown(
    language: str, marked: str, draft: str, expected: bool
):
    assert bool(shown(marked, draft, language)) == expected


def test_a_draft_spells_the_end_of_a_keyword_that_is_being_typed():
    assert shown("def a\n  b\n  e¦\nend\n", "nd\n", "ruby") == []
    assert shown("def a\n  if b\n    c\n  e¦\nend\n", "nd\n", "ruby") == ["nd"]


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("x)", ")", "x"),
        ("len(x))", ")\n", "len(x)"),
        ("a:", ":", "a"),
        ("f()", "()", "f"),
        ("a, b", "b)", "a, "),
        ("a == b", " == b", "a"),
        # no name and no string is cut in two
        ("info", " or x", "info"),
        ("value", "else 2", "value"),
        ('"a"', '"b"', '"a"'),
        # of closing brackets only those go that the draft does not open
        ("len(path))", "))", "len(path)"),
        ("f(a[0]))]", ")]", "f(a[0])"),
        ("f(x)", "))", "f(x)"),
    ],
)
def test_what_stands_behind_the_cursor_is_not_repeated(text: str, after: str, expected: str):
    assert visible_text(text, context_at(after=after)) == expected


@given(st.text("ab_ .,:()[]{}'", max_size=12), st.text("ab_ .,:()[]{}'", max_size=8))
def test_the_end_that_is_cut_off_is_what_the_rest_begins_with_and_no_part_of_a_word(text: str, after: str):
    kept = Surroundings.at(after, 0, "").without_overlap(text)
    cut = text[len(kept) :].strip() if text != kept else ""
    assert text.startswith(kept)
    assert after.strip().startswith(cut) or cut.startswith(after.strip())
    assert not (re.search(r"\w$", kept) and re.match(r"\w", text[len(kept) :]))


@pytest.mark.parametrize(
    ("left", "text", "after", "expected"),
    [
        ("sorted(", "names),", ")", "names"),
        ("return [", "x for x in self.items]", " for x in xs]", "x"),
        ("f(", "a, c)", ", b)", "a"),
        ("f(", "g(a), b):", "):", "g(a), b"),
        ("f(g(", "a), b", ")", "a), b"),  # the line waits for one bracket more than stands right
        ("f(g(", "a), b)) + 1", ")", "a), b"),
        ("f(g(", "a))", ")", "a)"),
        ("x.split(", "')')", ")", "')'"),
        ("", "f(a) + b", " + (c)", "f(a) + b"),
        ("    def delay(", "self, *args, **kwargs) -> None:\n", ", **kwargs) -> None:\n", "self, *args"),
        ("f([", "1, 2, 3, 4, 5])\n", ", 4, 5])\n", "1, 2, 3"),
    ],
)
def test_a_draft_ends_before_it_closes_what_is_closed_right_of_the_cursor(
    left: str, text: str, after: str, expected: str
):
    assert visible_text(text, context_at(after=after, left=left)) == expected


@pytest.mark.parametrize(
    "line",
    [
        *("\\'" * 32_000, "'\"\\" * 21_000, "(" * 64_000, "a" * 64_000, "a)" * 32_000, "b" + "a" * 64_000),
        *("aaaaaaaaab" * 6_400 + "c", "(" * 32_000 + "]" * 32_000, "</a>" * 16_000, "`${" * 21_000),
        *("if " * 20_000, "end\n" * 16_000, "{\n" * 32_000, "/*" * 32_000, 'r#"' * 21_000, "=/a" * 21_000),
    ],
    ids=lambda line: f"{line[:4]} {line[31_998:32_000]} {line[-4:]}".replace("\n", ";"),
)
def test_the_worst_text_and_the_worst_draft_take_little_time(line: str):
    """64 kB of them took up to minutes, in which no session of the server was answered."""
    for language in ("python", "typescriptreact", "ruby"):
        places = [
            (context_at(after=line, left="f(" + line, language=language), "x)"),
            (context_at(after="\n" + line, left=line + "\n", language=language), "x)"),
            (context_at(after=")", left="f(", language=language), line),
        ]
        for place, draft in places:
            assert any(seconds(draft, place) < 3 for _ in range(2))  # linear ones take .1, others minutes


def seconds(draft: str, place: Context) -> float:
    started = time.process_time()
    usable_completions([(draft, -0.1)], place)
    return time.process_time() - started
