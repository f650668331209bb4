"""A path -> whether it names a file of keys or passwords, which is never counted and never completed.

One list for builds, open files and editors. Users add to it, or allow files again, in a file of their own
configuration folder; nothing in a repository can. Reads no other file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePath

import platformdirs

from ngram_builders.sources.git_repository import read_regular_file
from ngram_builders.sources.rules.rule_files import name_matcher

_SECRET_NAMES = """
    .env* *.env *.pem *.key *.crt *.cert *.cer *.der *.p12 *.pfx *.jks *.keystore *.keytab *.kdb *.kdbx
    *.agekey *.gpg *.pgp *.asc *.ppk *.ovpn *.mobileprovision *.tfvars *.tfvars.json *.tfstate *.tfstate.*
    *key*.p8 *auth*.p8 *apns*.p8 *apple*.p8 *cert*.p8 *private*.p8 *rsa*.p8
    *_rsa *_dsa *_ecdsa *_ed25519 id_rsa* id_dsa* id_ecdsa* id_ed25519*
    .netrc _netrc .npmrc .yarnrc.yml .pypirc .htpasswd .pgpass .my.cnf .git-credentials .dockercfg
    .dockerconfigjson .vault-token .s3cfg .boto .ftpconfig .terraformrc terraform.rc kubeconfig *.kubeconfig
"""
_is_secret_name = name_matcher(_SECRET_NAMES)
_is_about_secrets = name_matcher("credentials* secret.* secrets.*")
_COMPILED = (".go", ".rs", ".java", ".kt", ".scala", ".swift", ".cs", ".c", ".h", ".cc", ".cpp", ".hpp")  # is code
_SECRET_PATH = re.compile(
    r"(?:^|/)\.(?:(?:aws|azure|ssh|gnupg|terraform\.d|password-store|config/gcloud)/"
    r"|(?:kube/config|docker/config\.json|config/gh/hosts\.yml|config/rclone/rclone\.conf|m2/settings\.xml"
    r"|gradle/gradle\.properties)\Z)"
)
USER_LIST = "secret-files"
_MAX_LIST_BYTES = 65_536


def is_secret(path: PurePath | str) -> bool:
    """Whether a file's name or folder says so: .env.local, id_rsa, server.pem, .docker/config.json."""
    path = str(path).replace(os.sep, "/").lower()
    name = path.rpartition("/")[2]
    secret = bool(_is_secret_name(name) or _SECRET_PATH.search(path))
    secret = secret or bool(_is_about_secrets(name) and not name.endswith(_COMPILED))
    for glob in user_globs():
        end = glob.removeprefix("!")  # without a slash it is about the name alone
        if fnmatchcase(f"/{path}", f"*/{end.lstrip('/')}") if "/" in end else fnmatchcase(name, end):
            secret = not glob.startswith("!")
    return secret


@lru_cache(1)
def user_globs() -> Sequence[str]:
    """Read the user's own globs, one a line; `!` before one allows the file again. Read once a process."""
    file = Path(platformdirs.user_config_dir("spd-lsp", appauthor=False)) / USER_LIST
    text = read_regular_file(str(file), _MAX_LIST_BYTES).decode(errors="replace")
    lines = (line.strip().lower() for line in text.splitlines())
    return tuple(line for line in lines if line.strip("!") and not line.startswith("#"))
