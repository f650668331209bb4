"""What drafts may spell at a cursor: every text that can follow, with every family's tokens, and no other."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer, is_indented
from tests.completion.vocabularies import CUTS, SENTENCEPIECE, train_tokenizer
from tests.conftest import STARTER

SNIPPETS = {path.name: path.read_text(encoding="utf-8") for path in (Path(__file__).parent / "snippets").iterdir()}
SNIPPETS["queue.c with CRLF"] = SNIPPETS["queue.c"].replace("\n", "\r\n")
BLANKS = " \t\r\n"


@pytest.fixture(scope="module", params=["starter", *CUTS, SENTENCEPIECE])
def tokens(request, tmp_path_factory):
    """A tokenizer of each family's kind."""
    if request.param == "starter":
        return ModelTokenizer(STARTER)
    return train_tokenizer(tmp_path_factory.mktemp("tokenizer"), request.param, [*SNIPPETS.values()])


@pytest.fixture(scope="module")
def real_tokens(real_model):
    """The tokenizer of a model that people have."""
    return ModelTokenizer(real_model)


def excluded(tokens, text, at):
    """Where the tokens of a text may not follow what stands before a cursor in it; "" if they may."""
    prompt, whole = tokens.prompt(text[:at], ""), tokens.encode(text)
    if whole[: len(prompt.history)] != prompt.history:
        return f"{text[:at]!r}: {tokens.bytes_of(prompt.history)!r} is cut otherwise"
    written = ()
    for i in whole[len(prompt.history) :]:
        allowed = prompt.spelling.allowed(written)
        if allowed is not None and i not in allowed:
            behind = tokens.bytes_of(prompt.history)[-9:]
            return f"{text[:at]!r}: {tokens.bytes_of((*written, i))!r} behind {behind!r}"
        written = (*written, i)
        if len(tokens.bytes_of(written)) > len(prompt.spelling.healed):
            break
    return ""


def cursors(text):
    """The places in a text where a cursor can stand but those within an indentation."""
    return [at for at in range(1, len(text)) if not (text[at] in BLANKS and is_indented(text[:at]))]


def find_excluded(tokens, step, seed=0):
    """What is excluded at every `step`-th cursor of all languages."""
    places = [(text, at) for text in SNIPPETS.values() for at in cursors(text)]
    random.Random(seed).shuffle(places)
    return [fault for text, at in places[::step] if (fault := excluded(tokens, text, at))]


def test_the_text_that_follows_a_cursor_may_follow_it(tokens):
    assert find_excluded(tokens, step=40) == []


@pytest.mark.slow
def test_with_models_that_people_have_too(real_tokens):
    assert find_excluded(real_tokens, step=1) == []


def test_drafts_spell_what_is_typed(tokens):
    """Whatever they go on with: at every step some id may follow, and they begin with what was taken back."""
    rng = random.Random(0)
    for text in SNIPPETS.values():
        for at in rng.sample(cursors(text), 12):
            prompt = tokens.prompt(text[:at], "")
            assert (tokens.bytes_of(prompt.history) + prompt.spelling.healed).strip() == text[:at].strip().encode()
            written = ()
            while (allowed := prompt.spelling.allowed(written)) is not None and len(written) < 64:
                written = (*written, int(rng.choice(allowed)))
            spelled, healed = tokens.bytes_of(written), prompt.spelling.healed
            assert spelled.startswith(healed) or tokens.ends(written[-1])
            if is_indented(text[:at]):
                assert spelled[len(healed) : len(healed) + 1] not in (b" ", b"\t", b"\n", b"\r")


@pytest.mark.parametrize(("kind", "left"), [("Qwen", b" "), ("with the indentation at a line's end", b"")])
def test_what_is_certain_costs_no_token_of_a_draft(kind, left, tmp_path):
    """Of an indentation all but what may be part of the next token stays in the prompt."""
    tokens = train_tokenizer(tmp_path, kind, [*SNIPPETS.values()])
    prompt = tokens.prompt("def f(x):\n    y = 1\n        ", "")
    assert prompt.spelling.healed == left


def test_no_blank_follows_an_indentation_that_a_person_put_there(tokens):
    def may_indent(before):
        return excluded(tokens, before + "    x", len(before)) == ""

    assert not may_indent("def f(x):\n    y = 1\n    ")
    assert may_indent("def f(x):\n    if x:\n    ")
    assert may_indent("x = 1\n")
    assert may_indent("    x = 1 ")


@pytest.mark.parametrize("opening", ["if x:", "f(", "x = [", "if (x) {"])
def test_behind_a_line_that_opens_a_block_a_repeated_indentation_may_grow(opening):
    tokens = ModelTokenizer(STARTER)
    text = f"def f():\n    {opening}\n        "
    assert excluded(tokens, text + "y", len(text) - 4) == ""
    assert excluded(tokens, text + "    y", len(text)) != ""
