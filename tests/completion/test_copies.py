"""What stands behind the text before the cursor elsewhere is offered as it stands there, and said to be a copy."""

from __future__ import annotations

from functools import partial

import pytest
from tokenizers import AddedToken

from ngram_builders.index.suffix_array import Occurrence, SearchedTexts, build_suffix_array, find_occurrences
from ngram_builders.token_space import with_boundaries
from spd_lsp.completion.context import build_context
from spd_lsp.completion.draft_text import DraftText
from spd_lsp.completion.offer import can_be_offered
from spd_lsp.completion.ranking import WITH_NGRAMS, Completion, Match, rank_candidates
from tests.completion.vocabularies import save_tokenizer

SOURCE = "def read(path):\n    rows = path."


@pytest.fixture
def ask(tokens):
    """A function from a source and places, as (length, text behind it, document), to drafts and copies."""

    def ask(found, drafts=("read_bytes()", "name"), source=SOURCE, healed=None, probabilities=(0.1, 0.03)):
        context = build_context(source, len(source), "python", 512, tokens.count, explicit=True)
        texts = DraftText(tokens, tokens.prompt(context.before, context.after), context)
        healed = texts.prompt.begun.decode() if healed is None else healed
        places = [Occurrence(n, document, tuple(tokens.encode(healed + text))) for n, text, document in found]
        said = [Completion(text, p) for text, p in zip(drafts, probabilities, strict=False)]
        fits = partial(can_be_offered, context=context)
        return rank_candidates(said, texts.continuations(places), WITH_NGRAMS, fits)

    return ask


def texts(completions):
    return [one.text for one in completions]


FOUND = [(12, "read_text().split()\n", 1), (12, "read_text().split()\n    return 1", 2), (12, "exists()\n", 3)]


def test_copies_and_drafts_stand_in_the_order_of_what_is_said_of_them(ask):
    offered = ask(FOUND)
    assert texts(offered) == ["read_text().split()", "read_bytes()", "exists()", "name"]
    assert [one.is_copy for one in offered] == [True, False, True, False]
    assert offered[0].match == Match(length=12, count=2, places=3, files=2)
    said = [one.probability for one in offered]
    assert said == sorted(said, reverse=True)


@pytest.mark.parametrize(("p", "first"), [(0.8, "):"), (0.1, "alive):")])
def test_a_copy_gives_way_to_a_draft_that_is_likelier(ask, p, first):
    found = [(12, "alive):\n", 1), (12, "alive):\n", 2)]
    assert texts(ask(found, drafts=("):",), probabilities=(p,), source="def f(x"))[0] == first


def test_what_a_draft_says_of_a_copy_counts_beside_its_match(ask):
    said = [ask(FOUND, drafts=("read_text().split()", "name"), probabilities=(p, 0.03))[0] for p in (0.05, 0.5)]
    unwritten = ask(FOUND)[0]
    assert texts([*said, unwritten]) == ["read_text().split()"] * 3
    assert unwritten.probability < said[0].probability < said[1].probability


def test_a_draft_is_no_less_likely_because_other_texts_stand_behind_a_short_match(ask):
    """The likeliest draft of a model stood once behind a line end, as did eighteen others: it was hidden."""
    others = [(1, f"other_{n}()\n", n) for n in range(18)]
    [alone] = ask([], drafts=("name",), probabilities=(0.6,))
    found = ask([(1, "name\n", 19), *others], drafts=("name",), probabilities=(0.6,))
    assert found[0].text == "name" and found[0].probability == alone.probability


def test_a_draft_that_is_a_copy_is_offered_once_and_says_where_it_stands(ask):
    [first, second] = ask([(9, "name\n", 1)])
    assert (first.text, first.is_copy, second.text) == ("name", False, "read_bytes()")
    assert (first.match, second.match) == (Match(length=9, count=1, places=1, files=1), None)


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


@pytest.mark.parametrize(
    ("begun", "copied"), [("", "z = kindle()\n        break"), ("z = ki", "ndle()"), ("z = ", "kindle()")]
)
@pytest.mark.parametrize("ends_at_lines", [False, True])
def test_a_copy_is_found_also_if_tokens_end_where_lines_do(tmp_path, tokens, begun, copied, ends_at_lines):
    if ends_at_lines:
        blanks = [AddedToken(" " * n, special=False, normalized=True) for n in (4, 8, 12)]
        tokens = save_tokenizer(tmp_path, specials=["<|endoftext|>"], added=blanks)
    known = "    f()\n    while quagga:\n        z = kindle()\n        break\n\nother = 1\n"
    texts = SearchedTexts(build_suffix_array([with_boundaries(tokens.encode(known), tokens.end_of_text)]))
    source = f"def f():\n    while quagga:\n        {begun}"
    context = build_context(source, len(source), "python", 512, tokens.count, explicit=True)
    prompt = tokens.prompt(context.before, context.after)
    found = find_occurrences([texts], prompt.copied_behind, 99)
    assert DraftText(tokens, prompt, context).continuations(found)[0][1] == copied
