"""Secrets that look real, put together when a test runs, so that no scanner finds one in this repository."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping

ALPHANUMERIC = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
URL_SAFE = ALPHANUMERIC + "-_"
BASE64 = ALPHANUMERIC + "+/"


def letters(kinds: str, length: int, seed: int = 0) -> str:
    """So many letters of these kinds, by chance but always the same ones."""
    return "".join(random.Random(f"{kinds}{length}{seed}").choices(kinds, k=length))


def private_key(lines: int = 6, seed: int = 0) -> str:
    """What a file with a private key says."""
    body = [letters(BASE64, 64, seed + line) for line in range(lines)] + [letters(BASE64, 22, seed) + "=="]
    mark = "-" * 5
    return "\n".join([f"{mark}BEGIN RSA PRIVATE KEY{mark}", *body, f"{mark}END RSA PRIVATE KEY{mark}"])


def lines(seed: int = 0) -> Mapping[str, tuple[str, str]]:
    """What holds the secret -> a line of source, and the secret in it."""
    database = letters(ALPHANUMERIC, 14, seed)
    password = "hunter" + "2" * 2 + letters(string.ascii_lowercase, 4, seed) + "!"
    key_id = "AK" + "IA" + letters(BASE32, 16, seed)
    key = letters(BASE64, 40, seed)
    github = "gh" + "p_" + letters(ALPHANUMERIC, 36, seed)
    fine_grained = "github" + "_pat_" + letters(ALPHANUMERIC, 22, seed) + "_" + letters(ALPHANUMERIC, 59, seed)
    slack = (
        "xox"
        + f"b-{letters(string.digits, 12, seed)}-{letters(string.digits, 13, seed)}-"
        + letters(ALPHANUMERIC, 24, seed)
    )
    stripe = "sk" + "_live_" + letters(ALPHANUMERIC, 24, seed)
    anthropic = "sk-" + "ant-api03-" + letters(URL_SAFE, 93, seed) + "AA"
    openai = "sk-" + "proj-" + letters(URL_SAFE, 74, seed)
    google = "AI" + "za" + letters(URL_SAFE, 35, seed)
    jwt = ".".join(
        (
            "ey" + "J" + letters(URL_SAFE, 33, seed),
            "ey" + "J" + letters(URL_SAFE, 80, seed),
            letters(URL_SAFE, 43, seed),
        )
    )
    gitlab = "gl" + "pat-" + letters(URL_SAFE, 20, seed)
    hugging = "hf" + "_" + letters(string.ascii_letters, 34, seed)
    npm = "np" + "m_" + letters(ALPHANUMERIC, 36, seed)
    generic = letters(HEX, 40, seed)
    session = letters(ALPHANUMERIC, 50, seed)
    bearer = letters(ALPHANUMERIC, 40, seed)
    return {
        "database URL": (f'DATABASE_URL = "postgres://shop:{database}@db.internal:5432/shop"', database),
        "password": (f"DB_{'PASS'}WORD = {password!r}", password),
        "AWS id": (f'AWS_ACCESS_KEY_ID = "{key_id}"', key_id),
        "AWS key": (f'aws_secret_{"access"}_key="{key}"', key),
        "GitHub": (f'headers = {{"Authorization": "{github}"}}', github),
        "GitHub, fine-grained": (f"client = Github('{fine_grained}')", fine_grained),
        "Slack": (f'app = App(bot="{slack}")', slack),
        "Stripe": (f"stripe.key = '{stripe}'", stripe),
        "Anthropic": (f'client = Anthropic("{anthropic}")', anthropic),
        "OpenAI": (f'OpenAI("{openai}")', openai),
        "Google": (f'maps = Client(key="{google}")', google),
        "JSON web token": (f'cookie = "{jwt}"', jwt),
        "GitLab": (f"git clone https://oauth2:{gitlab}@gitlab.com/a/b", gitlab),
        "Hugging Face": (f'login("{hugging}")', hugging),
        "npm": (f"//packages.example.org/:_auth={npm}", npm),
        "generic key": (f'    "api_{"key"}": "{generic}",', generic),
        "framework's key": (f"SECRET_{'KEY'} = 'a{session}$'", session),
        "header": (f'curl -H "Authorization: Bea{"rer"} {bearer}" https://api', bearer),
        "shell": (f"export SERVICE_{'TOKEN'}={letters(HEX, 32, seed)}", letters(HEX, 32, seed)),
        "named and valued": (f'{{"name": "DB_{"PASS"}WORD", "value": "{password}"}}', password),
        "keyword argument": (f"connect(host='db', {'pass'}word='{password}')", password),
        **_assigned(seed),
        "type": (
            f'{"api"}_key: str | None = "{letters(ALPHANUMERIC, 32, seed)}"',
            letters(ALPHANUMERIC, 32, seed),
        ),
    }


def _assigned(seed: int) -> Mapping[str, tuple[str, str]]:
    """Passwords and tokens as configuration and code assign them, beside the plain forms above."""
    value = letters(ALPHANUMERIC, 11, seed) + "7x" + "!Q"
    plain = "q7" + letters(ALPHANUMERIC, 14, seed) + "4Z"
    summer = f"Summer-Test-2{letters(string.digits, 3, seed)}!"
    spelt = f"{'Pass' + 'w0rd'}1{letters(string.digits, 2, seed)}!"
    bird = f"{letters(string.digits, 4, seed)}!Kestrel"  # nothing about it looks generated; no model guesses it
    word, name = "pass" + "word", "DB_PASS" + "WORD"
    return {
        "pass": (f'{{"user": "shop", "pass": "{value}"}}', value),
        "pw": (f'pw = "{value}"', value),
        "pwd": (f'pwd: "{value}"', value),
        "name that ends in pass": (f'db_pass = "{value}"', value),
        "pass of a person": (f'db_pass = "{bird}"', bird),
        "pw of a person": (f"pw: {bird}", bird),
        "capital name that ends in PASS": (f'EMAIL_HOST_PASS = "{value}"', value),
        "connection string": (f'cnn = "Server=db;User Id=shop;Pass{"word"}={value};Timeout=3"', value),
        "connection string with Pwd": (f'cnn = "Server=db;Uid=shop;Pwd={value};"', value),
        "default of an environment variable": (f'x = os.getenv("{name}", default="{value}")', value),
        "fallback": (f'x = config.get("{word}", fallback="{value}")', value),
        "default of an option": (f'@click.option("--{word}", default="{value}")', value),
        "field": (f'{word}: str = Field(default="{value}")', value),
        "field without a name": (f'api_token: str = Field("{plain}")', plain),
        "secret string": (f'{word}=SecretStr("{value}")', value),
        "f-string": (f'{word} = f"{value}"', value),
        "or": (f'{word} = os.environ.get("{name}") or "{value}"', value),
        "or in JavaScript": (f'const {word} = process.env.{name} || "{value}"', value),
        "small letters without quotes": (f"{word}={value}", value),
        "export": (f"export db_{word}={value}", value),
        "comment": (f"# log in with {word}={value}", value),
        "YAML": (f"  db_{word}: {value}", value),
        "authorization": (f'headers["Authorization"] = "token {plain}"', plain),
        "header of curl": (f"-H 'Authorization: to{'ken'} {plain}'", plain),
        "placeholder's word inside": (f'{word} = "{summer}"', summer),
        "placeholder's word spelt": (f'{word} = "{spelt}"', spelt),
    }
