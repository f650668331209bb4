"""Languages: every row speaks its grammar's own names."""

from __future__ import annotations

import pytest

from spd_lsp.completion.syntax.languages import LANGUAGES
from spd_lsp.completion.syntax.tree import load_grammar


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_row_names_only_nodes_that_its_grammar_has(name):
    row = LANGUAGES[name]
    known = load_grammar(row.module, row.entry)
    kinds = row.imports | row.comments | row.strings | row.bodies
    assert {kind for kind in kinds if known.id_for_node_kind(kind, True) is None} == set()
