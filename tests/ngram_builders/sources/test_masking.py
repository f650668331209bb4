"""Lines with secrets are masked; lines of code stay; hostile text costs no more than other text."""

from __future__ import annotations

import pytest

from ngram_builders.sources import masking
from ngram_builders.sources.filters import decode_source
from ngram_builders.sources.masking import MARK, find_masked_lines, find_secret_lines, find_secrets, mask
from tests.planted import ALPHANUMERIC, BASE64, HEX, letters, lines, private_key


@pytest.mark.parametrize("what", lines())
@pytest.mark.parametrize("seed", range(4))
def test_a_line_with_a_secret_is_masked_and_those_around_it_stay(what: str, seed: int) -> None:
    line, secret = lines(seed)[what]
    assert secret in line
    for above, below in (("import os", "x = 1"), ("# Ägypten 😀", "")):
        assert mask(f"{above}\n{line}\n{below}") == f"{above}\n{MARK}\n{below}"
    assert any(secret in line[one.start : one.end] for one in find_secrets(line))


ORDINARY = """
password = os.environ["DB_PASSWORD"]
password = "changeme"
password = "<password>"
password = f"{user}-{number}1"
password: str = getpass.getpass("Password: ")
"password": "${DB_PASSWORD1}",
token = "your-api-token-1"
api_key = config["api_key_v2"]
PASSWORD_HASHERS = ["pbkdf2_sha256"]
password_hash="sha256$1"
url = "postgres://user:password@localhost/db"
url = f"postgres://{user}:{password}@{host}/db"
url = "http://localhost:8000/a@b"
ID = "123e4567-e89b-12d3-a456-426614174000"
digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
"integrity": "sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrsQ+LFTGHVxVjcXPs17LhbZVGedAJv8XZ1tvj5FvSg==",
checkpoint = "meta-models/Muse-Spark-Open-816B-A42B"
def test_the_quick_brown_fox_jumps_over_2_lazy_dogs_in_the_kitchen():
accessTokenExpiresInSeconds = getV2AccessTokenFromTheServer()
AWS_KEY = "AKIAIOSFODNN7EXAMPLE"
GITHUB = "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
TOKEN_TYPE = "Bearer"
headers["Authorization"] = f"Bearer {token}"
secret_name = "prod/my-app-2/database"
next_token = tokens[i + 1]
raise ValueError("expected a token of 32 letters, found none")
""".strip().splitlines()


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_lines_are_not_masked(line: str) -> None:
    assert mask(line) == line


def test_an_icon_and_a_lock_file_are_not_masked() -> None:
    icon = f'ICON = "data:image/png;base64,{letters(BASE64, 400)}=="'
    lock = f'  resolved "https://registry.yarnpkg.com/a/-/a-1.0.0.tgz#{letters(HEX, 40)}"'
    assert mask(f"{icon}\n{lock}\n") == f"{icon}\n{lock}\n"


WRAPPED = {
    "bare": lambda key: key,
    "literal": lambda key: f'KEY = """{key}"""',
    "lines of literals": lambda key: "\n".join(f'    "{line}\\n"' for line in key.split("\n")),
    "comments": lambda key: "\n".join(f"# {line}" for line in key.split("\n")),
    "one line": lambda key: "KEY = '" + key.replace("\n", "\\n") + "'",
    "half pasted": lambda key: key.rpartition("\n")[0],
    "encrypted": lambda key: key.replace("\n", "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123\n\n", 1),
}


@pytest.mark.parametrize("wrap", WRAPPED)
def test_a_private_key_is_masked_whole_in_any_wrapping(wrap: str) -> None:
    key = private_key()
    text = "import os\n" + WRAPPED[wrap](key) + "\ndef after():\n    return 1\n"
    masked = mask(text)
    assert not any(line in masked for line in key.split("\n") if len(line) > 30)
    assert masked.startswith("import os\n") and masked.endswith("\ndef after():\n    return 1\n")
    assert masked.count("\n") == text.count("\n")


def test_text_that_only_mentions_a_private_key_masks_no_code() -> None:
    mark = "-" * 5
    text = (
        f'BEGIN = "{mark}BEGIN PRIVATE KEY{mark}"\nreturn\n\ndef check(key):\n    return key.startswith(BEGIN)\n'
    )
    assert mask(text).endswith("\nreturn\n\ndef check(key):\n    return key.startswith(BEGIN)\n")


def test_a_text_without_secrets_is_the_same_object() -> None:
    text = "\n".join(ORDINARY)
    assert mask(text) is text
    assert find_masked_lines(text) == []


def test_masked_lines_are_reported_and_masking_again_changes_nothing() -> None:
    line, _ = lines()["password"]
    text = f"a\n{line}\nb\n{line}"
    assert find_masked_lines(mask(text)) == [2, 4]
    assert find_secret_lines(text) == {2: "value of a password", 4: "value of a password"}
    assert mask(mask(text)) == mask(text)


def test_random_secrets_without_a_name_are_found() -> None:
    missed = sum(mask(f'f("{letters(BASE64, 40, seed)}")') != MARK for seed in range(200))
    assert missed < 30  # one of seven may have a run that looks like a word, or a slash too many
    assert mask(f'f("{letters(ALPHANUMERIC, 10)}")') != MARK


@pytest.mark.parametrize(
    "begin",
    [
        "pass" + "word = (",
        '"pass' + 'word":',
        "pass" + "word: str =",
        "PASS" + "WORD = \\",
        "db_pw =",
    ],
)
def test_a_value_on_the_next_line_is_masked(begin: str) -> None:
    value = letters(ALPHANUMERIC, 11) + "7x!Q"
    assert value not in mask(f'x = 1\n{begin}\n    "{value}",\n)\n')


def test_a_default_on_the_line_below_the_name_is_masked() -> None:
    value = letters(ALPHANUMERIC, 11) + "7x!Q"
    assert value not in mask(f'@click.option(\n    "--pass{"word"}",\n    default="{value}",\n)\n')


def test_a_list_of_secrets_is_no_source_and_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    value = letters(ALPHANUMERIC, 11) + "7x!Q"
    found: list[str] = []
    find = masking.find_named_values
    monkeypatch.setattr(masking, "find_named_values", lambda text: found.append(text) or find(text))
    text = f"pwd = '{value}'\n" * 40_000
    assert decode_source(text.encode(), "a.py") == ("", "secret")
    assert len(found) < 2_000
    few = f"pwd = '{value}'\n" * 900 + "x = 1\n"
    assert decode_source(few.encode(), "a.py")[0].endswith("\nx = 1\n")


def test_of_a_list_of_lines_that_name_secrets_nothing_is_left_whether_they_hold_them_or_not():
    line = "password = ask('password')\n"
    assert mask(line * 100) == line * 100
    assert mask(line * 10_000) == ""
