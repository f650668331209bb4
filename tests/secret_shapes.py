"""Shapes in which people commit secrets: a name, the text before, a value made up when a test runs, and the rest.

A line below is a name, then what a file says. `«kinds»` stands for the secret: kinds of letters with how many of
them, and words that are meant as they stand. Of several it is the last one. `¶` stands for the end of a line.
"""

from __future__ import annotations

import base64
import json
import random
import re
import string

_choose = random.Random(20261127)
_ALNUM = string.ascii_letters + string.digits
_SETS = {
    "alnum": _ALNUM,
    "hex": "0123456789abcdef",
    "b32x": string.ascii_uppercase + "234567",
    "b64x": _ALNUM + "+/",
    "url": _ALNUM + "-_",
    "UP": string.ascii_uppercase + string.digits,
    "digits": string.digits,
    "lower": string.ascii_lowercase,
    "signs": _ALNUM + "!@#%^*",
    "django": string.ascii_lowercase + string.digits + "!@#%^&*(-_=+)",
    "marks": _ALNUM + "!@#%^&*()-_[]{}<>~+=,.;:/?|",
}
_WORDS = re.findall(r"\w+", "anchor biscuit cedar dolphin ember falcon garnet hazel island juniper lemon marble")
_NAMES = re.findall(r"\w+", "Barcelona Phoenix Madison charlie Liverpool Nirvana sunshine Jessica blink Mustang")
_BEGUN = re.findall(r"\w+", "Tr0ub4dor Winter hunter Dragon Zebra qwErty P4ssw0rd Sommer monkey Kestrel")


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _made(kind: str) -> str:
    """A value of a kind, such as `hex32`, or the kind itself if there is none of that name."""
    if of_letters := re.fullmatch(rf"({'|'.join(_SETS)})(\d+)", kind):
        return "".join(_choose.choices(_SETS[of_letters[1]], k=int(of_letters[2])))
    match kind:
        case "person":
            return _choose.choice(_NAMES) + _choose.choice("!@#$_ ").strip() + str(_choose.randrange(10, 9999))
        case "pw":
            return _choose.choice(_BEGUN) + _choose.choice("!%^&*") + str(_choose.randrange(10, 9999))
        case "words":
            return _choose.choice("-_.").join(_choose.sample(_WORDS, 4))
        case "phrase":
            return " ".join(_choose.sample(_WORDS, 12))
        case "jwt":
            claims = {"sub": _made("alnum10"), "iat": _choose.randrange(10**9)}
            return ".".join((_encoded({"alg": "HS256", "typ": "JWT"}), _encoded(claims), _made("url43")))
        case "basic":
            return base64.b64encode(f"svc:{_made('alnum18')}".encode()).decode()
        case "sshkey":
            return base64.b64encode(f"-----BEGIN OPENSSH PRIVATE KEY-----{_made('alnum100')}".encode()).decode()
    return kind


