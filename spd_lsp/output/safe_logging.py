"""Logs and shows errors by type and stack: their messages may quote the user's code."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any

from ngram_builders.errors import UserError

log = logging.getLogger(__name__)


def safe_traceback(error: BaseException) -> str:
    """An error's type and stack, without its message or any value."""
    return f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}"


def user_message(error: Exception, task: str) -> str:
    """The message about an error for the user; an error that is not a UserError is logged."""
    if isinstance(error, UserError):
        return str(error)
    log.error("%s failed: %s", task, safe_traceback(error))
    return f"{task} failed ({type(error).__name__}); see the server's log"


class _SafeFormatter(logging.Formatter):
    """Formats tracebacks without the errors' messages."""

    def formatException(self, ei: Any) -> str:
        """The error's type and stack."""
        return safe_traceback(ei[1])


def log_to_stderr(verbose: int) -> None:
    """Log warnings at 0, a line per completion at 1, more from 2 on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level = logging.WARNING if not verbose else logging.INFO if verbose == 1 else logging.DEBUG
    logging.basicConfig(level=level, handlers=[handler])
