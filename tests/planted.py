"""Secrets that look real, put together when a test runs, so that no scanner finds one in this repository."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Mapping

ALPHANUMERIC = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
URL_SAFE = ALPHANUMERIC + "-_"
BASE64 = ALPHANUMERIC + "+/"
_KINDS = {"alnum": ALPHANUMERIC, "hex": HEX, "b32x": BASE32, "b64x": BASE64, "url": URL_SAFE}
_KINDS |= {"mixed": string.ascii_letters, "lower": string.ascii_lowercase, "digits": string.digits}

# What holds the secret, and a line of source. `«»` stands for the secret: kinds of letters with how many of them,
# and parts that are meant as they stand.
_LINES = """
database URL: DATABASE_URL = "postgres://shop:«alnum14»@db.internal:5432/shop"
password: DB_PASSWORD = '«hunter22 lower4 !»'
AWS id: AWS_ACCESS_KEY_ID = "«AKIA b32x16»"
AWS key: aws_secret_access_key="«b64x40»"
GitHub: headers = {"Authorization": "«ghp_ alnum36»"}
GitHub, fine-grained: client = Github('«github_pat_ alnum22 _ alnum59»')
Slack: app = App(bot="«xoxb- digits12 - digits13 - alnum24»")
Stripe: stripe.key = '«sk_live_ alnum24»'
Anthropic: client = Anthropic("«sk-ant-api03- url93 AA»")
OpenAI: OpenAI("«sk-proj- url74»")
Google: maps = Client(key="«AIza url35»")
JSON web token: cookie = "«eyJ url33 .eyJ url80 . url43»"
GitLab: git clone https://oauth2:«glpat- url20»@gitlab.com/a/b
Hugging Face: login("«hf_ mixed34»")
npm: //packages.example.org/:_auth=«npm_ alnum36»
generic key:     "api_key": "«hex40»",
framework's key: SECRET_KEY = 'a«alnum50»$'
header: curl -H "Authorization: Bearer «alnum40»" https://api
shell: export SERVICE_TOKEN=«hex32»
named and valued: {"name": "DB_PASSWORD", "value": "«hunter22 lower4 !»"}
keyword argument: connect(host='db', password='«hunter22 lower4 !»')
pass: {"user": "shop", "pass": "«alnum11 7x!Q»"}
pw: pw = "«alnum11 7x!Q»"
pwd: pwd: "«alnum11 7x!Q»"
name that ends in pass: db_pass = "«alnum11 7x!Q»"
pass of a person: db_pass = "«digits4 !Kestrel»"
pw of a person: pw: «digits4 !Kestrel»
capital name that ends in PASS: EMAIL_HOST_PASS = "«alnum11 7x!Q»"
connection string: cnn = "Server=db;User Id=shop;Password=«alnum11 7x!Q»;Timeout=3"
connection string with Pwd: cnn = "Server=db;Uid=shop;Pwd=«alnum11 7x!Q»;"
default of an environment variable: x = os.getenv("DB_PASSWORD", default="«alnum11 7x!Q»")
fallback: x = config.get("password", fallback="«alnum11 7x!Q»")
default of an option: @click.option("--password", default="«alnum11 7x!Q»")
field: password: str = Field(default="«alnum11 7x!Q»")
field without a name: api_token: str = Field("«q7 alnum14 4Z»")
secret string: password=SecretStr("«alnum11 7x!Q»")
f-string: password = f"«alnum11 7x!Q»"
or: password = os.environ.get("DB_PASSWORD") or "«alnum11 7x!Q»"
or in JavaScript: const password = process.env.DB_PASSWORD || "«alnum11 7x!Q»"
small letters without quotes: password=«alnum11 7x!Q»
export: export db_password=«alnum11 7x!Q»
comment: # log in with password=«alnum11 7x!Q»
YAML:   db_password: «alnum11 7x!Q»
authorization: headers["Authorization"] = "token «q7 alnum14 4Z»"
header of curl: -H 'Authorization: token «q7 alnum14 4Z»'
placeholder's word inside: password = "«Summer-Test-2 digits3 !»"
placeholder's word spelt: password = "«Passw0rd1 digits2 !»"
type: api_key: str | None = "«alnum32»"
"""


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

    def made(part: str) -> str:
        found = re.fullmatch(rf"({'|'.join(_KINDS)})(\d+)", part)
        return letters(_KINDS[found[1]], int(found[2]), seed) if found else part

    planted = {}
    for line in _LINES.strip().split("\n"):
        what, _, said = line.partition(": ")
        before, parts, after = re.split("[«»]", said)
        secret = "".join(map(made, parts.split(" ")))
        planted[what] = before + secret + after, secret
    return planted
