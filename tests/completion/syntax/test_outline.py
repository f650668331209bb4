"""Outline: every row of a text around a gap belongs to one part, and parts know what they are to the gap."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spd_lsp.completion.syntax.languages import LANGUAGES
from spd_lsp.completion.syntax.outline import Role, build_outline

SAMPLES = {
    "python": '''import os
from a import b

LIMIT = 3

def far(x):
    """Say how far.

    Much more text.
    """
    y = x
    return y

class Shape:
    """A shape."""

    sides: int = 0

    def __init__(self, size):
        self.size = size

    @property
    def area(self):
        return self.size ** 2

    def draw(
        self,
        pen,
    ):
        pen.down()
        # here
        pen.up()

def after():
    return 1
''',
    "typescript": """import { a } from "./a";

/** Says how far. */
export function far(x: number): number {
  return x;
}

export class Shape extends Base {
  size = 0;

  constructor(size: number) {
    super();
    this.size = size;
  }

  area = (): number => {
    return this.size;
  };

  draw(pen: Pen) {
    pen.down();
    // here
    pen.up();
  }
}

export const after = () => {
  return 1;
};
""",
    "go": """package shape

import "fmt"

// Shape has a size.
type Shape struct {
	size int
}

func far(x int) int {
	return x
}

func (s *Shape) draw(pen Pen) {
	pen.down()
	// here
	pen.up()
}

func after() int {
	return 1
}
""",
    "ruby": """require "set"

def far(x)
  x
end

class Shape
  SIDES = 0

  def initialize(size)
    @size = size
  end

  def draw(pen)
    pen.down
    # here
    pen.up
  end

  def after
    1
  end
end
""",
}


def parts_of(name):
    """A sample's lines without the one that says "here", and their parts."""
    lines = SAMPLES[name].splitlines(keepends=True)
    gap = next(row for row, line in enumerate(lines) if "here" in line)
    return [*lines[:gap], *lines[gap + 1 :]], build_outline(LANGUAGES[name], lines[:gap], lines[gap + 1 :])


def texts(name, role):
    """All lines of a role, in the order of the text."""
    lines, parts = parts_of(name)
    return "".join(lines[row] for row in sorted(row for part in parts if part.role is role for row in part.rows))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("python", ["class Shape:", '"""A shape."""', "def draw(\n        self,\n        pen,\n    ):"]),
        ("typescript", ["export class Shape extends Base {", "draw(pen: Pen) {", "  }\n}\n"]),
        ("go", ["func (s *Shape) draw(pen Pen) {", "\n}\n"]),
        ("ruby", ["class Shape", "def draw(pen)"]),
    ],
)
def test_the_signatures_around_the_gap_are_heads(name, wanted):
    heads = texts(name, Role.HEAD)
    assert [text for text in wanted if text not in heads] == []
    assert "far" not in heads and "after" not in heads


@pytest.mark.parametrize("name", SAMPLES)
def test_the_scope_is_the_innermost_definition_and_nothing_else(name):
    scope = [line.strip().rstrip(";") for line in texts(name, Role.SCOPE).splitlines() if line.strip()]
    assert [line.replace("()", "") for line in scope] == ["pen.down", "pen.up"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("python", ["sides: int = 0", "def __init__(self, size)", "self.size = size"]),
        ("typescript", ["size = 0;", "constructor(size: number)", "super();"]),
        ("ruby", ["SIDES = 0", "def initialize(size)"]),
    ],
)
def test_fields_and_constructors_of_the_class_around_the_gap_are_fields(name, wanted):
    fields = texts(name, Role.FIELD)
    assert [text for text in wanted if text not in fields] == []
    assert "area" not in fields


@pytest.mark.parametrize(("name", "count"), [("python", 2), ("typescript", 1), ("go", 2)])
def test_imports_are_imports(name, count):
    _, parts = parts_of(name)
    assert [part.role for part in parts].count(Role.IMPORT) == count


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("python", 'def far(x):\n    """Say how far.\n    """\n'),
        ("python", "    @property\n    def area(self):\n"),
        ("typescript", "/** Says how far. */\nexport function far(x: number): number {\n}\n"),
        ("typescript", "  area = (): number => {\n  };\n"),
        ("go", "func far(x int) int {\n}\n"),
        ("ruby", "def far(x)\nend\n"),
    ],
)
def test_a_definition_elsewhere_is_a_signature_with_its_first_line_of_documentation_and_a_body(name, signature):
    lines, parts = parts_of(name)
    others = ["".join(lines[row] for row in part.rows) for part in parts if part.role is Role.OTHER]
    assert signature in [text.rstrip("\n") + "\n" for text in others]


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_row_is_in_exactly_one_part_however_broken_the_text(name, seed):
    choose = random.Random(seed)
    text = SAMPLES[name]
    for _ in range(choose.randrange(6)):
        at = choose.randrange(len(text))
        text = (
            text[:at]
            + choose.choice(["", "(", "{", "}", '"', "\n", "'''", "é🙂", "\0"])
            + text[at + choose.randrange(9) :]
        )
    lines = text.splitlines(keepends=True)
    gap = choose.randrange(len(lines) + 1)
    below = lines[min(len(lines), gap + choose.randrange(5)) :]
    parts = build_outline(LANGUAGES[name], lines[:gap], below)
    assert sorted(row for part in parts for row in part.rows) == list(range(gap + len(below)))


def test_signatures_are_found_even_where_the_text_below_makes_no_sense():
    above = SAMPLES["typescript"].partition("    // here")[0].splitlines(keepends=True)
    parts = build_outline(LANGUAGES["typescript"], above, ["  }}} ) class ( {{\n"] * 3)
    heads = "".join(
        above[row] for part in parts if part.role is Role.HEAD for row in part.rows if row < len(above)
    )
    assert "export class Shape extends Base {" in heads and "draw(pen: Pen) {" in heads
