"""Who may use the server: programs of this user on this machine that know its token, and no web page.

In: an address, a folder, headers. Out: a listening socket, a token, a refusal. Knows nothing of completions.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import secrets
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.http.fields import Refused

_TOKEN_FILE = "http-token"
_ADDRESS = re.compile(r"(?:(?P<host>[^:\[\]]*|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int] | Path:
    """A loopback address and port, or a Unix socket's path. Example: `localhost:8012` -> ("127.0.0.1", 8012)."""
    if text.startswith(("unix:", "/", "~")):
        return Path(text.removeprefix("unix:")).expanduser().absolute()
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise UserError(f"expected an address such as 127.0.0.1:8012, or unix:PATH for a socket, found {text!r}")
    host = (found["host"] or "127.0.0.1").strip("[]")
    if not _is_loopback(host):
        raise UserError(
            f"other machines can reach {host}, and could ask for your code; listen at 127.0.0.1, and forward the "
            "port with ssh -L 8012:127.0.0.1:8012 HOST"
        )
    return "127.0.0.1" if host == "localhost" else host, int(found["port"])


def listen(host: str, port: int) -> socket.socket:
    """A listening socket at a loopback address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        remedy = "choose another port, or stop the program that has it"
        raise UserError(f"cannot listen at {host} port {port} ({error.strerror}); {remedy}") from error


def token_in(folder: Path) -> tuple[str, Path]:
    """The token that clients have to send, made at the first start, and its file, which only its user can read."""
    path = folder / _TOKEN_FILE
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, flags, 0o600), "r+", encoding="ascii") as file:
            status = os.fstat(file.fileno())
            if os.name == "posix" and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
                mode = stat.S_IMODE(status.st_mode)
                raise UserError(f"others may know the token in {path} (mode {mode:o}); delete the file")
            token = file.read(1000).strip()
            if not token:
                token = secrets.token_urlsafe(32)
                file.write(token)
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot use the token in {path} ({error}); delete it, or choose another --data-dir"
        ) from error
    return token, path


def check_origin(headers: Mapping[str, str]) -> None:
    """Refuse web pages: what a browser sends for one, and names that somebody's DNS leads here."""
    host = re.sub(r":[0-9]+$", "", headers.get("host", "")).strip("[]")
    if not _is_loopback(host):
        raise Refused(403, "expected the header Host to be localhost or a loopback address")
    if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
        raise Refused(403, "web pages may not use this server: send neither Origin nor Sec-Fetch-Site")


def check_token(headers: Mapping[str, str], token: str) -> None:
    """Refuse who does not know the token."""
    sent = headers.get("authorization", "")
    if not hmac.compare_digest(sent.encode(), f"Bearer {token}".encode()):
        raise Refused(
            401, "expected `Authorization: Bearer TOKEN`; the server named the token's file when it started"
        )


def _is_loopback(host: str) -> bool:
    """Whether a host is this machine by definition, whatever a name server says."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
