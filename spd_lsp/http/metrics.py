"""What a server counts of itself, for Prometheus. No path, name or text of a user is in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    generate_latest,
    start_http_server,
)

from ngram_builders.errors import UserError
from spd_lsp.completion.offer import CompletionResult
from spd_lsp.http.access import parse_address


class Metrics:
    """Counters since the start, and the memory of this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter("spd_lsp_requests", "answered", ["path", "status"], registry=self.registry)
        self._answers = self._counter("answers", "requests for completions that were answered")
        self._completions = self._counter("completions", "offered")
        self._seconds = self._counter("completion_seconds", "spent on answers")
        self._passes = self._counter("forward_passes", "of the model")
        self._read = self._counter("prompt_tokens_read", "that were not cached")

    def _counter(self, name: str, description: str) -> Counter:
        return Counter(f"spd_lsp_{name}", description, registry=self.registry)

    def watch_sessions(self, count: Callable[[], float]) -> None:
        """Show how many editors are connected."""
        Gauge("spd_lsp_sessions", "editors that are connected", registry=self.registry).set_function(count)

    def note_request(self, path: str, status: int) -> None:
        """Count a request; `path` is one of the server's own."""
        self._requests.labels(path, str(status)).inc()

    def note_answer(self, found: CompletionResult, completions: int) -> None:
        """Count an answer of so many completions, and what it cost."""
        self._answers.inc()
        self._completions.inc(completions)
        self._seconds.inc(found.seconds)
        self._passes.inc(found.passes)
        self._read.inc(found.read_tokens)

    def text(self) -> str:
        """All of them in Prometheus's text format."""
        return generate_latest(self.registry).decode()

    def serve(self, address: str) -> str:
        """Serve them at a loopback address in a thread of their own; where that is."""
        place = parse_address(address)
        if isinstance(place, Path):
            raise UserError(f"expected an address such as 127.0.0.1:9300 for metrics, found the socket {place}")
        host, port = place
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            reason = f"cannot listen at {address} ({error.strerror}); choose another port"
            raise UserError(reason) from error
        return f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
