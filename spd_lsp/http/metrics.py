"""What a server counts of itself, as Prometheus reads it. No path, name or text of a user is in it."""

from __future__ import annotations

import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp.completion.offer import CompletionResult
from spd_lsp.http.access import check_origin, listen, parse_address
from spd_lsp.http.fields import Refused

_REQUESTS = "spd_lsp_requests_total"
_READING_SECONDS = 5.0  # for a request to arrive
_MAX_CONNECTIONS = 16  # each a thread; the oldest makes room for one more


class Metrics:
    """Counters since the start, and what is asked for when they are read."""

    def __init__(self) -> None:
        self.gauges: dict[str, Callable[[], float]] = {}
        self._requests: Counter[tuple[str, int]] = Counter()
        self._costs: defaultdict[str, float] = defaultdict(float)

    def note_request(self, path: str, status: int) -> None:
        """Count a request; `path` is one of the server's own."""
        self._requests[path, status] += 1

    def note_answer(self, found: CompletionResult, completions: int) -> None:
        """Count an answer of so many completions, and what it cost."""
        self._costs["spd_lsp_answers_total"] += 1
        self._costs["spd_lsp_completions_total"] += completions
        self._costs["spd_lsp_completion_seconds_total"] += found.seconds
        self._costs["spd_lsp_forward_passes_total"] += found.passes
        self._costs["spd_lsp_prompt_tokens_read_total"] += found.read_tokens

    def text(self) -> str:
        """All of them in Prometheus's text format."""
        lines = [f"# TYPE {_REQUESTS} counter"] if self._requests else []
        for (path, status), count in list(self._requests.items()):
            lines.append(f'{_REQUESTS}{{path="{path}",status="{status}"}} {count}')
        for name, value in list(self._costs.items()):
            lines += [f"# TYPE {name} counter", f"{name} {value}"]
        for name, ask in self.gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {ask()}"]
        return "\n".join(lines) + "\n"


class _FewConnections(ThreadingHTTPServer):
    """A server whose connections, which anyone on this machine may open, leave the editors theirs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._open: list[Any] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        """See socketserver."""
        self._open.append(request)
        if len(self._open) > _MAX_CONNECTIONS:
            with suppress(OSError):  # it has ended meanwhile
                self._open.pop(0).shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """See socketserver."""
        with suppress(ValueError):  # it has made room
            self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that end early."""


def serve_metrics(address: str, metrics: Metrics, is_well: Callable[[], bool]) -> str:
    """Serve `/metrics` and `/health` at a loopback address in a thread of their own; where that is."""
    place = parse_address(address)
    if isinstance(place, Path):
        raise UserError(f"expected an address such as 127.0.0.1:9300 for metrics, found the socket {place}")

    class Handler(BaseHTTPRequestHandler):
        timeout = _READING_SECONDS

        def do_GET(self) -> None:
            """Answer; no web page may ask."""
            try:
                check_origin({name.lower(): value for name, value in self.headers.items()})
            except Refused as refused:
                return self._say(refused.status, f"{refused}\n")
            if self.path == "/health":
                well = is_well()
                return self._say(200 if well else 503, '{"status": "%s"}\n' % ("ok" if well else "busy"))
            return self._say(200, metrics.text()) if self.path == "/metrics" else self._say(404, "not found\n")

        def _say(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments: object) -> None:
            """Say nothing of requests."""

    server = _FewConnections(place, Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listen(*place)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host, port = server.socket.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def resident_bytes() -> float:
    """The memory of this process, 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    import resource

    return float(pages * resource.getpagesize())
