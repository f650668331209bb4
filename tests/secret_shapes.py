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
    "HEX": "0123456789ABCDEF",
    "b32x": string.ascii_uppercase + "234567",
    "b64x": _ALNUM + "+/",
    "url": _ALNUM + "-_",
    "low": string.ascii_lowercase + string.digits,
    "UP": string.ascii_uppercase + string.digits,
    "digits": string.digits,
    "lower": string.ascii_lowercase,
    "signs": _ALNUM + "!@#%^*",
    "django": string.ascii_lowercase + string.digits + "!@#%^&*(-_=+)",
    "quoted": _ALNUM + "%",
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
        case "uuid":
            return "-".join(_made(f"hex{length}") for length in (8, 4, 4, 4, 12))
        case "jwt":
            claims = {"sub": _made("alnum10"), "iat": _choose.randrange(10**9)}
            return ".".join((_encoded({"alg": "HS256", "typ": "JWT"}), _encoded(claims), _made("url43")))
        case "basic":
            return base64.b64encode(f"svc:{_made('alnum18')}".encode()).decode()
        case "b64signs":
            return base64.b64encode(_made("signs14").encode()).decode()
        case "sshkey":
            return base64.b64encode(f"-----BEGIN OPENSSH PRIVATE KEY-----{_made('alnum100')}".encode()).decode()
    return kind


