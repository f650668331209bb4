"""What a server that editors share counts, for Prometheus. No path, name or text of a user is in it."""

from __future__ import annotations

from collections.abc import Callable

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
        self._counters = [
            Counter(f"spd_lsp_{name}", description, registry=self._registry)
            for name, description in (
                ("answers", "requests for completions that were answered"),
                ("completions", "offered"),
                ("completion_seconds", "spent on answers"),
                ("forward_passes", "of the model"),
                ("prompt_tokens_read", "that were not cached"),
            )
        ]

    def note_answer(self, found: CompletionResult) -> None:
        """Count an answer and what it cost."""
        amounts = 1, len(found.completions), found.seconds, found.passes, found.read_tokens
        for counter, amount in zip(self._counters, amounts, strict=True):
            counter.inc(amount)

    def serve(self, address: str) -> str:
        """Serve them at a loopback address in a thread of their own; where that is."""
        host, port = parse_address(address)
        try:
            server, _ = start_http_server(port, host, self._registry)
        except OSError as error:
            reason = f"cannot listen at {address} ({error.strerror}); choose another port"
            raise UserError(reason) from error
        return f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
