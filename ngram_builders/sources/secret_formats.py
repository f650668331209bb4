"""The formats of known services' keys, as their issuers or the scanners gitleaks and detect-secrets publish them.

A row: the service and the thing; literals of which every match contains one, so that most texts can be skipped; a
pattern of the whole. No pattern matches words of ordinary code, and every repeat has an upper bound, so that
hostile text costs no more than other text.
"""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """The format of one service's keys."""

    name: str
    anchors: tuple[str, ...]
    pattern: str


FORMATS = tuple(
    Format(name, tuple(anchors.split()), pattern)
    for name, anchors, pattern in (
        # Clouds and code hosts.
        ("AWS access key id", "AKIA ASIA ABIA ACCA", r"A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])"),
        ("Google API key", "AIza", r"AIza[\w-]{35}"),
        ("Google OAuth client secret", "GOCSPX-", r"GOCSPX-[\w-]{28}"),
        ("Google OAuth access token", "ya29.", r"ya29\.[\w-]{20,400}"),
        ("Azure storage account key", "AccountKey=", r"AccountKey=[A-Za-z0-9+/]{86}=="),
        ("Azure shared access key", "SharedAccessKey=", r"SharedAccessKey=[A-Za-z0-9+/]{43}="),
        ("Microsoft Entra client secret", "Q~", r"[\w.~]{3}\dQ~[\w.~-]{31,34}"),
        ("Alibaba Cloud access key id", "LTAI", r"LTAI[A-Za-z0-9]{17,21}(?![A-Za-z0-9])"),
        ("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
        ("Fly.io token", "fo1_ FlyV1", r"fo1_[\w-]{43}|FlyV1 fm\d_[A-Za-z0-9+/=,_-]{50,500}"),
        ("Heroku token", "HRKU-", r"HRKU-[\w-]{30,80}"),
        ("Yandex Cloud key", "AQVN y0_", r"AQVN[\w-]{35,38}(?![\w-])|y0_[\w-]{50,80}"),
        ("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36,255}"),
        ("GitHub fine-grained token", "github_pat_", r"github_pat_\w{22,255}"),
        (
            "GitLab token",
            "glpat- gldt- glrt- glsoat- glptt- glcbt- glimt- glft- glagent- gloas- GR1348941",
            r"gl(?:pat|dt|rt|soat|ptt|cbt|imt|ft|agent|oas)-[\w.-]{20,300}|GR1348941[\w-]{20}",
        ),
        ("Bitbucket or Atlassian token", "ATATT3 ATBB ATCTT3", r"AT(?:ATT3|CTT3|BB)[\w=-]{24,250}"),
        ("Sourcegraph token", "sgp_", r"sgp_(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40}"),
        # Package registries and builds.
        ("npm token", "npm_", r"npm_[A-Za-z0-9]{36}"),
        ("PyPI token", "pypi-", r"pypi-Ag[\w-]{50,250}"),
        ("RubyGems key", "rubygems_", r"rubygems_[0-9a-f]{48}"),
        ("NuGet key", "oy2", r"oy2[a-z0-9]{43}(?![A-Za-z0-9])"),
        ("Docker Hub token", "dckr_pat_ dckr_oat_", r"dckr_[po]at_[\w-]{27,60}"),
        ("JFrog key", "AKCp cmVmdGtu", r"AKCp[A-Za-z0-9]{60,80}|cmVmdGtu[A-Za-z0-9]{50,70}"),
        ("CircleCI token", "CCIPAT_ CCIPRJ_", r"CCIP(?:AT|RJ)_[A-Za-z0-9]{22}_[0-9a-f]{40}"),
        ("Databricks token", "dapi", r"dapi[0-9a-f]{32}(?:-\d)?(?![A-Za-z0-9])"),
        ("HashiCorp Vault token", "hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{24,300}"),
        ("HCP Terraform token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,70}"),
        ("Pulumi token", "pul-", r"pul-[0-9a-f]{40}"),
        ("Doppler token", "dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{40,90}"),
        ("Infisical or 1Password service token", "ops_eyJ st.", r"ops_eyJ[\w+/=-]{50,500}|st\.[0-9a-f.]{60,140}"),
        ("age secret key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
        # Model providers.
        ("Anthropic key", "sk-ant-", r"sk-ant-[\w-]{20,200}"),
        ("OpenAI key", "T3BlbkFJ", r"sk-[\w-]{20,100}T3BlbkFJ[\w-]{20,100}"),
        ("OpenAI project key", "sk-proj- sk-svcacct- sk-admin-", r"sk-(?:proj|svcacct|admin)-[\w-]{20,200}"),
        ("OpenRouter key", "sk-or-v1-", r"sk-or-v1-[0-9a-f]{64}"),
        (
            "key of a service that follows OpenAI",
            "sk-",
            r"sk-(?=[a-z]{0,40}\d|[a-z0-9]{0,40}[A-Z])[A-Za-z0-9]{32,64}",
        ),
        ("Hugging Face token", "hf_ api_org_", r"hf_[A-Za-z0-9]{34,40}(?!\w)|api_org_[A-Za-z0-9]{34}"),
        ("Groq key", "gsk_", r"gsk_[A-Za-z0-9]{52}"),
        ("Replicate token", "r8_", r"r8_[A-Za-z0-9]{37}(?!\w)"),
        ("Perplexity key", "pplx-", r"pplx-[A-Za-z0-9]{48,64}"),
        ("xAI key", "xai-", r"xai-[A-Za-z0-9]{70,90}"),
        ("Weights & Biases key", "wandb_v1_", r"wandb_v1_[\w-]{40,120}"),
        # Mail, chat and phone.
        (
            "Slack token",
            "xoxb- xoxp- xoxa- xoxr- xoxs- xoxe xoxc- xoxd-",
            r"xox[abcdeprs](?:\.xox[bp])?-[\w%-]{10,250}",
        ),
        ("Slack app token", "xapp-", r"xapp-\d-[A-Z0-9]{5,20}-\d{5,20}-[a-z0-9]{20,100}"),
        (
            "webhook",
            "hooks.slack.com/ /api/webhooks/ webhook.office.com",
            r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/]{40,80}"
            r"|discord(?:app)?\.com/api/webhooks/\d{15,22}/[\w-]{50,90}"
            r"|webhook\.office\.com/webhookb2/[0-9a-f@-]{70,80}/IncomingWebhook/[0-9a-f/-]{60,80}",
        ),
        ("Discord bot token", ".", r"[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,38}(?![\w.-])"),
        ("Telegram bot token", ":AA", r"\d{8,10}:AA[\w-]{33}(?![\w-])"),
        ("SendGrid key", "SG.", r"SG\.[\w-]{20,24}\.[\w-]{39,50}"),
        ("Mailchimp key", "-us", r"[0-9a-f]{32}-us\d{1,2}(?!\d)"),
        ("Mailgun key", "key-", r"key-[0-9a-f]{32}(?![0-9a-f])"),
        ("Brevo key", "xkeysib- xsmtpsib-", r"x(?:key|smtp)sib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),
        ("Twilio key", "SK", r"SK[0-9a-f]{32}(?![0-9a-f])"),
        # Payments.
        ("Stripe key", "sk_live_ rk_live_ sk_test_ rk_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{10,250}"),
        ("Stripe webhook secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,80}"),
        ("Square token", "sq0atp- sq0csp- EAAA", r"sq0(?:atp|csp)-[\w-]{22,60}|EAAA[\w+=-]{60}(?![\w+=-])"),
        ("PayPal or Braintree token", "access_token$", r"access_token\$production\$[0-9a-z]{16}\$[0-9a-f]{32}"),
        ("Shopify token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
        ("EasyPost key", "EZAK EZTK", r"EZ[AT]K[A-Za-z0-9]{54}"),
        ("Flutterwave key", "FLWSECK", r"FLWSECK(?:_TEST)?-[0-9a-h]{12,40}-X"),
        # Monitoring and work tools.
        ("New Relic key", "NRAK- NRII- NRSP-", r"NR(?:AK|II|SP)-[A-Za-z0-9-]{26,40}"),
        ("Grafana token", "glsa_ glc_", r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}|glc_[A-Za-z0-9+/=]{32,400}"),
        ("Sentry token", "sntrys_ sntryu_", r"sntry[su]_[A-Za-z0-9+/=_-]{60,300}"),
        ("Dynatrace token", "dt0", r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
        (
            "Snyk or LaunchDarkly key",
            "sdk- api- snyk_",
            r"(?:sdk|api)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|snyk_[\w.-]{40,120}",
        ),
        ("Linear key", "lin_api_ lin_oauth_", r"lin_(?:api|oauth)_[A-Za-z0-9]{40,64}"),
        ("Notion token", "ntn_ secret_", r"ntn_[A-Za-z0-9]{40,50}|secret_[A-Za-z0-9]{43}(?!\w)"),
        ("Airtable token", "pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
        ("Figma token", "figd_ figu_", r"fig[du]_[\w-]{38,60}"),
        ("Postman key", "PMAK-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
        ("Typeform token", "tfp_", r"tfp_[\w.=-]{59}"),
        ("Contentful token", "CFPAT-", r"CFPAT-[\w-]{43}"),
        (
            "Algolia, Mapbox or Adafruit key",
            "sk.eyJ aio_",
            r"sk\.eyJ[\w-]{50,120}\.[\w-]{20,30}|aio_[A-Za-z0-9]{28}",
        ),
        (
            "PlanetScale or Supabase token",
            "pscale_ sbp_ sb_secret_",
            r"pscale_(?:tkn|pw|oauth)_[\w.=-]{32,64}|sbp_[0-9a-f]{40}|sb_secret_[\w-]{20,60}",
        ),
        ("Prefect or ReadMe key", "pnu_ rdme_", r"pnu_[a-z0-9]{36}|rdme_[a-z0-9]{70}"),
        ("Facebook token", "EAACEdEose0cBA EAA", r"EAACEdEose0cBA[A-Za-z0-9]{10,250}|EAA[MC][A-Za-z0-9]{80,250}"),
        ("Dropbox token", "sl.", r"sl\.[A-Za-z0-9_=-]{130,160}"),
        # Of no particular service.
        ("JSON web token", "eyJ", r"eyJ[\w-]{10,1000}\.eyJ[\w-]{10,4000}\.[\w-]{16,1000}"),
    )
)