_FAMILIAR = r"""
aws key id env: export AWS_ACCESS_KEY_ID=«AKIA b32x16»
gcp private key: {"private_key": "-----BEGIN PRIVATE KEY-----\n«b64x64 \n b64x64»\n-----END PRIVATE KEY-----\n"}
azure storage conn: var c = "AccountName=acme;AccountKey=«b64x86 ==»;EndpointSuffix=core.windows.net";
azure client secret: az login --service-principal -u 8f2e -p «alnum3 8Q~ url34»
mssql conn: "Server=tcp:acme.database.windows.net;User ID=sa;Password=«pw»;Encrypt=True;"
spring password: spring.datasource.password=«pw»
java props keystore: server.ssl.key-store-password=«pw»
postgres url: DATABASE_URL = "postgres://app:«signs14»@db.internal/app"
mongodb srv: mongoose.connect("mongodb+srv://admin:«pw»@cluster0.ab1cd.mongodb.net/x");
redis url: REDIS_URL=redis://:«alnum24»@cache:6379/0
ftp url: curl ftp://deploy:«pw»@ftp.acme.com/x
github pat: env:¶  GH_TOKEN: «ghp_ alnum36»
slack webhook: HOOK = "https://hooks.slack.com/services/«T UP8 /B UP10 / alnum24»"
stripe live: Stripe.api_key = "«sk_live_ alnum24»"
twilio token: client = Client("AC«hex32»", "«hex32»")
netrc: machine api.acme.com login bob password «pw»
docker login: docker login -u bob -p «signs14» ghcr.io
docker hub pat: echo dckr_pat_«url27» | docker login
k8s env value: - name: DB_PASSWORD¶  value: "«signs14»"
compose env map: environment:¶  MYSQL_ROOT_PASSWORD: «words»
dockerfile env: ENV DB_PASS=«pw»
tfvars like tf: variable "db_password" {¶  default = "«pw»"¶}
ansible ssh pass: ansible_ssh_pass: "«words»"
jwt literal: const token = "«jwt»";
bearer curl: curl -H "Authorization: Bearer «jwt»" https://x
x-auth-token curl: curl -H "X-Auth-Token: «hex40»" https://x
django secret: SECRET_KEY = '«django-insecure- django50»'
django secret bare: SECRET_KEY = '«django50»'
wp salt: define('AUTH_KEY', '«marks64»');
wp db: define( 'DB_PASSWORD', '«signs14»' );
py connect kw: conn = pymysql.connect(host="db", user="app", passwd="«pw»")
test login positional: client.login("bob", "«pw»")
selenium: driver.find_element(By.ID, "password").send_keys("«pw»")
json pw: {"user": "bob", "password": "«words»"}
gradle kts: keyPassword = "«words»"
openssh pem: -----BEGIN OPENSSH PRIVATE KEY-----¶«b3BlbnNzaC1rZ b64x70 ¶ b64x70»¶-----END OPENSSH PRIVATE KEY-----
pem js concat: const k = "-----BEGIN EC PRIVATE KEY-----\n" + ¶ "«b64x64 \n" + ¶ " b64x64»\n";
age key: AGE-SECRET-KEY-1«UP58»
ssh key base64 one line: ssh_key: «sshkey»
mnemonic: const mnemonic = "«phrase»";
sentry dsn: sentry_sdk.init("https://«hex32»@o1.ingest.sentry.io/2")
htpasswd cmd: htpasswd -b -c f bob «pw»
powershell: ConvertTo-SecureString "«pw»" -AsPlainText -Force
arduino wifi begin: WiFi.begin("home", "«pw»");
comment pw: # staging password is «pw»
smtp login: server.login("bot@acme.com", "«pw»")
otp secret: pyotp.TOTP("«b32x32»")
"""
_FURTHER = r"""
minio compose: MINIO_ROOT_PASSWORD: «words»
minio js: new Minio.Client({ endPoint: 's3', secretKey: '«words»' })
rabbit url: amqp://worker:«pw»@rabbit:5672/
rabbit compose: - RABBITMQ_DEFAULT_PASS=«person»
kafka jaas: sasl.jaas.config=x.PlainLoginModule required username="app" password="«person»";
elastic curl: curl -u elastic:«words» http://localhost:9200
elastic py: Elasticsearch(hosts, basic_auth=("elastic", "«person»"))
snowflake py: snowflake.connector.connect(user='ETL', password='«person»', account='x')
dbt profile: pass: "«person»"
airflow conn: AIRFLOW_CONN_PG=postgresql://air:«alnum12»@pg/air
flask config: app.config['SECRET_KEY'] = '«words»'
flask secret: app.secret_key = b'«_5#y2L"F4Q8z\n\xec]/»'
fastapi jwt: JWT_SECRET: str = "«words»"
express session: app.use(session({ secret: '«words»', resave: false }))
jsonwebtoken sign: const t = jwt.sign(payload, '«person»')
supabase anon: createClient(url, 'eyJhbGciOiJIUzI1NiJ9.eyJ«url60».«url43»')
twilio ruby: @client = Twilio::REST::Client.new 'AC«hex32»', '«hex32»'
gmail app password: smtp.login("me@x.org", "«lower4» «lower4» «lower4» «lower4»")
telegram bot: bot = telebot.TeleBot("«digits10»:AA«url33»")
trello: https://api.trello.com/1/boards?key=«hex32»&token=«hex64»
hardhat accounts: accounts: ["0x«hex64»"]
solana array wallet: MNEMONIC="«phrase»"
bip seed yaml: seed_phrase: «phrase»
azure sas: ?sv=2021-06-08&se=2025-01-01&sig=«alnum42»%3D
cx oracle: cx_Oracle.connect("scott", "«person»", dsn)
pgpassword: PGPASSWORD=«words» psql -h db -U app
knex: connection: { host: 'db', user: 'u', password: '«person»' }
typeorm: "password": "«alnum10»",
prisma: DATABASE_URL="mysql://u:«person»@localhost:3306/x"
hikari: ds.setPassword("«words»");
mysqli: $c = mysqli_connect("localhost", "root", "«person»", "shop");
k8s docker auth: {"auths":{"ghcr.io":{"auth":"«basic»"}}}
travis: - secure: "«b64x88»"
android strings: <string name="api_secret">«alnum20»</string>
plist: <key>ClientSecret</key>¶<string>«alnum28»</string>
perl dbi: DBI->connect("dbi:Pg:dbname=x", "app", "«person»");
wpa: psk="«words»"
openssl pass: openssl enc -aes-256-cbc -k «words»
"""


def _shape(line: str) -> tuple[str, str, str, str]:
    """One line of the lists above."""
    name, _, said = line.partition(": ")
    *parts, after = re.split("«(.*?)»", said)
    parts = ["".join(map(_made, part.split(" "))) if n % 2 else part for n, part in enumerate(parts)]
    before, secret, after = (part.replace("¶", "\n") for part in ("".join(parts[:-1]), parts[-1], after))
    return name, before, secret, f"{after}\n"


FAMILIAR = [_shape(line) for line in _FAMILIAR.strip().split("\n")]
SHAPES = [*FAMILIAR, *(_shape(line) for line in _FURTHER.strip().split("\n"))]
