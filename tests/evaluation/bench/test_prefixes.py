"""The next request's prompt, by what changed; and that only what changed is read."""

from __future__ import annotations

from spd_lsp.evaluation.bench.prefixes import COLD, TYPED_TOKENS, edited_prompts, time_prefixes


class Reader:
    """Counts the positions it reads; keeps what prompts share."""

    def __init__(self):
        self.held = []
        self.read = []
        self.prompts = [self]

    def crop(self, length):
        self.held = self.held[:length]

    def prefill(self, ids):
        same = next((at for at, (a, b) in enumerate(zip(self.held, ids)) if a != b), min(len(self.held), len(ids)))  # noqa: B905
        self.read.append((tuple(ids), len(ids) - same))
        self.held = list(ids)


def test_requests_differ_as_they_say():
    asked = edited_prompts(list(range(105)))
    assert asked[COLD] == asked["same prompt"] == list(range(100))
    assert asked["+5 tokens"] == list(range(105))
    changed = [
        at for at, (a, b) in enumerate(zip(asked[COLD], asked["edit in the middle"], strict=True)) if a != b
    ]
    assert changed == [50]


def test_each_kind_is_timed_once_a_round_after_the_same_prompt():
    reader = Reader()
    taken = time_prefixes(reader, list(range(105)), repeat=3)
    assert {len(moments) for moments in taken.values()} == {3}
    positions = {}
    for after, read in reader.read:
        positions.setdefault((len(after), read), 0)
        positions[len(after), read] += 1
    # Each of four kinds in four rounds; before three of them the prompt is read as it was.
    assert positions == {(100, 100): 16, (100, 0): 4, (105, TYPED_TOKENS): 4, (100, 50): 4}
