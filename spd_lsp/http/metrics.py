"""What the server counts of itself, as Prometheus reads it. No path, name or text of a user is in it."""

from __future__ import annotations

from collections import Counter, defaultdict

from spd_lsp.http.completions import Answer

_REQUESTS = "spd_lsp_requests_total"


class Metrics:
    """Counters since the start."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._costs: defaultdict[str, float] = defaultdict(float)

    def note_request(self, path: str, status: int) -> None:
        """Count a request; `path` is one of the server's own."""
        self._requests[path, status] += 1

    def note_answer(self, answer: Answer) -> None:
        """Count an answer, and what it cost."""
        found = answer.found
        self._costs["spd_lsp_answers_total"] += 1
        self._costs["spd_lsp_completions_total"] += len(answer.alternatives)
        self._costs["spd_lsp_completion_seconds_total"] += found.seconds
        self._costs["spd_lsp_forward_passes_total"] += found.passes
        self._costs["spd_lsp_prompt_tokens_read_total"] += found.read_tokens

    def text(self) -> str:
        """All counters in Prometheus's text format."""
        lines = [f"# TYPE {_REQUESTS} counter"]
        for (path, status), count in self._requests.items():
            lines.append(f'{_REQUESTS}{{path="{path}",status="{status}"}} {count}')
        for name, value in self._costs.items():
            lines += [f"# TYPE {name} counter", f"{name} {value}"]
        return "\n".join(lines) + "\n"
