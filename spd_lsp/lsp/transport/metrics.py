"""What a server that editors share counts, for Prometheus. No path, name or text of a user is in it."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter, Gauge, start_http_server

from ngram_builders.errors import UserError
from spd_lsp.completion.offer import CompletionResult
from spd_lsp.lsp.transport.access import parse_address

_SESSIONS = Gauge("spd_lsp_sessions", "editors that are connected")
_ANSWERS = Counter("spd_lsp_answers", "requests for completions that were answered")
_COMPLETIONS = Counter("spd_lsp_completions", "offered")
_SECONDS = Counter("spd_lsp_completion_seconds", "spent on answers")
_PASSES = Counter("spd_lsp_forward_passes", "of the model")
_READ = Counter("spd_lsp_prompt_tokens_read", "that were not cached")


def note_answer(found: CompletionResult) -> None:
    """Count an answer and what it cost."""
    _ANSWERS.inc()
    _COMPLETIONS.inc(len(found.completions))
    _SECONDS.inc(found.seconds)
    _PASSES.inc(found.passes)
    _READ.inc(found.read_tokens)


def serve_metrics(address: str, count_sessions: Callable[[], float]) -> str:
    """Serve these and the process's own metrics at a loopback address, in a thread; return their URL."""
    host, port = parse_address(address)
    _SESSIONS.set_function(count_sessions)
    try:
        server, _ = start_http_server(port, host)
    except OSError as error:
        raise UserError(f"cannot listen at {address} ({error.strerror}); choose another port") from error
    return f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
