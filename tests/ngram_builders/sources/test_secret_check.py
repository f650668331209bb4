"""A draft with a secret is withheld, whether it makes one up, ends one, or copies a piece; others are not."""

from __future__ import annotations

import pytest

from ngram_builders.sources.masking import secret_check
from tests.planted import lines, private_key

AFTER = "\nprint(x)\n"


@pytest.mark.parametrize("what", lines())
def test_a_new_secret_is_withheld_wherever_the_cursor_stands_in_it(what: str) -> None:
    line, secret = lines()[what]
    start = line.index(secret)
    for typed in (0, start // 2, start, start + 1):
        tells = secret_check("import os\n" + line[:typed], AFTER)
        assert tells(line[typed:])
        assert tells(line[typed:] + "\nx = 1")
    rest = line[start + len(secret) :]
    assert secret_check(line[:start], rest + AFTER)(secret), "what closes it stands behind the cursor"


@pytest.mark.parametrize("what", lines())
def test_a_piece_of_a_secret_that_stands_in_the_prompt_is_withheld_too(what: str) -> None:
    line, secret = lines()[what]
    for before, after in ((line + "\nx = ", AFTER), ("x = ", "\n" + line + AFTER)):
        tells = secret_check(before, after)
        assert tells(secret[2:14]) and tells(f'"{secret[3:]}') and tells(secret)
        assert not tells("os.environ['DATABASE_URL']") and not tells("1")
    assert secret_check(f"{line}\nx = {secret[:7]}", AFTER)(secret[7:])


def test_a_private_key_is_not_gone_on_with() -> None:
    key = private_key().split("\n")
    tells = secret_check("KEY = '''" + "\n".join(key[:3]) + "\n", AFTER)
    assert tells(key[3]) and tells(key[2][10:40])
    assert not secret_check("\n".join(key) + "\nx = ", AFTER)("load(PRIVATE, KEY)")


@pytest.mark.parametrize(
    "draft", ["Registry", " = os.environ['PASSWORD']", "password=password)", "get_token(1)", ""]
)
def test_other_drafts_are_not_withheld(draft: str) -> None:
    assert not secret_check("import os\npassword", AFTER)(draft)


def test_what_someone_typed_himself_does_not_take_the_drafts_behind_it() -> None:
    line, _ = lines()["password"]
    assert not secret_check(line, AFTER)("  # of the shop")
    assert not secret_check(line + "\nconnect(", AFTER)("DB_PASSWORD)")


@pytest.mark.parametrize("what", ["GitHub", "Anthropic", "AWS id", "Stripe", "Slack"])
def test_a_key_that_is_cut_off_is_withheld(what: str) -> None:
    line, secret = lines()[what]
    start = line.index(secret)
    assert secret_check(line[:start], AFTER)(secret[: len(secret) - 6])
