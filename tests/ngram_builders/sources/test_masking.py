"""Lines with secrets are masked; lines of code stay; hostile text costs no more than other text."""

from __future__ import annotations

import pytest

from ngram_builders.sources import masking
from ngram_builders.sources.filters import decode_source
from ngram_builders.sources.masking import MARK, find_secrets, is_inside_secret, mask
from tests.planted import ALPHANUMERIC, BASE32, BASE64, HEX, letters, lines, private_key
from tests.secret_shapes import SHAPES


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
ID = "00000000-0000-0000-c000-000000000046"
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


@pytest.mark.parametrize(
    "line",
    [
        f'ICON = "data:image/png;base64,{letters(BASE64, 400)}=="',
        f'  resolved "https://registry.yarnpkg.com/a/-/a-1.0.0.tgz#{letters(HEX, 40)}"',
        f'digest = "{letters(HEX, 64)}"',
        f"  f({letters(ALPHANUMERIC, 32)!r})  # {letters(ALPHANUMERIC, 16)}",
    ],
)
def test_what_looks_random_is_masked_whatever_it_is(line: str) -> None:
    assert mask(line) == MARK


def test_random_letters_are_found_and_names_are_not() -> None:
    for kinds, missed in ((ALPHANUMERIC, 4), (BASE64, 10), (BASE32, 10)):
        assert sum(mask(f"x = '{letters(kinds, 20, seed)}'") != MARK for seed in range(400)) <= missed
    names = "getElementsByTagNameNS Utf8JsonStreamReader test_sha256_of_x86_64_wheels huggingface/huggingface_hub"
    for name in [*names.split(), "XMLHttpRequestEventTarget", "abcdefghijklmnopqrstuvwxyz", "0123456789ABCDEF"]:
        assert mask(name) == name


@pytest.mark.parametrize(("name", "before", "secret", "after"), SHAPES, ids=[shape[0] for shape in SHAPES])
def test_of_the_shapes_in_which_people_commit_secrets_none_is_left(
    name: str, before: str, secret: str, after: str
) -> None:
    masked = mask(f"import os\n{before}{secret}{after}x = 1\n")
    assert masked.startswith("import os\n") and masked.endswith("\nx = 1\n")
    size = min(10, len(secret))
    assert not any(secret[start : start + size] in masked for start in range(len(secret) - size + 1))


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


def test_masking_again_changes_nothing() -> None:
    line, _ = lines()["password"]
    text = f"a\n{line}\nb\n{line}"
    assert mask(text).split("\n") == ["a", MARK, "b", MARK]
    assert mask(mask(text)) == mask(text)


@pytest.mark.parametrize(
    "begin", ["pass" + "word = (", '"pass' + 'word":', "pass" + "word: str =", "PASS" + "WORD = \\", "db_pw ="]
)
def test_a_value_on_the_next_line_is_masked(begin: str) -> None:
    value = letters(ALPHANUMERIC, 11) + "7x!Q"
    assert value not in mask(f'x = 1\n{begin}\n    "{value}",\n)\n')
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


INSIDE = """
password = "
db_pass = "hun
password: str = "
{"password": "x
const password = process.env.X || "
<add key="DbPassword" value="
- name: DB_PASSWORD¶  value: "
variable "db_password" {¶  default = "
password = (¶    "
connect(user="a", password='
CREATE USER a IDENTIFIED BY '
ds.setPassword("
DB_PASSWORD=hun
""".strip().split("\n")
BESIDE = """
password = ¤
password = os.environ["
password = "abc"
password_field = "
token = "
sort(key="
print("password: ¤
raise ValueError("no password in ¤
check(password, "
x = "
""".strip("\n").split("\n")


@pytest.mark.parametrize("typed", INSIDE)
def test_a_cursor_in_the_value_of_a_password_is_inside_a_secret(typed: str) -> None:
    assert is_inside_secret("import os\n" + typed.replace("¶", "\n"))


@pytest.mark.parametrize("typed", BESIDE)
def test_a_cursor_beside_it_is_not(typed: str) -> None:
    assert not is_inside_secret("import os\n" + typed.removesuffix("¤"))


def test_a_password_in_an_address_may_hold_the_sign_that_ends_it():
    line = 'url = "amqp://worker:blink@6020@rabbit:5672/"'
    assert [line[one.start : one.end] for one in find_secrets(line)] == ["blink@6020"]
