"""More shapes in which people commit secrets, in other files and services than `tests.secret_shapes`.

A line below is a name, then what a file says: `«kind»` stands for a value that is made up by a test, `¶` for the
end of a line. SHAPES are the name, the text before the value, the value, and the text after it.
"""

from __future__ import annotations

import base64
import random
import re
import string

_choose = random.Random(20261127)
_ALNUM = string.ascii_letters + string.digits
_SETS = {
    "alnum": _ALNUM,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "b64x": _ALNUM + "+/",
    "url": _ALNUM + "-_",
    "low": string.ascii_lowercase + string.digits,
    "UP": string.ascii_uppercase + string.digits,
    "digits": string.digits,
    "letters": string.ascii_lowercase,
    "signs": _ALNUM + "!@#%^*",
}
_WORDS = re.findall("[a-z]+", "anchor biscuit cedar dolphin ember falcon garnet hazel island juniper lemon marble")
_NAMES = re.findall(
    "[A-Za-z]+", "Barcelona Phoenix Madison charlie Liverpool Nirvana sunshine Jessica blink Mustang"
)


def _made(kind: str) -> str:
    """A value of a kind: `hex32`, or a person's password, or words."""
    letters, size = re.fullmatch(r"(b64x|[A-Za-z]+)(\d*)", kind).groups()  # type: ignore[union-attr]
    if kind == "person":
        return (
            _choose.choice(_NAMES)
            + _choose.choice(["!", "@", "#", "$", "_", ""])
            + str(_choose.randrange(10, 9999))
        )
    if kind == "words":
        return _choose.choice(["-", "_", "."]).join(_choose.sample(_WORDS, 4))
    if kind == "phrase":
        return " ".join(_choose.sample(_WORDS, 12))
    if kind == "uuid":
        return "-".join(_made(f"hex{length}") for length in (8, 4, 4, 4, 12))
    if kind == "basic":
        return base64.b64encode(f"svc:{_made('alnum18')}".encode()).decode()
    return "".join(_choose.choices(_SETS[letters], k=int(size)))


_LINES = """
cloudflare env: CF_API_TOKEN=«url40»
cloudflare global key header: -H "X-Auth-Key: «hex37»" \\
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
rabbit url: amqp://worker:«person»@rabbit:5672/
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
flask secret: app.secret_key = b'_5#y2L"F4Q8z\\n\\xec]/'
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
gmail app password: smtp.login("me@x.org", "«letters4» «letters4» «letters4» «letters4»")
gmail app glued: smtp_pass = "«letters16»"
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
stripe test php: \\Stripe\\Stripe::setApiKey('sk_test_«alnum24»');
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
    """One line of the list above; the last value of several is the secret one."""
    name, _, said = line.partition(": ")
    before, *values = re.split(r"(«\w+»)", said.replace("¶", "\n"))
    parts = [before, *(_made(one.replace("»", "").strip("«")) if one.startswith("«") else one for one in values)]
    last = max((i for i, one in enumerate(values, 1) if one.startswith("«")), default=0)
    return name, "".join(parts[:last]), parts[last], "".join(parts[last + 1 :]) + "\n"


SHAPES = [_shape(line) for line in _LINES.strip().split("\n")]
