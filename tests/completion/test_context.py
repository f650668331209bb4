"""Context: what the model sees fits its room, consists of whole lines, and stands still while someone types."""

from __future__ import annotations

import argparse
import random
import re
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spd_lsp.completion.context import build_context, normalize_newlines, split_lines
from spd_lsp.completion.syntax.languages import LANGUAGES

TOKEN = re.compile(r" ?\w{1,9}| ?[^\w\s]{1,3}|\n|[ \t]+(?=\S)|[^\S\n]")
LIBRARY = Path(argparse.__file__).read_text(encoding="utf-8")
SMALL = Path(textwrap.__file__).read_text(encoding="utf-8")


def count(text):
    """As many tokens as a usual tokenizer would make, about four characters each."""
    return len(TOKEN.findall(text))


def at(text, language="python", room=500, mark="¦", **options):
    """The view at the mark in a text."""
    cursor = text.index(mark)
    return build_context(text.replace(mark, ""), cursor, language, room, count, **options)


def methods(numbers, body=6):
    """Methods with a signature, documentation and a body of so many lines."""
    return "".join(
        f'    def method_{n}(self, one, two):\n        """Do thing {n}.\n\n        At length.\n        """\n'
        + "".join(f"        value_{n}_{m} = one + two * {m}\n" for m in range(body))
        + "\n"
        for n in numbers
    )


def python_file(count):
    """A file of imports, a class with many methods and an unfinished last one."""
    return (
        "import os\nfrom sys import path\n\n\nclass Worker(Base):\n    limit: int = 3\n\n"
        "    def __init__(self, size):\n        self.size = size\n\n"
        + methods(range(count))
        + "    def last(self, three):\n"
    )


def is_made_of_lines(part, document):
    """Whether the lines of a text all stand in a document, in that order."""
    rest = iter(split_lines(document))
    return all(any(line == other for other in rest) for line in split_lines(part))


def test_of_a_long_file_the_model_sees_imports_the_heads_around_the_cursor_and_the_nearest_lines():
    view = at(
        python_file(60) + "        if three:\n" + "            four(three)\n" * 80 + "            five(¦\n",
        room=500,
    )
    heads = "import os\nfrom sys import path\nclass Worker(Base):\n    def last(self, three):\n        if three:\n"
    assert view.before.startswith(heads + "            four(three)\n")
    assert view.before.endswith("            four(three)\n            five(")


def test_below_the_cursor_come_the_rest_of_the_line_and_the_nearest_lines():
    text = python_file(30) + "        total = (¦)\n        return total\n\n" + methods(range(30, 60), body=30)
    after = at(text, room=1200).after
    assert text.replace("¦", "").partition("total = (")[2].startswith(after)
    assert after.startswith(")\n        return total\n\n    def method_30(") and after.endswith("\n")


