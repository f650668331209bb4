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
from spd_lsp.completion.offer import Completion, calibrated, with_copies
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.settings import Settings
from tests.completion.vocabularies import save_tokenizer
from tests.conftest import STARTER

SOURCE = "def read(path):\n    rows = path."


@pytest.fixture(scope="module")
def tokens():
    return ModelTokenizer(STARTER)


@pytest.fixture
def ask(tokens):
    """A function from a source and places, as (length, text behind it, document), to drafts and copies."""

    def ask(found, drafts=("read_bytes()", "name"), source=SOURCE, healed=None, probabilities=(0.2,) * 9, most=3):
        context = build_context(source, len(source), "python", 512, tokens.count, explicit=True)
        texts = DraftText(tokens, tokens.prompt(context.before, context.after), context)
        healed = texts.prompt.begun.decode() if healed is None else healed
        places = [Place(n, document, tuple(tokens.encode(healed + text))) for n, text, document in found]
        said = [Completion(text, p) for text, p in zip(drafts, probabilities, strict=False)]
        return with_copies(said, texts.continuations(places), context, most, WITH_NGRAMS[False])

    return ask


def texts(completions):
    return [one.text for one in completions]


FOUND = [(12, "read_text().split()\n", 1), (12, "read_text().split()\n    return 1", 2), (12, "exists()\n", 3)]


def test_a_copy_of_a_long_match_on_which_most_agree_comes_first(ask):
    offered = ask(FOUND)
    assert texts(offered) == ["read_text().split()", "read_bytes()", "name", "exists()"]
    assert [one.is_copy for one in offered] == [True, False, False, True]
    assert offered[0].match == Match(length=12, count=2, places=3, files=2)


@pytest.mark.parametrize(("length", "first"), [(9, "):"), (12, "alive):")])
def test_a_copy_of_a_shorter_match_gives_way_to_a_draft_that_is_likelier(ask, length, first):
    found = [(length, "alive):\n", 1), (length, "alive):\n", 2)]
    assert texts(ask(found, drafts=("):",), probabilities=(0.5,), source="def f(x"))[0] == first
    assert texts(ask(found, drafts=("):",), probabilities=(0.01,), source="def f(x"))[0] == "alive):"


def test_what_a_draft_says_of_a_copy_counts_beside_its_match(ask):
    said = [ask(FOUND, drafts=("read_text().split()", "name"), probabilities=(p, 0.1))[0] for p in (0.02, 0.5)]
    unwritten = ask(FOUND)[0]
    assert texts([*said, unwritten]) == ["read_text().split()"] * 3
    assert unwritten.probability < said[0].probability < said[1].probability


@pytest.mark.parametrize(
    "found",
    [
        [(4, "read_text()\n", 1)],  # too short
        [(9, "read_text()\n", 1), (9, "exists()\n", 1), (9, "is_dir()\n", 2)],  # they do not agree
    ],
)
def test_other_copies_come_last(ask, found):
    assert texts(ask(found))[:3] == ["read_bytes()", "name", "read_text()"]


@pytest.mark.parametrize(("third", "offered"), [(0.01, "exists()"), (0.5, "name")])
def test_a_copy_that_is_likelier_than_the_last_draft_shown_takes_its_place(ask, third, offered):
    found = [(5, "read_text()\n", 1), *((4, "exists()\n", n) for n in range(8))]
    drafts = ("read_bytes()", "stem", "name", "parent")
    said = ask(found, drafts=drafts, probabilities=(0.6, 0.01, third, 0.001))
    assert texts(said)[:3] == ["read_bytes()", "stem", offered]
    assert set(texts(said)) == {*drafts, "read_text()", "exists()"}


def test_inside_a_word_the_drafts_keep_their_places(ask):
    found = [(4, "d_text()\n", 1)]
    said = ask(found, drafts=("d_bytes()", "cent", "ady"), probabilities=(0.6, 0.01, 0.01), source=SOURCE + "rea")
    assert texts(said) == ["d_bytes()", "cent", "ady", "d_text()"]


def test_no_copy_takes_the_only_place(ask):
    said = ask([(4, "exists()\n", 1)], drafts=("name", "stem"), probabilities=(0.001, 0.001), most=1)
    assert texts(said)[0] == "name"


def test_longer_matches_go_before_frequent_ones(ask):
    found = [(9, "read_text()\n", 1), *((8, "exists()\n", n) for n in range(5))]
    assert texts(ask(found, drafts=()))[:2] == ["read_text()", "exists()"]


def test_a_draft_that_is_a_copy_is_offered_once_and_says_where_it_stands(ask):
    [first, second] = ask([(9, "name\n", 1)])
    assert (first.text, first.is_copy, second.text) == ("name", True, "read_bytes()")
    [best, other] = ask([(3, "name\n", 1)])
    assert (best.match, other.text, other.is_copy) == (None, "name", False)
    assert other.match == Match(length=3, count=1, places=1, files=1)


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
    long = Match(12, 2, 2, 2)
    assert Match(8, 2, 2, 1).probability(0.0) == pytest.approx(0.14, abs=0.01)
    assert Match(8, 2, 2, 1).probability(0.1) == pytest.approx(0.56, abs=0.01)
    copy = Completion("a", 0.7, is_copy=True, match=long)
    shown = calibrated([copy, Completion("b", 0.9), Completion("c", 0.9)], Settings(), WITH_NGRAMS[False])
    assert shown[0].probability == 0.7
    assert sum(one.probability for one in shown) <= 1 + 1e-9
    assert all(one.probability <= 0.7 for one in shown[1:])


def test_a_copy_behind_a_draft_is_said_to_be_right_less_often():
    drafts = [Completion("a", 0.5), Completion("b", 0.2, is_copy=True), Completion("c", 0.01, is_copy=True)]
    shown = calibrated(drafts, Settings(), WITH_NGRAMS[False])
    assert [one.probability for one in shown[1:]] == [pytest.approx(0.06), pytest.approx(0.003)]
