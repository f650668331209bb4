"""Where a device keeps what attention remembers: rows that passes read, and tensors of texts at rest.

A text that is read stands in a row of the stage, whose address never changes while a pass over it may be replayed;
rows in use stand side by side. When others need the row, the text goes home to a tensor of its own, and the
positions that are there already are not copied again. Knows nothing of weights.

Any thread may crop and fork a text; all else happens in the one thread that computes.

Legend: R rows, G key heads, C width of a head, room: positions a row has memory for.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

_AT_HOME = 128  # positions; homes grow by as many at least


class Stage:
    """Rows that passes read. The last is for positions that fill a shape up; nobody looks at it."""

    def __init__(self, layers: int, heads: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self.layers, self.heads, self.width = layers, heads, width
        self.dtype, self.device = dtype, device
        self.lock = threading.RLock()
        self.standing: list[weakref.ref[Text] | None] = []  # by row
        self.room = 0
        self.held = self.memory(0, 0)  # [keys or values, layers, R + 1, G, room, C]
        self.moves = 0  # how often the whole stage has changed its address

    def memory(self, rows: int, room: int) -> Tensor:
        """Zeros: what is hidden from attention must still be a number."""
        shape = (2, self.layers, rows + 1, self.heads, room, self.width)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    @property
    def rows(self) -> int:
        """R."""
        return len(self.standing)

    def grow(self, rows: int, room: int) -> None:
        """Make sure that there are so many rows with so much room each."""
        if rows <= self.rows and room <= self.room:
            return
        rows, room = max(rows, self.rows), max(room, self.room)
        wider = self.memory(rows, room)
        wider[:, :, : self.rows, :, : self.room] = self.held[:, :, : self.rows]
        self.held, self.room = wider, room
        self.standing += [None] * (rows - self.rows)
        self.moves += 1

    def stands(self, row: int) -> Text | None:
        """Who stands in a row."""
        there = self.standing[row]
        return None if there is None else there()

    def admit(self, texts: Sequence[Text], side_by_side: bool = False) -> None:
        """Have each text stand in a row; `side_by_side`: in the first rows, as many as there are texts."""
        allowed = range(len(texts) if side_by_side else self.rows)
        waiting = [text for text in texts if text.row not in allowed]
        taken = {text.row for text in texts}
        free = [row for row in allowed if row not in taken]
        free.sort(key=lambda row: self.stands(row) is not None)  # those that nobody stands in first
        for text, row in zip(waiting, free, strict=False):
            self.put(text, row)

    def put(self, text: Text, row: int) -> None:
        """Bring a text to a row; who stands there goes home."""
        if (there := self.stands(row)) is not None:
            there.go_home()
        source = text.origin or text
        if text.written:
            self.held[:, :, row, :, : text.written] = source.memory()[..., : text.written, :]
        if text.row is not None:
            self.standing[text.row] = None
        text.row, text.origin = row, None
        self.standing[row] = weakref.ref(text)


class Text:
    """Keys and values of one text, wherever they are. A cache as engines keep it."""

    def __init__(self, stage: Stage, origin: Text | None = None) -> None:
        """`origin`: the text that this one begins as, until it first stands in a row of its own."""
        self.stage = stage
        self.origin = origin
        self.length: int = origin.length if origin else 0  # positions that count
        self.written = self.length  # and with those of a pass that others are still being made with
        self.row: int | None = None
        self.home: Tensor | None = None  # [keys or values, layers, G, room, C]
        self.at_home = 0  # positions that are there

    def crop(self, length: int) -> None:
        """Forget all positions from `length` on."""
        with self.stage.lock:
            self.length = self.written = min(self.length, length)
            self.at_home = min(self.at_home, length)

    @torch.inference_mode()
    def fork(self, length: int) -> Text:
        """Another text with the same first positions."""
        other = Text(self.stage)
        with self.stage.lock:
            other.length = other.written = length
            if length:
                other.make_home(length)
                assert other.home is not None
                other.home[..., :length, :] = self.memory()[..., :length, :]
                other.at_home = length
        return other

    def rows(self, parents: Sequence[int]) -> Texts:
        """As many texts as there are parents, which go on from this one."""
        return Texts([Text(self.stage, self) for _ in parents], self.length)

    def memory(self) -> Tensor:
        """Where its positions are. [keys or values, layers, G, room, C]."""
        if self.row is not None:
            return self.stage.held[:, :, self.row]
        assert self.home is not None
        return self.home

    def make_home(self, length: int) -> None:
        """Have room at home for so many positions."""
        if self.home is not None and self.home.shape[3] >= length:
            return
        stage = self.stage
        shape = (2, stage.layers, stage.heads, -(-length // _AT_HOME) * _AT_HOME, stage.width)
        wider = torch.empty(shape, dtype=stage.dtype, device=stage.device)
        if self.home is not None:
            wider[..., : self.at_home, :] = self.home[..., : self.at_home, :]
        self.home = wider

    def go_home(self) -> None:
        """Leave the stage."""
        assert self.row is not None
        if self.written > self.at_home:
            self.make_home(self.written)
            assert self.home is not None
            new = slice(self.at_home, self.written)
            self.home[..., new, :] = self.memory()[..., new, :]
            self.at_home = self.written
        self.stage.standing[self.row], self.row = None, None


class Texts:
    """N texts that begin alike, for the rows of drafts."""

    def __init__(self, texts: list[Text], shared: int) -> None:
        self.texts = texts
        self.shared = shared  # positions that are the same in all
        self.parents: Sequence[int] = range(len(texts))  # whom each goes on from, in the next pass

    def rows(self, parents: Sequence[int]) -> Texts:
        """Text i goes on as text `parents[i]` is now; there may be more or fewer."""
        self.parents = list(parents)
        return self

    def admit(self) -> None:
        """Have all stand on the stage, each as the one it goes on from."""
        old, stage, count = self.texts, self.texts[0].stage, len(self.parents)
        more = [Text(stage, old[parent]) for parent in self.parents[len(old) :]]
        stage.grow(len(old) + len(more), 0)
        stage.admit([*old, *more])
        kept = old[:count]
        changed = [
            (text, old[parent])
            for text, parent in zip(kept, self.parents, strict=False)
            if text is not old[parent]
        ]
        if changed:
            tail = slice(self.shared, old[0].length)
            to, come_from = ([text.row for text in side] for side in zip(*changed, strict=True))
            stage.held[:, :, to, :, tail] = stage.held[:, :, come_from, :, tail]
        self.texts = [*kept, *more]
        self.parents = range(count)
