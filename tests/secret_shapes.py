"""Shapes in which people commit secrets: a name, the text before, a value made up when a test runs, the rest."""

from __future__ import annotations

import base64
import json
import random
import string

rnd = random.Random(20261126)
A = string.ascii_letters + string.digits


def r(n: int, a: str = A) -> str:
    return "".join(rnd.choice(a) for _ in range(n))


hexd = "0123456789abcdef"
b64 = A + "+/"
U = string.ascii_uppercase + string.digits
b32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
low = string.ascii_lowercase + string.digits


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def jwt() -> str:
    e = encoded
    return (
        e({"alg": "HS256", "typ": "JWT"})
        + "."
        + e({"sub": r(10), "iat": rnd.randrange(10**9)})
        + "."
        + r(43, A + "-_")
    )


def pw() -> str:
    return (
        rnd.choice(
            [
                "Tr0ub4dor",
                "Winter",
                "hunter",
                "Dragon",
                "Zebra",
                "qwErty",
                "P4ssw0rd",
                "Sommer",
                "monkey",
                "Kestrel",
            ]
        )
        + rnd.choice("!@#%^&*")
        + str(rnd.randrange(10, 9999))
    )


def pw2() -> str:
    return r(14, A + "!@#%^*")


words = ["maple", "otter", "granite", "velvet", "copper", "lantern", "harbor", "saffron", "quartz", "willow"]


def phrase() -> str:
    return "-".join(rnd.sample(words, 4))


SHAPES: list[tuple[str, str, str, str]] = []


def add(name: str, before: str, value: str, after: str = "\n") -> None:
    SHAPES.append((name, before, value, after))


