"""What stands behind the text before the cursor elsewhere is offered as it stands there, and said to be a copy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken

from ngram_builders.table.suffix_array import Place, SearchedTexts, build_suffix_array, find_places
from spd_lsp.completion.calibration import WITH_NGRAMS, Match
from spd_lsp.completion.context import build_context
from spd_lsp.completion.draft_text import DraftText
from spd_lsp.completion.offer import Completion, rate_completions
from spd_lsp.completion.tokenizer import ModelTokenizer
from tests.completion.vocabularies import save_tokenizer
from tests.conftest import STARTER

SOURCE = "def read(path):\n    rows = path."


@pytest.fixture(scope="module")
def tokens():
    return ModelTokenizer(STARTER)


@pytest.fixture
def ask(tokens):
    """A function from a source and places, as (length, text behind it, document), to drafts and copies."""

    def ask(found, drafts=("read_bytes()", "name"), source=SOURCE, healed=None, probabilities=(0.2,) * 9):
        context = build_context(source, len(source), "python", 512, tokens.count, explicit=True)
        texts = DraftText(tokens, tokens.prompt(context.before, context.after), context)
        healed = texts.prompt.begun.decode() if healed is None else healed
        places = [Place(n, document, tuple(tokens.encode(healed + text))) for n, text, document in found]
        said = [Completion(text, p) for text, p in zip(drafts, probabilities, strict=False)]
        return rate_completions(said, texts.continuations(places), context, WITH_NGRAMS[False])

    return ask


def texts(completions):
    return [one.text for one in completions]


FOUND = [(12, "read_text().split()\n", 1), (12, "read_text().split()\n    return 1", 2), (12, "exists()\n", 3)]


def test_a_copy_of_a_long_match_on_which_most_agree_comes_before_unlikely_drafts(ask):
    offered = ask(FOUND, probabilities=(0.04, 0.03))
    assert texts(offered) == ["read_text().split()", "read_bytes()", "exists()", "name"]
    assert [one.is_copy for one in offered] == [True, False, True, False]
    assert offered[0].match == Match(length=12, count=2, places=3, files=2)


@pytest.mark.parametrize("length", [4, 9, 12])
@pytest.mark.parametrize("p", [0.01, 0.2, 0.9])
def test_copies_and_drafts_are_in_the_order_of_their_probability(ask, length, p):
    found = [(length, "alive):\n", 1), (length, "alive):\n", 2), (3, "x):\n", 3)]
    offered = ask(found, drafts=("):", "y):", "x):"), probabilities=(p, p / 2, p / 4), source="def f(x")
    assert {one.text for one in offered} == {"):", "y):", "alive):", "x):"}
    assert [one.probability for one in offered] == sorted((one.probability for one in offered), reverse=True)


def test_what_a_draft_says_of_a_copy_counts_beside_its_match(ask):
    said = [ask(FOUND, drafts=("read_text().split()", "name"), probabilities=(p, 0.1))[0] for p in (0.02, 0.5)]
    unwritten = ask(FOUND, probabilities=(0.02, 0.01))[0]
    assert texts([*said, unwritten]) == ["read_text().split()"] * 3
    assert unwritten.probability < said[0].probability < said[1].probability


def test_a_draft_that_is_a_copy_is_offered_once_and_says_where_it_stands(ask):
    [first, second] = ask([(9, "name\n", 1)])
    assert (first.text, first.is_copy, second.text) == ("name", True, "read_bytes()")
    best, other, *_ = ask([(3, "name\n", 1), *((3, f"f({n})\n", n) for n in range(8))])
    assert (best.match, other.text, other.is_copy) == (None, "name", False)
    assert other.match == Match(length=3, count=1, places=9, files=1)


def test_a_copy_must_go_on_as_typed_and_end(ask):
    source = SOURCE + "re"
    assert texts(ask([(9, "write()\n", 1)], drafts=(), source=SOURCE[:-1])) == ["write()"]
    assert ask([(9, "ad_text()", 1)], drafts=(), source=source) == []  # no end of line among its tokens


def test_a_line_that_is_masked_is_not_copied(ask):
    from ngram_builders.sources.masking import MARK

    assert ask([(9, f"key = {MARK}\n", 1)], drafts=()) == []


def test_a_block_is_copied_with_its_last_line(ask):
    block = "rows = read(path)\n    return rows"
    [copy] = ask([(9, f"{block}\n\n\ndef f():", 1)], drafts=(), source="def read_rows(path):\n    ")
    assert (copy.text, copy.is_copy) == (block, True)


@pytest.mark.parametrize("elsewhere", ["    ", "            ", "\t", ""])
def test_a_line_that_is_indented_otherwise_elsewhere_is_copied(ask, elsewhere):
    source = "def f(lock):\n    if lock:\n        g()\n        "
    [copy] = ask([(9, f"\n{elsewhere}lock.release()\n", 1)], drafts=(), source=source, healed="")
    assert copy.text == "lock.release()"


@pytest.mark.parametrize(("elsewhere", "outside"), [("        ", "    "), ("  ", ""), ("", None)])
def test_a_block_is_copied_with_the_indentation_of_the_cursor(ask, elsewhere, outside):
    lines = ["rows = [", "    path,", "]", "", "return rows"]
    found = "".join(f"\n{elsewhere}{line}" if line else "\n" for line in lines)
    end = "" if outside is None else f"\n{outside}def f():\n"
    [copy] = ask([(9, f"{found}{end}\n\n\n\n", 1)], drafts=(), source="def read_rows(path):\n    ", healed="")
    assert copy.text == "rows = [\n        path,\n    ]\n\n    return rows"


@pytest.mark.parametrize("levels", [0, 1, 2])
@pytest.mark.parametrize(
    ("begun", "copied"), [("", "z = kindle()\n        break"), ("z = ki", "ndle()"), ("z = ", "kindle()")]
)
@pytest.mark.parametrize("ends_at_lines", [False, True])
def test_code_at_another_level_is_found_also_if_tokens_end_where_lines_do(
    tmp_path, tokens, levels, begun, copied, ends_at_lines
):
    if ends_at_lines:
        blanks = [AddedToken(" " * n, special=False, normalized=True) for n in (4, 8, 12)]
        tokens = save_tokenizer(tmp_path, specials=["<|endoftext|>"], added=blanks)
    code = "while quagga:\n    z = kindle()\n    break\n".replace("\n", "\n" + "    " * levels)
    known = f"while other:\n    f()\n\n\n{'    ' * levels}{code}\nother = 1\n"
    texts = SearchedTexts(
        build_suffix_array([np.array(tokens.encode(known))], tokens.end_of_text, tokens.vocab_size)
    )
    source = f"def f():\n    while quagga:\n        {begun}"
    context = build_context(source, len(source), "python", 512, tokens.count, explicit=True)
    prompt = tokens.prompt(context.before, context.after)
    found = find_places([texts], prompt.copied_behind, 99, prompt.levels)
    assert DraftText(tokens, prompt, context).continuations(found)[0][1] == copied


def test_a_copy_at_the_left_margin_is_indented_as_it_stands_elsewhere(ask):
    [copy] = ask([(9, "\n    h()\n", 1)], drafts=(), source="def f():\n    g(1)\n", healed="")
    assert copy.text == "    h()"


POSITIVE = st.integers(1, 40)


@given(POSITIVE, POSITIVE, st.integers(0, 40), st.floats(0.02, 0.5))
def test_more_evidence_makes_a_copy_likelier(length, count, others, written):
    match = Match(length, count, count + others, 1)
    p = match.probability(written)
    assert 0 < p < 1
    assert match.probability(2 * written) > p
    assert match.probability(0.0) < p
    assert replace(match, length=length + 1).probability(written) > p
    assert replace(match, places=match.places + 1).probability(written) < p


def test_what_is_said_of_a_copy():
    assert Match(8, 2, 2, 1).probability(0.0) == pytest.approx(0.23, abs=0.01)
    assert Match(8, 2, 2, 1).probability(0.1) == pytest.approx(0.65, abs=0.01)
