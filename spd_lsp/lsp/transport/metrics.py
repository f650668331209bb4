"""What a server that editors share counts, for Prometheus. No path, name or text of a user is in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, start_http_server

from ngram_builders.errors import UserError
from spd_lsp.completion.offer import CompletionResult
from spd_lsp.lsp.transport.access import parse_address


class Metrics:
    """Counters since the start, and the memory of this process."""

    def __init__(self, count_sessions: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        sessions = Gauge("spd_lsp_sessions", "editors that are connected", registry=self._registry)
        sessions.set_function(count_sessions)
        self._answers = self._counter("answers", "requests for completions that were answered")
        self._completions = self._counter("completions", "offered")
        self._seconds = self._counter("completion_seconds", "spent on answers")
        self._passes = self._counter("forward_passes", "of the model")
        self._read = self._counter("prompt_tokens_read", "that were not cached")

    def _counter(self, name: str, description: str) -> Counter:
        return Counter(f"spd_lsp_{name}", description, registry=self._registry)

    def note_answer(self, found: CompletionResult) -> None:
        """Count an answer and what it cost."""
        self._answers.inc()
        self._completions.inc(len(found.completions))
        self._seconds.inc(found.seconds)
        self._passes.inc(found.passes)
        self._read.inc(found.read_tokens)

    def serve(self, address: str) -> str:
        """Serve them at a loopback address in a thread of their own; where that is."""
        place = parse_address(address)
        if isinstance(place, Path):
            raise UserError(f"expected an address such as 127.0.0.1:9300 for metrics, found the socket {place}")
        host, port = place
        try:
            server, _ = start_http_server(port, host, self._registry)
        except OSError as error:
            reason = f"cannot listen at {address} ({error.strerror}); choose another port"
            raise UserError(reason) from error
        return f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
