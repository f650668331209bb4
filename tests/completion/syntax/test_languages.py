"""Languages: every row speaks its grammar's own names, and a broken text is closed behind its end."""

from __future__ import annotations

import pytest

from spd_lsp.completion.syntax.languages import LANGUAGES, load_grammar, missing_closers, parse

NODE_FIELDS = ("functions", "classes", "imports", "bare", "containers", "leading", "comments", "strings", "bodies")


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_row_names_only_nodes_and_fields_its_grammar_has(name):
    row = LANGUAGES[name]
    known = load_grammar(row.module, row.entry)
    kinds = {kind for field in NODE_FIELDS for kind in getattr(row, field)} | set(row.wrappers)
    assert {kind for kind in kinds if known.id_for_node_kind(kind, True) is None} == set()
    assert {field for field in row.wrappers.values() if field and known.field_id_for_name(field) is None} == set()


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("python", "def f():\n    {}\n"),
        ("javascript", "function f() {{ {} }}"),
        ("typescript", "function f() {{ {} }}"),
        ("typescriptreact", "function f() {{ {} }}"),
        ("go", "package a\nfunc f() {{ {} }}"),
        ("rust", "fn f() {{ {} }}"),
        ("java", "class A {{ void f() {{ {} }} }}"),
        ("c", "void f() {{ {} }}"),
        ("cpp", "void f() {{ {} }}"),
        ("csharp", "class A {{ void F() {{ {} }} }}"),
        ("ruby", "def f\n  {}\nend\n"),
        ("php", "<?php function f() {{ {} }}"),
        ("shellscript", "f() {{\n  {}\n}}\n"),
        ("lua", "function f()\n  {}\nend\n"),
    ],
)
def test_a_filler_is_a_statement_of_its_language(name, frame):
    assert not parse(LANGUAGES[name], frame.format(LANGUAGES[name].filler)).root_node.has_error


@pytest.mark.parametrize(
    ("name", "text", "closing"),
    [
        ("javascript", "f(() => { g(", [")", "}", ")"]),
        ("java", "class A {\n  void f() {\n    if (a) {\n      b(1,\n", [")", "}", "}", "}"]),
        ("lua", "function f()\n  if a then\n    g(\n", [")", "end", "end"]),
        ("ruby", "class A\n  def f\n    xs.each do |x|\n", ["end", "end", "end"]),
        ("python", "x = [\n  f(\n", [")", "]"]),
        ("go", 'x := "("\nf([]int{1,', ["}", ")"]),
    ],
)
def test_what_a_text_leaves_open_is_closed_innermost_first(name, text, closing):
    tree = grammar_tree(name, text)
    assert missing_closers(LANGUAGES[name], tree.root_node).split() == closing


def test_ten_thousand_open_brackets_are_read_without_recursion():
    assert parse(LANGUAGES["javascript"], "([{" * 10_000).root_node is not None


def grammar_tree(name, text):
    from tree_sitter import Parser

    row = LANGUAGES[name]
    return Parser(load_grammar(row.module, row.entry)).parse(text.encode())
