"""A path -> whether its name says that it holds keys or passwords: never counted, never completed.

One list for builds, open files and editors. A person adds to it, or takes back from it, in a file of the user's
configuration folder; nothing in a repository can. Knows no content.
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


def _globs(text: str) -> tuple[str, ...]:
    """The words of a list."""
    return tuple(text.split())


SECRET_NAMES = _globs("""
    .env* *.env *.pem *.key *.crt *.cert *.cer *.der *.p8 *.p12 *.pfx *.jks *.keystore *.keytab *.kdb *.kdbx
    *.agekey *.gpg *.pgp *.asc *.ppk *.ovpn *.mobileprovision *.tfvars *.tfvars.json *.tfstate *.tfstate.*
    *_rsa *_dsa *_ecdsa *_ed25519 id_rsa* id_dsa* id_ecdsa* id_ed25519* credentials* secret.* secrets.*
    .netrc _netrc .npmrc .yarnrc.yml .pypirc .htpasswd .pgpass .my.cnf .git-credentials .dockercfg
    .dockerconfigjson .vault-token .s3cfg .boto .ftpconfig .terraformrc terraform.rc kubeconfig *.kubeconfig
""")
_PLACES = _globs("""
    .aws/* .azure/* .ssh/* .gnupg/* .kube/config .docker/config.json .config/gh/hosts.yml .config/gcloud/*
    .config/rclone/rclone.conf .m2/settings.xml .gradle/gradle.properties .terraform.d/* .password-store/*
""")
_FOLDER = re.compile(
    r"[/\\]\.(?:aws|azure|ssh|gnupg|kube|docker|config|m2|gradle|terraform\.d|password-store)[/\\]", re.I
)
OWN_LIST = "secret-files"
_LONGEST_LIST = 65_536  # bytes


def is_secret(path: PurePath | str) -> bool:
    """Whether a file's name or place says so: .env.local, id_rsa, server.pem, .docker/config.json."""
    place = str(path).replace(os.sep, "/").lower()
    verdict = any(fits(place, glob) for glob in (*SECRET_NAMES, *_PLACES))
    for glob in own_globs():
        if fits(place, glob.removeprefix("!")):
            verdict = not glob.startswith("!")
    return verdict


def may_be_secret(path: str) -> bool:
    """Whether more than the name has to be looked at: the folder is one of those, or a person has a list."""
    return bool(own_globs()) or _FOLDER.search(path) is not None


def fits(place: str, glob: str) -> bool:
    """Whether a lower-case path ends in what a glob says; without a slash it is about the name alone."""
    if "/" in glob:
        return fnmatchcase(f"/{place}", f"*/{glob.lstrip('/')}")
    return fnmatchcase(place.rpartition("/")[2], glob)


@lru_cache(1)
def own_globs() -> Sequence[str]:
    """What a person added, one glob a line, or took back, with `!` before it; read once a process."""
    return tuple(_lines_of(Path(platformdirs.user_config_dir("spd-lsp", appauthor=False)) / OWN_LIST))


def _lines_of(file: Path) -> Iterator[str]:
    """The globs of a list, in lower case."""
    with suppress(OSError):
        if file.is_file():
            with file.open(encoding="utf-8", errors="replace") as text:
                lines = (line.strip().lower() for line in text.read(_LONGEST_LIST).splitlines())
                yield from (line for line in lines if line.strip("!") and not line.startswith("#"))
