"""A path -> whether it names a file of keys or passwords, which is never counted and never completed.

One list for builds, open files and editors. Users add to it, or allow files again, in a file of their own
configuration folder; nothing in a repository can. Reads no other file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePath

import platformdirs

from ngram_builders.sources.rules.globs import NameMatcher

_SECRET_NAMES = """
    .env* *.env *.pem *.key *.crt *.cert *.cer *.der *.p12 *.pfx *.jks *.keystore *.keytab *.kdb *.kdbx
    *.agekey *.gpg *.pgp *.asc *.ppk *.ovpn *.mobileprovision *.tfvars *.tfvars.json *.tfstate *.tfstate.*
    *key*.p8 *auth*.p8 *apns*.p8 *apple*.p8 *cert*.p8 *private*.p8 *rsa*.p8
    *_rsa *_dsa *_ecdsa *_ed25519 id_rsa* id_dsa* id_ecdsa* id_ed25519*
    .netrc _netrc .npmrc .yarnrc.yml .pypirc .htpasswd .pgpass .my.cnf .git-credentials .dockercfg
    .dockerconfigjson .vault-token .s3cfg .boto .ftpconfig .terraformrc terraform.rc kubeconfig *.kubeconfig
"""
_is_secret_name = NameMatcher(_SECRET_NAMES.split())
_is_about_secrets = NameMatcher(("credentials*", "secret.*", "secrets.*"))
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
    secret = _is_secret_name(name) or _SECRET_PATH.search(path) is not None
    secret = secret or (_is_about_secrets(name) and not name.endswith(_COMPILED))
    for glob in user_globs():
        if _ends_in(path, glob.removeprefix("!")):
            secret = not glob.startswith("!")
    return secret


def _ends_in(path: str, glob: str) -> bool:
    """Whether a lower-case path ends in what a glob says; without a slash the glob is about the name alone."""
    if "/" in glob:
        return fnmatchcase(f"/{path}", f"*/{glob.lstrip('/')}")
    return fnmatchcase(path.rpartition("/")[2], glob)


@lru_cache(1)
def user_globs() -> Sequence[str]:
    """Read the user's own globs, one a line; `!` before one allows the file again. Read once a process."""
    return tuple(_read_globs(Path(platformdirs.user_config_dir("spd-lsp", appauthor=False)) / USER_LIST))


def _read_globs(file: Path) -> Iterator[str]:
    """Read the globs of a list, in lower case."""
    with suppress(OSError):
        if file.is_file():
            with file.open(encoding="utf-8", errors="replace") as text:
                lines = (line.strip().lower() for line in text.read(_MAX_LIST_BYTES).splitlines())
                yield from (line for line in lines if line.strip("!") and not line.startswith("#"))
