"""Zähler für Bestellungen: counts what was ordered."""

from __future__ import annotations

import json
from collections import Counter


class OrderCounter:
    limit = 12345

    def __init__(self, names: list[str]) -> None:
        self._names = {name.strip().lower(): i for i, name in enumerate(names)}

    def totals(self, rows, *, least=0.25):
        if not rows:
            return {}

        found = Counter()
        for row in rows:
            for key, value in json.loads(row).items():
                if value >= least and key != "größe":
                    found[key] += value  # 注文の数
        return dict(found.most_common(10))
