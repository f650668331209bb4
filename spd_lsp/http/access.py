"""Checks that a request comes from a program of this user that knows the server's token, and from no web page."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from starlette.exceptions import HTTPException

from ngram_builders.errors import UserError
from spd_lsp.lsp.transport.access import is_loopback

_TOKEN_FILE = "http-token"


def token_in(folder: Path) -> tuple[str, Path]:
    """The token that clients have to send, made at the first start, and its file, which only its user can read."""
    path = folder / _TOKEN_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="ascii") as file:
            status = os.fstat(file.fileno())
            if os.name == "posix" and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
                raise UserError(f"others may know the token in {path}; delete the file")
            token = file.read(1000).strip()
            if not token:
                token = secrets.token_urlsafe(32)
                file.write(token)
    except OSError as error:
        raise UserError(f"cannot use the token in {path} ({error.strerror}); choose another --data-dir") from error
    return token, path


def refusal(headers: Mapping[str, str], token: str | None) -> HTTPException | None:
    """Why a request is not answered; `token` is None where none is needed.

    Web pages are refused: what a browser sends for one, and names that somebody's DNS leads here.
    """
    host = re.sub(r":[0-9]+$", "", headers.get("host", "")).strip("[]")
    if not is_loopback(host):
        return HTTPException(403, "expected the header Host to be localhost or a loopback address")
    if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
        return HTTPException(403, "web pages may not use this server: send neither Origin nor Sec-Fetch-Site")
    sent = headers.get("authorization", "")
    if token is not None and not hmac.compare_digest(sent.encode(), f"Bearer {token}".encode()):
        return HTTPException(
            401, "expected `Authorization: Bearer TOKEN`; the server named the token's file when it started"
        )
    return None