_FAMILIAR = r"""
aws key id env: export AWS_ACCESS_KEY_ID=«AKIA b32x16»
aws secret env: export AWS_SECRET_ACCESS_KEY=«b64x40»
aws session token: session_token = "«FwoGZXIvYXdz b64x160 ==»"
aws secret yaml: aws:¶  secretKey: «b64x40»
aws secret java: new BasicAWSCredentials("AKIA«b32x16»", "«b64x40»");
aws positional js: AWS.config.update({ accessKeyId: "AKIA«b32x16»", secretAccessKey: "«b64x40»" });
gcp service acct key: {"type": "service_account", "private_key_id": "«hex40»"}
gcp private key: {"private_key": "-----BEGIN PRIVATE KEY-----\n«b64x64 \n b64x64»\n-----END PRIVATE KEY-----\n"}
azure storage conn: var c = "AccountName=acme;AccountKey=«b64x86 ==»;EndpointSuffix=core.windows.net";
azure servicebus: {"ServiceBus": "Endpoint=sb://acme.net/;SharedAccessKeyName=Root;SharedAccessKey=«b64x43 =»"}
azure client secret: az login --service-principal -u 8f2e -p «alnum3 8Q~ url34»
azure ad secret py: CLIENT_SECRET = "«alnum3 8Q~ url34»"
azure cosmos: const key = "«b64x86 ==»";
mssql conn: "Server=tcp:acme.database.windows.net;User ID=sa;Password=«pw»;Encrypt=True;"
jdbc url pw: spring.datasource.url=jdbc:mysql://db/app?user=app&password=«signs14»
spring password: spring.datasource.password=«pw»
java props keystore: server.ssl.key-store-password=«pw»
postgres url: DATABASE_URL = "postgres://app:«signs14»@db.internal/app"
mongodb srv: mongoose.connect("mongodb+srv://admin:«pw»@cluster0.ab1cd.mongodb.net/x");
redis url: REDIS_URL=redis://:«alnum24»@cache:6379/0
ftp url: curl ftp://deploy:«pw»@ftp.acme.com/x
git url token: git clone https://oauth2:«glpat- url20»@gitlab.com/a/b.git
github pat: env:¶  GH_TOKEN: «ghp_ alnum36»
github fine pat: TOKEN = "«github_pat_ alnum22 _ alnum59»"
gitlab pat: token = "«glpat- url20»"
gitlab runner: [[runners]]¶  token = "«glrt- url20»"
slack bot: slack = WebClient("xoxb-«digits12 - digits12 - alnum24»")
slack webhook: HOOK = "https://hooks.slack.com/services/«T UP8 /B UP10 / alnum24»"
discord webhook: const u = "https://discord.com/api/webhooks/«digits18 / url68»";
discord bot: client.run("«M alnum23 . alnum6 . url27»")
teams webhook: W = "https://acme.webhook.office.com/webhookb2/«uuid /IncomingWebhook/ hex32»"
stripe live: Stripe.api_key = "«sk_live_ alnum24»"
stripe whsec: endpoint_secret = "«whsec_ alnum32»"
openai proj: client = OpenAI(api_key="«sk-proj- url48 T3BlbkFJ url48»")
anthropic: const a = new Anthropic({ apiKey: "«sk-ant-api03- url93 AA»" });
huggingface: login("«hf_ alnum34»")
groq: g = Groq("«gsk_ alnum52»")
cohere: co = cohere.Client("«alnum40»")
pinecone uuid: pinecone.init(api_key="«uuid»")
sendgrid: sg = SendGridAPIClient("«SG. url22 . url43»")
mailchimp: mailchimp.setConfig({ apiKey: "«hex32 -us14»" });
twilio token: client = Client("AC«hex32»", "«hex32»")
npm token npmrc: //registry.example.org/:_authToken=«npm_ alnum36»
npmrc auth: _auth=«b64x40»
pypi in yaml: TWINE_PASSWORD: «pypi-AgEIcHlwaS5vcmc url150»
netrc: machine api.acme.com login bob password «pw»
docker login: docker login -u bob -p «signs14» ghcr.io
docker hub pat: echo dckr_pat_«url27» | docker login
kube token: users:¶- user:¶    token: «jwt»
k8s secret data: kind: Secret¶data:¶  password: «b64signs»
k8s env value: - name: DB_PASSWORD¶  value: "«signs14»"
helm values: postgresql:¶  auth:¶    postgresPassword: «alnum18»
compose env map: environment:¶  MYSQL_ROOT_PASSWORD: «words»
dockerfile env: ENV DB_PASS=«pw»
tfvars like tf: variable "db_password" {¶  default = "«pw»"¶}
tf resource: resource "aws_db_instance" "x" {¶  password = "«alnum20»"¶}
ansible ssh pass: ansible_ssh_pass: "«words»"
jwt literal: const token = "«jwt»";
bearer curl: curl -H "Authorization: Bearer «jwt»" https://x
basic header: Authorization: "Basic «basic»",
x-auth-token curl: curl -H "X-Auth-Token: «hex40»" https://x
x-vault-token: curl -H "X-Vault-Token: «hvs. url90»"
django secret: SECRET_KEY = '«django-insecure- django50»'
django secret bare: SECRET_KEY = '«django50»'
rails secret base: secret_key_base: «hex128»
rails master: config.master_key = "«hex32»"
wp salt: define('AUTH_KEY', '«marks64»');
wp db: define( 'DB_PASSWORD', '«signs14»' );
psycopg positional: conn = psycopg2.connect("dbname=app user=app password=«signs14»")
py connect kw: conn = pymysql.connect(host="db", user="app", passwd="«pw»")
test login positional: client.login("bob", "«pw»")
selenium: driver.find_element(By.ID, "password").send_keys("«pw»")
json pw: {"user": "bob", "password": "«words»"}
json pw words: {"db": {"pwd": "«signs14»"}}
ini spaces: [db]¶pass = «signs14»
xml pw: <property name="hibernate.connection.password">«pw»</property>
web.config: <add key="ApiSecret" value="«alnum32»" />
app.config pw: <add key="DbPassword" value="«pw»" />
gradle kts: keyPassword = "«words»"
gradle props: sonatypePassword=«pw»
openssh pem: -----BEGIN OPENSSH PRIVATE KEY-----¶«b3BlbnNzaC1rZ b64x70 ¶ b64x70»¶-----END OPENSSH PRIVATE KEY-----
pem js concat: const k = "-----BEGIN EC PRIVATE KEY-----\n" + ¶ "«b64x64 \n" + ¶ " b64x64»\n";
age key: AGE-SECRET-KEY-1«UP58»
ssh key base64 one line: ssh_key: «sshkey»
eth env: PRIVATE_KEY=0x«hex64»
mnemonic: const mnemonic = "«phrase»";
newrelic: license_key = «hex36 NRAL»
sentry dsn: sentry_sdk.init("https://«hex32»@o1.ingest.sentry.io/2")
heroku: HEROKU_API_KEY=«uuid»
digitalocean: token = "«dop_v1_ hex64»"
notion: new Client({ auth: "«secret_ alnum43»" });
shopify: token = "«shpat_ hex32»"
facebook: graph = GraphAPI("«EAAC alnum160»")
twitter bearer: tweepy.Client("«AAAAAAAAAAAAAAAAAAAAA quoted80»")
algolia: algoliasearch("APPID12345", "«hex32»");
mapbox sk: mapboxgl.accessToken = "«sk.eyJ1Ijoi alnum60 . alnum22»";
okta: OktaClient({"token": "«00 url40»"})
jenkins: curl -u admin:11«hex32» http://jenkins/
sshpass quoted: sshpass -p '«signs14»' ssh root@h
mysql cli: mysql -uroot -p«signs14» app
openssl pass: openssl enc -aes-256-cbc -k «words»
htpasswd cmd: htpasswd -b -c f bob «pw»
powershell: ConvertTo-SecureString "«pw»" -AsPlainText -Force
go struct: cfg := Config{Password: "«pw»"}
go []byte: var signingKey = []byte("«alnum32»")
rust: const API_TOKEN: &str = "«alnum40»";
swift: let clientSecret = "«alnum32»"
c define: #define WIFI_PASSWORD "«pw»"
arduino wifi begin: WiFi.begin("home", "«pw»");
aes key hex: AES_KEY = bytes.fromhex("«hex64»")
sql create user: CREATE USER app WITH PASSWORD '«pw»';
sql identified: CREATE USER 'a'@'%' IDENTIFIED BY '«pw»';
comment pw: # staging password is «pw»
md pw: Login: admin / password: «pw»
smtp login: server.login("bot@acme.com", "«pw»")
ssh paramiko: ssh.connect("h", username="root", password="«words»")
otp secret: pyotp.TOTP("«b32x32»")
os.environ set: os.environ["API_TOKEN"] = "«alnum32»"
getenv default: KEY = os.getenv("STRIPE_KEY", "«alnum32»")
yaml list creds: credentials:¶  - user: bob¶    pass: «pw»
"""
_FURTHER = r"""
cloudflare env: CF_API_TOKEN=«url40»
cloudflare global key header: -H "X-Auth-Key: «hex37»" \
datadog yaml: api_key: «hex32»
datadog js: new DatadogClient({ appKey: '«hex40»' })
linode tf: provider "linode" {¶  token = "«hex64»"¶}
hetzner: hcloud_token = "«alnum64»"
vultr: VULTR_API_KEY=«UP36»
scaleway: secret_key: «uuid»
ovh py: client = ovh.Client(application_secret='«alnum32»', consumer_key=ck)
backblaze: b2 authorize-account 0012 K001«alnum27»
wasabi rclone: secret_access_key = «b64x40»
minio compose: MINIO_ROOT_PASSWORD: «words»
minio js: new Minio.Client({ endPoint: 's3', secretKey: '«words»' })
rabbit url: amqp://worker:«pw»@rabbit:5672/
rabbit compose: - RABBITMQ_DEFAULT_PASS=«person»
kafka jaas: sasl.jaas.config=x.PlainLoginModule required username="app" password="«person»";
kafka py: producer = Producer({'sasl.password': '«alnum24»'})
elastic curl: curl -u elastic:«person» http://localhost:9200
elastic py: Elasticsearch(hosts, basic_auth=("elastic", "«person»"))
elastic tuple old: http_auth=('elastic', '«alnum20»')
snowflake py: snowflake.connector.connect(user='ETL', password='«person»', account='x')
dbt profile: pass: "«person»"
airflow conn: AIRFLOW_CONN_PG=postgresql://air:«alnum12»@pg/air
airflow fernet: fernet_key = «url43»=
superset: SECRET_KEY = '«b64x42»'
flask config: app.config['SECRET_KEY'] = '«words»'
flask secret: app.secret_key = b'«_5#y2L"F4Q8z\n\xec]/»'
fastapi jwt: JWT_SECRET: str = "«words»"
express session: app.use(session({ secret: '«words»', resave: false }))
jsonwebtoken sign: const t = jwt.sign(payload, '«person»')
jwt decode py: jwt.decode(tok, "«alnum24»", algorithms=["HS256"])
passport google: clientSecret: '«url24»',
nextauth: NEXTAUTH_SECRET="«b64x44»"
firebase js: apiKey: "AIza«url35»",
supabase anon: createClient(url, 'eyJhbGciOiJIUzI1NiJ9.eyJ«url60».«url43»')
pusher ruby: Pusher.secret = '«hex20»'
algolia admin: ALGOLIA_ADMIN_KEY=«hex32»
twilio ruby: @client = Twilio::REST::Client.new 'AC«hex32»', '«hex32»'
vonage: vonage = Client(key="«hex8»", secret="«alnum16»")
plivo go: client, _ := plivo.NewClient("MA«UP18»", "«b64x40»", nil)
mailjet php: $mj = new Client('«hex32»', '«hex32»');
postmark: X-Postmark-Server-Token: «uuid»
sparkpost: SparkPost sp = new SparkPost("«hex40»");
ses smtp: EMAIL_HOST_PASSWORD = "B«b64x43»"
nodemailer: auth: { user: 'me@x.org', pass: '«person»' }
gmail app password: smtp.login("me@x.org", "«lower4» «lower4» «lower4» «lower4»")
gmail app glued: smtp_pass = "«lower16»"
telegram bot: bot = telebot.TeleBot("«digits10»:AA«url33»")
slack signing: SLACK_SIGNING_SECRET = "«hex32»"
matrix: access_token: syt_«b64x28»
zoom jwt: API_SECRET='«alnum36»'
jira basic: jira = JIRA(server, basic_auth=('bot', '«alnum24»'))
confluence curl: curl -u bot@x.org:ATATT3x«url60» https://x
trello: https://api.trello.com/1/boards?key=«hex32»&token=«hex64»
asana: client = asana.Client.access_token('0/«hex32»')
youtrack: Authorization: Bearer perm:«b64x30».«b64x20»
openweather: url = "https://api.openweathermap.org/data?q=x&appid=«hex32»"
google maps html: <script src="https://maps.googleapis.com/maps/api/js?key=AIza«url35»"></script>
tmdb kt: const val TMDB = "«hex32»"
etherscan: etherscan: { apiKey: "«UP34»" }
infura url: https://mainnet.infura.io/v3/«hex32»
alchemy: new Alchemy({ apiKey: "«url32»" })
hardhat accounts: accounts: ["0x«hex64»"]
web3 account: w3.eth.account.from_key("«hex64»")
solana array wallet: MNEMONIC="«phrase»"
bip seed yaml: seed_phrase: «phrase»
binance: Client("«alnum64»", "«alnum64»")
stripe test php: \Stripe\Stripe::setApiKey('sk_test_«alnum24»');
razorpay: razorpay.Client(auth=("rzp_live_«alnum14»", "«alnum24»"))
paypal: PAYPAL_CLIENT_SECRET: E«url79»
braintree: private_key="«hex32»"
adyen: X-API-Key: AQE«b64x60»
azure func: https://x.azurewebsites.net/api/f?code=«b64x54»==
azure sas: ?sv=2021-06-08&se=2025-01-01&sig=«alnum42»%3D
azure devops: git clone https://anything:«low52»@dev.azure.com/o/p
azure signalr: Endpoint=https://x.service.signalr.net;AccessKey=«b64x43»=;Version=1.0;
ado net: Data Source=srv;Initial Catalog=db;User Id=sa;Pwd=«person»
odbc py: pyodbc.connect('DRIVER={SQL};UID=sa;PWD=«person»')
oracle sqlplus: sqlplus scott/«person»@orcl
cx oracle: cx_Oracle.connect("scott", "«person»", dsn)
pgpassword: PGPASSWORD=«words» psql -h db -U app
psql uri go: sql.Open("postgres", "host=db user=app password=«alnum12» sslmode=disable")
gorm dsn: dsn := "app:«person»@tcp(db:3306)/x?parseTime=True"
knex: connection: { host: 'db', user: 'u', password: '«person»' }
typeorm: "password": "«alnum10»",
prisma: DATABASE_URL="mysql://u:«person»@localhost:3306/x"
rails database: production:¶  password: «person»
sequelize: new Sequelize('db', 'root', '«person»', { dialect: 'mysql' })
jdbc java: DriverManager.getConnection(url, "app", "«person»");
hikari: ds.setPassword("«words»");
spring yaml: datasource:¶    password: «words»
quarkus: quarkus.datasource.password=«words»
tomcat users: <user username="admin" password="«words»" roles="manager-gui"/>
maven settings: <server><id>x</id><password>«words»</password></server>
nuget config: <add key="ClearTextPassword" value="«low52»" />
php array: 'password' => '«person»',
laravel env: MAIL_PASSWORD=«words»
drupal hash: $settings['hash_salt'] = '«url74»';
mysqli: $c = mysqli_connect("localhost", "root", "«person»", "shop");
pdo: new PDO($dsn, 'root', '«person»');
ftp php: ftp_login($c, "deploy", "«person»");
paramiko pos: ssh.connect(host, 22, "root", "«person»")
fabric: env.password = '«words»'
ansible vault var: ansible_become_pass: «person»
ansible inventory: web1 ansible_host=10.0.0.1 ansible_password=«person»
chef: default['mysql']['root_password'] = '«words»'
vagrant: config.ssh.password = "«words»"
dockerfile arg: ARG NPM_TOKEN=npm_«alnum36»
k8s stringData: stringData:¶  redis-password: «words»
k8s docker auth: {"auths":{"ghcr.io":{"auth":"«basic»"}}}
github action with: with:¶    api-token: «hex40»
travis: - secure: "«b64x88»"
jenkins groovy: withEnv(['TOKEN=«hex34»'])
wpa: psk="«words»"
esp idf: #define EXAMPLE_ESP_WIFI_PASS      "«words»"
ssid array: const char* password = "«words»";
swift keychain: let apiToken = "«alnum32»"
android strings: <string name="api_secret">«alnum20»</string>
plist: <key>ClientSecret</key>¶<string>«alnum28»</string>
r script: Sys.setenv(AWS_SECRET_ACCESS_KEY = "«b64x40»")
matlab: conn = database('db','sa','«person»');
perl dbi: DBI->connect("dbi:Pg:dbname=x", "app", "«person»");
net credential: new NetworkCredential("svc", "«person»")
powershell cred: $pw = '«person»'
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