add("aws key id env", "export AWS_ACCESS_KEY_ID=", "AKIA" + r(16, b32))
add("aws secret env", "export AWS_SECRET_ACCESS_KEY=", r(40, b64))
add("aws session token", 'session_token = "', "FwoGZXIvYXdz" + r(160, b64) + "==", '"\n')
add("aws secret yaml", "aws:\n  secretKey: ", r(40, b64))
add("aws secret java", 'new BasicAWSCredentials("AKIA' + r(16, b32) + '", "', r(40, b64), '");\n')
add(
    "aws positional js",
    'AWS.config.update({ accessKeyId: "AKIA' + r(16, b32) + '", secretAccessKey: "',
    r(40, b64),
    '" });\n',
)
add("gcp service acct key", '{"type": "service_account", "private_key_id": "', r(40, hexd), '"}\n')
add(
    "gcp service private key",
    '{"private_key": "-----BEGIN PRIVATE KEY-----\\n',
    r(64, b64) + "\\n" + r(64, b64),
    '\\n-----END PRIVATE KEY-----\\n"}\n',
)
add(
    "azure storage conn",
    'var c = "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=',
    r(86, b64) + "==",
    ';EndpointSuffix=core.windows.net";\n',
)
add(
    "azure servicebus",
    '{"ServiceBus": "Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=',
    r(43, b64) + "=",
    '"}\n',
)
add("azure client secret", "az login --service-principal -u 8f2e -p ", r(3) + "8Q~" + r(34, A + "-_.~"))
add("azure ad secret py", 'CLIENT_SECRET = "', r(3) + "8Q~" + r(34, A + "-_.~"), '"\n')
add("azure cosmos", 'const key = "', r(86, b64) + "==", '";\n')
add("mssql conn", '"Server=tcp:acme.database.windows.net;User ID=sa;Password=', pw(), ';Encrypt=True;"\n')
add("jdbc url pw", "spring.datasource.url=jdbc:mysql://db/app?user=app&password=", pw2())
add("spring password", "spring.datasource.password=", pw())
add("java props keystore", "server.ssl.key-store-password=", pw())
add(
    "postgres url",
    'DATABASE_URL = "postgres://app:',
    pw2().replace("@", "x").replace("#", "y"),
    '@db.internal/app"\n',
)
add(
    "mongodb srv",
    'mongoose.connect("mongodb+srv://admin:',
    pw().replace("@", "x").replace("#", "y"),
    '@cluster0.ab1cd.mongodb.net/x");\n',
)
add("redis url", "REDIS_URL=redis://:", r(24), "@cache:6379/0\n")
add("ftp url", "curl ftp://deploy:", pw().replace("@", "x").replace("#", "y"), "@ftp.acme.com/x\n")
add("git url token", "git clone https://oauth2:", "glpat-" + r(20, A + "-_"), "@gitlab.com/a/b.git\n")
add("github pat", "env:\n  GH_TOKEN: ", "ghp_" + r(36))
add("github fine pat", 'TOKEN = "', "github_pat_" + r(22) + "_" + r(59), '"\n')
add("gitlab pat", 'token = "', "glpat-" + r(20, A + "-_"), '"\n')
add("gitlab runner", '[[runners]]\n  token = "', "glrt-" + r(20, A + "-_"), '"\n')
add("slack bot", 'slack = WebClient("xoxb-', f"{r(12, string.digits)}-{r(12, string.digits)}-" + r(24), '")\n')
add(
    "slack webhook",
    'HOOK = "https://hooks.slack.com/services/',
    "T" + r(8, U) + "/B" + r(10, U) + "/" + r(24),
    '"\n',
)
add(
    "discord webhook",
    'const u = "https://discord.com/api/webhooks/',
    r(18, string.digits) + "/" + r(68, A + "-_"),
    '";\n',
)
add("discord bot", 'client.run("', "M" + r(23) + "." + r(6) + "." + r(27, A + "-_"), '")\n')
add(
    "teams webhook",
    'W = "https://acme.webhook.office.com/webhookb2/',
    f"{r(8, hexd)}-{r(4, hexd)}-{r(4, hexd)}-{r(4, hexd)}-{r(12, hexd)}/IncomingWebhook/" + r(32, hexd),
    '"\n',
)
add("stripe live", 'Stripe.api_key = "', "sk_live_" + r(24), '"\n')
add("stripe whsec", 'endpoint_secret = "', "whsec_" + r(32), '"\n')
add(
    "openai proj", 'client = OpenAI(api_key="', "sk-proj-" + r(48, A + "-_") + "T3BlbkFJ" + r(48, A + "-_"), '")\n'
)
add("anthropic", 'const a = new Anthropic({ apiKey: "', "sk-ant-api03-" + r(93, A + "-_") + "AA", '" });\n')
add("huggingface", 'login("', "hf_" + r(34, string.ascii_letters), '")\n')
add("groq", 'g = Groq("', "gsk_" + r(52), '")\n')
add("cohere", 'co = cohere.Client("', r(40), '")\n')
add(
    "pinecone uuid",
    'pinecone.init(api_key="',
    f"{r(8, hexd)}-{r(4, hexd)}-{r(4, hexd)}-{r(4, hexd)}-{r(12, hexd)}",
    '")\n',
)
add("sendgrid", 'sg = SendGridAPIClient("', "SG." + r(22, A + "-_") + "." + r(43, A + "-_"), '")\n')
add("mailchimp", 'mailchimp.setConfig({ apiKey: "', r(32, hexd) + "-us14", '" });\n')
add("twilio token", 'client = Client("AC' + r(32, hexd) + '", "', r(32, hexd), '")\n')
add("npm token npmrc", "//registry.example.org/:_authToken=", "npm_" + r(36))
add("npmrc auth", "_auth=", r(40, b64))
add("pypi in yaml", "TWINE_PASSWORD: ", "pypi-AgEIcHlwaS5vcmc" + r(150, A + "-_"))
add("netrc", "machine api.acme.com login bob password ", pw())
add("docker login", "docker login -u bob -p ", pw2(), " ghcr.io\n")
add("docker hub pat", "echo dckr_pat_", r(27, A + "-_"), " | docker login\n")
add("kube token", "users:\n- user:\n    token: ", jwt())
add("k8s secret data", "kind: Secret\ndata:\n  password: ", base64.b64encode(pw2().encode()).decode())
add("k8s env value", '- name: DB_PASSWORD\n  value: "', pw2(), '"\n')
add("helm values", "postgresql:\n  auth:\n    postgresPassword: ", r(18))
add("compose env map", "environment:\n  MYSQL_ROOT_PASSWORD: ", phrase())
add("dockerfile env", "ENV DB_PASS=", pw())
add("tfvars like tf", 'variable "db_password" {\n  default = "', pw(), '"\n}\n')
add("tf resource", 'resource "aws_db_instance" "x" {\n  password = "', r(20), '"\n}\n')
add("ansible ssh pass", 'ansible_ssh_pass: "', phrase(), '"\n')
add("jwt literal", 'const token = "', jwt(), '";\n')
add("bearer curl", 'curl -H "Authorization: Bearer ', jwt(), '" https://x\n')
add("basic header", 'Authorization: "Basic ', base64.b64encode(f"admin:{r(20)}".encode()).decode(), '",\n')
add("x-auth-token curl", 'curl -H "X-Auth-Token: ', r(40, hexd), '" https://x\n')
add("x-vault-token", 'curl -H "X-Vault-Token: ', "hvs." + r(90, A + "-_"), '"\n')
add("django secret", "SECRET_KEY = '", "django-insecure-" + r(50, low + "!@#$%^&*(-_=+)"), "'\n")
add("django secret bare", "SECRET_KEY = '", r(50, low + "!@#%^&*(-_=+)"), "'\n")
add("rails secret base", "secret_key_base: ", r(128, hexd))
add("rails master", 'config.master_key = "', r(32, hexd), '"\n')
add("wp salt", "define('AUTH_KEY', '", r(64, A + "!@#%^&*()-_[]{}<>~+=,.;:/?|"), "');\n")
add("wp db", "define( 'DB_PASSWORD', '", pw2(), "' );\n")
add(
    "psycopg positional", 'conn = psycopg2.connect("dbname=app user=app password=', pw2().replace("%", "x"), '")\n'
)
add("py connect kw", 'conn = pymysql.connect(host="db", user="app", passwd="', pw(), '")\n')
add("test login positional", 'client.login("bob", "', pw(), '")\n')
add("selenium", 'driver.find_element(By.ID, "password").send_keys("', pw(), '")\n')
add("json pw", '{"user": "bob", "password": "', phrase(), '"}\n')
add("json pw words", '{"db": {"pwd": "', pw2(), '"}}\n')
add("ini spaces", "[db]\npass = ", pw2())
add("xml pw", '<property name="hibernate.connection.password">', pw(), "</property>\n")
add("web.config", '<add key="ApiSecret" value="', r(32), '" />\n')
add("app.config pw", '<add key="DbPassword" value="', pw(), '" />\n')
add("gradle kts", 'keyPassword = "', phrase(), '"\n')
add("gradle props", "sonatypePassword=", pw())
add(
    "openssh pem",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n",
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ" + r(64, b64) + "\n" + r(70, b64),
    "\n-----END OPENSSH PRIVATE KEY-----\n",
)
add(
    "pem js concat",
    'const k = "-----BEGIN EC PRIVATE KEY-----\\n" +\n  "',
    r(64, b64) + '\\n" +\n  "' + r(64, b64),
    '\\n";\n',
)
add("age key", "AGE-SECRET-KEY-1", r(58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"))
add(
    "ssh key base64 one line",
    "ssh_key: ",
    base64.b64encode(("-----BEGIN OPENSSH PRIVATE KEY-----" + r(100)).encode()).decode(),
)
add("eth env", "PRIVATE_KEY=0x", r(64, hexd))
add(
    "mnemonic",
    'const mnemonic = "',
    " ".join(rnd.sample([*words, "alpha", "ocean", "tiger", "robot"], 12)),
    '";\n',
)
add("newrelic", "license_key = ", r(36, hexd) + "NRAL")
add("sentry dsn", 'sentry_sdk.init("https://', r(32, hexd), '@o1.ingest.sentry.io/2")\n')
add("heroku", "HEROKU_API_KEY=", f"{r(8, hexd)}-{r(4, hexd)}-{r(4, hexd)}-{r(4, hexd)}-{r(12, hexd)}")
add("digitalocean", 'token = "', "dop_v1_" + r(64, hexd), '"\n')
add("notion", 'new Client({ auth: "', "secret_" + r(43), '" });\n')
add("shopify", 'token = "', "shpat_" + r(32, hexd), '"\n')
add("facebook", 'graph = GraphAPI("', "EAAC" + r(160), '")\n')
add("twitter bearer", 'tweepy.Client("', "AAAAAAAAAAAAAAAAAAAAA" + r(80, A + "%"), '")\n')
add("algolia", 'algoliasearch("APPID12345", "', r(32, hexd), '");\n')
add("mapbox sk", 'mapboxgl.accessToken = "', "sk.eyJ1Ijoi" + r(60) + "." + r(22), '";\n')
add("okta", 'OktaClient({"token": "', "00" + r(40, A + "-_"), '"})\n')
add("jenkins", "curl -u admin:11", r(32, hexd), " http://jenkins/\n")
add("sshpass quoted", "sshpass -p '", pw2(), "' ssh root@h\n")
add("mysql cli", "mysql -uroot -p", pw2(), " app\n")
add("openssl pass", "openssl enc -aes-256-cbc -k ", phrase(), "\n")
add("htpasswd cmd", "htpasswd -b -c f bob ", pw(), "\n")
add("powershell", 'ConvertTo-SecureString "', pw(), '" -AsPlainText -Force\n')
add("go struct", 'cfg := Config{Password: "', pw(), '"}\n')
add("go []byte", 'var signingKey = []byte("', r(32), '")\n')
add("rust", 'const API_TOKEN: &str = "', r(40), '";\n')
add("swift", 'let clientSecret = "', r(32), '"\n')
add("c define", '#define WIFI_PASSWORD "', pw(), '"\n')
add("arduino wifi begin", 'WiFi.begin("home", "', pw(), '");\n')
add("aes key hex", 'AES_KEY = bytes.fromhex("', r(64, hexd), '")\n')
add("sql create user", "CREATE USER app WITH PASSWORD '", pw(), "';\n")
add("sql identified", "CREATE USER 'a'@'%' IDENTIFIED BY '", pw(), "';\n")
add("comment pw", "# staging password is ", pw())
add("md pw", "Login: admin / password: ", pw())
add("smtp login", 'server.login("bot@acme.com", "', pw(), '")\n')
add("ssh paramiko", 'ssh.connect("h", username="root", password="', phrase(), '")\n')
add("otp secret", 'pyotp.TOTP("', r(32, b32), '")\n')
add("os.environ set", 'os.environ["API_TOKEN"] = "', r(32), '"\n')
add("getenv default", 'KEY = os.getenv("STRIPE_KEY", "', r(32), '")\n')
add("yaml list creds", "credentials:\n  - user: bob\n    pass: ", pw())