def test_each_side_gets_the_room_the_other_does_not_use():
    top = build_context(LIBRARY, 0, "python", 800, count, explicit=True)
    end = build_context(LIBRARY, len(LIBRARY), "python", 800, count, explicit=True)
    assert count(top.after) > 600
    assert count(end.before) > 600
    middle = build_context(LIBRARY, LIBRARY.index("\n", len(LIBRARY) // 2), "python", 800, count, explicit=True)
    assert count(middle.before) > 2 * count(middle.after) > 200


def test_a_language_without_a_grammar_is_seen_as_the_nearest_lines():
    text = "".join(f"line {n}\n" for n in range(1000))
    cursor = text.index("line 500")
    view = build_context(text, cursor, "plaintext", 200, count, explicit=True)
    assert text[:cursor].endswith(view.before) and text[cursor:].startswith(view.after)
    assert view.shape == "line"


def test_a_line_longer_than_the_room_keeps_its_end_from_a_word_on():
    text = "data = [" + ", ".join(f"value_{n}" for n in range(5000)) + "]"
    cursor = text.index(", value_4000")
    before = build_context(text, cursor, "python", 100, count, explicit=True).before
    assert text[:cursor].endswith(before) and 20 < count(before) <= 100
    assert re.match(r"value_\d+,", before)


def test_text_after_the_cursor_does_not_depend_on_what_is_typed_on_its_line():
    text = python_file(40) + "        ¦\n        return 1\n\n" + methods(range(40, 80))
    typed = 'self.total = [f("""{(x'
    afters = {at(text.replace("¦", typed[:n] + "¦"), room=400).after for n in range(len(typed) + 1)}
    assert len(afters) == 1


SHAPES = [
    ("python", "def f(x):¦", "block"),
    ("python", "def f(x):\n    ¦", "block"),
    ("python", 'def f(x):\n    """Doc."""\n    ¦', "block"),
    ("python", "def f(x):\n    # note\n    ¦\n\ndef g(): pass\n", "block"),
    ("python", "if x:  # why\n    ¦\nelse:\n    pass\n", "block"),
    ("python", "for i in y:¦\n    pass\n", "line"),
    ("python", "match x:\n    case 1:\n        ¦", "block"),
    ("python", "def broken(:\n  x = (\n\ndef f(x):\n    ¦", "block"),
    ("python", "d = {'a':¦}", "line"),
    ("python", 'x = """\nif this:\n    ¦', "line"),
    ("javascript", "function f(x) {\n  ¦\n}\n", "block"),
    ("javascript", "f(() => {\n  ¦\n});", "block"),
    ("javascript", "function f( {\n if (x) {\n    ¦", "block"),
    ("javascript", "const x = {\n  ¦\n}", "line"),
    ("typescript", "export class A {\n  async f(x: number): Promise<void> {\n    ¦\n  }\n}", "block"),
    ("typescriptreact", "const A = () => {\n  ¦\n}\n", "block"),
    ("go", "package a\n\nfunc f() {\n\tif err != nil {\n\t\t¦\n\t}\n}\n", "block"),
    ("go", "x := Foo{\n\t¦\n}", "line"),
    ("go", "func broken( {\n}\nfunc f() {\n\t¦", "block"),
    ("rust", "impl A for B {\n    fn f(x: i32) -> i32 {\n        ¦\n    }\n}", "block"),
    ("rust", "fn f() {\n    match x {\n        ¦\n    }\n}", "block"),
    ("rust", "fn f() {\n    let a = 1;\n    ¦\n}", "line"),
    ("java", "class A {\n    void f() {\n        ¦\n    }\n}", "block"),
    ("c", "int main(void)\n{\n    ¦\n}", "block"),
    ("cpp", "class A {\n    ¦\n};", "block"),
    ("csharp", "class A\n{\n    void F()\n    {\n        ¦\n    }\n}", "block"),
    ("ruby", "xs.each do |x|\n  ¦\nend", "block"),
    ("ruby", "def f\n  a = 1\n  ¦\nend", "line"),
    ("php", "<?php\nclass A {\n    public function f() {\n        ¦\n    }\n}", "block"),
    ("php", "<?php\n$x = [\n    ¦\n];", "line"),
    ("shellscript", "for x in y; do\n  ¦\ndone", "block"),
    ("shellscript", "if x; then\n  a\n  ¦\nfi", "line"),
    ("lua", "local function f(x)\n  ¦\nend", "block"),
]


@pytest.mark.parametrize(("language", "text", "shape"), SHAPES)
def test_a_block_is_expected_where_a_body_is_about_to_begin_and_a_line_elsewhere(language, text, shape):
    assert at(text, language).shape == shape


@pytest.mark.parametrize(
    ("text", "indent"),
    [
        ("def f(x):\n    ¦", "    "),
        ("class A:\n  def f(x):¦", "    "),
        ("class A:\n\tdef f(x):¦", "\t\t"),
        ("def f(x):¦", "    "),
        ("def f(x):\n¦", "    "),
        ("if x:\n    y = 1¦", "    "),
        ("y = 1¦", ""),
    ],
)
def test_the_indentation_is_that_of_the_line_or_of_the_body_about_to_begin(text, indent):
    assert at(text).indent == indent


NOISE = ["", "", "(", ")", "{", "}}", '"""', "'", "/*", "\\", "\t", "\r\n", "\r", "\f", "\0", "\n" * 3, "漢🙂é"]
NOISE += ["\ud800", "#"]


def damaged(choose):
    """A stretch of a real file with a few characters lost and others put in."""
    start = choose.randrange(len(SMALL) - 500)
    text = SMALL[start : start + choose.randrange(20, 9000)]
    for _ in range(choose.randrange(12)):
        cut = choose.randrange(len(text) + 1)
        text = text[:cut] + choose.choice(NOISE) + text[cut + choose.randrange(12) :]
    return text


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    language=st.sampled_from([None, "plaintext", "python", "python", *LANGUAGES]),
    room=st.integers(0, 600),
    explicit=st.booleans(),
)
def test_any_text_is_trimmed_to_whole_lines_within_the_room(seed, language, room, explicit):
    choose = random.Random(seed)
    source = damaged(choose)
    cursor = choose.randrange(len(source) + 1)
    view = build_context(source, cursor, language, room, count, explicit=explicit)
    left = source[source.rfind("\n", 0, cursor) + 1 : cursor]
    if view.silence:
        assert not explicit and view.before == view.after == ""
        return
    assert count(view.before) + count(view.after) <= room
    assert source[cursor:].startswith(view.after[: view.after.find("\n") + 1])
    assert is_made_of_lines(view.after, source[cursor:])
    if view.before.endswith(left):
        assert is_made_of_lines(view.before, source[:cursor])
    else:
        assert left.endswith(view.before) and count(left) + 40 > room * 3 // 4
    assert view.indent.strip(" \t") == ""


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_is_a_line_feed_and_the_cursor_stays_at_its_letter(end):
    text = "a\n\nbc\n"
    source = text.replace("\n", end)
    for at in range(len(text) + 1):
        assert normalize_newlines(source, len(text[:at].replace("\n", end))) == (text, at)


def test_a_cursor_within_a_line_end_stands_before_it():
    assert normalize_newlines("a\r\nb", 2) == ("a\nb", 1)
    assert normalize_newlines("a\n\rb", 2) == ("a\n\nb", 2)
    assert normalize_newlines("\r\n", -1) == ("\n", 0)
    assert normalize_newlines("\r\n", 9) == ("\n", 1)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
@pytest.mark.parametrize(
    "line",
    [f"{part * (64_000 // len(part))}x" for part in (" ", ")", ") ", "def ", "function ")],
    ids=lambda line: line[:4],
)
def test_the_worst_line_takes_little_time(language, line):
    """64 kB of blanks right of the cursor took minutes, in which no session of the server was answered."""
    for cursor in (0, len(line)):
        assert any(seconds_to_trim(line, cursor, language) < 0.5 for _ in range(3))


def seconds_to_trim(source, cursor, language):
    started = time.process_time()
    build_context(source, cursor, language, 500, len)
    return time.process_time() - started
