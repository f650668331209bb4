"""The torch decoder as an engine: on CUDA a step is one launch, and the steps of several requests are one step.

Comes in: ids and mixtures. Goes out: logits. What is read at once is laid out here: short reads and steps of all
requests in one pass, at whatever position each of them is; long reads each in a pass of its own. Before a pass
nothing is done on the device, so that requests may prepare theirs in any thread; passes are made in one.

Nothing here has run on a GPU yet: see `frames`.

Legend: as in `torch_decoder`; N texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ngram_builders.arrays import I64, Floats
from spd_lsp.models.base import Pass, Runner
from spd_lsp.models.topk import Asking, Mixture
from spd_lsp.models.torch.cuda_graphs import Capture, Frame, Shape, Work
from spd_lsp.models.torch.decoder import Past, TorchDecoder
from spd_lsp.models.torch.kv_cache import Stage, Text, Texts

_SHORT = 8  # tokens of a text up to which it is read with others' steps: what is typed between two requests
MIXED = 16  # K of captured steps, as nobody asks for more drafts; it doubles where someone does
ASKED, COUNT = 256, 32  # A and R of captured steps, likewise
ROWS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)  # B of captured steps
# Not cuDNN's, which prepares each new length for longer than it then takes.
_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_ONE = np.ones(1, np.float32)


@dataclass(eq=False)
class Share:
    """What one of several requests has in a pass: T new positions of each of N texts."""

    cache: Text | Texts
    mixtures: Sequence[Mixture]  # N T, text by text
    each: int  # T
    last: bool  # whether only the logits after each text's last are wanted
    asking: Asking | None = None  # and of those only some

    @property
    def texts(self) -> list[Text]:
        """N, where a `Texts` has been admitted."""
        return [self.cache] if isinstance(self.cache, Text) else self.cache.texts


class TorchRunner(Runner):
    """A decoder with the memory of some prompts."""

    def __init__(
        self,
        decoder: TorchDecoder,
        capture: Capture | None = None,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`capture` makes one launch of steps; should it fail, that is reported and steps run eagerly."""
        self.decoder = decoder
        self.decode_again = decoder.read  # for shapes that come again; a compiled one may take its place
        self.device = decoder.embedding.device
        self.max_positions = decoder.max_positions
        self.vocabulary = len(decoder.embedding)
        self.capture, self.report = capture, report
        self.stage = Stage(
            len(decoder.layers), decoder.key_heads, decoder.head_width, decoder.embedding.dtype, self.device
        )
        self.frames: dict[Shape, tuple[Frame, Work]] = {}  # captured ones
        self.at_once = 1 << 10  # requests
        self.moves = 0  # of the stage, when they were captured
        super().__init__()

    @torch.inference_mode()
    def warm_up(self, lengths: Sequence[int]) -> None:
        """Capture a step of one text at each of these lengths, as nobody waits now."""
        self.make_room(1, rounded(max(lengths)))
        for length in lengths:
            text = self.empty()
            self.stage.admit([text], side_by_side=True)
            text.length = length - 1  # of whatever has stood in that row
            step = [((0,), _ONE)]
            self.forward(Asking(step, 1, [np.zeros(1, np.int64)]) if self.selects else step, text)

    def empty(self) -> Text:
        """As in `Runner`."""
        return Text(self.stage)

    def superpose(self, rows: Sequence[Mixture]) -> list[Mixture]:
        """As in `Runner`, but for the device: it mixes in the pass itself."""
        for ids, _ in rows:
            self.check(ids)
        return list(rows)

    def check(self, ids: Sequence[int]) -> None:
        """Refuse what is no token: a GPU would give up for good."""
        if len(ids) and not 0 <= min(ids) <= max(ids) < self.vocabulary:
            raise IndexError(f"expected ids from 0 to {self.vocabulary - 1}, found {max(ids)}")

    def forward(self, embedded: Sequence[Mixture] | Asking, cache: Text | Texts) -> Floats:
        """As in `Runner`."""
        return self.together([Pass(cache, embedded=embedded)])[0]

    def read(self, ids: Sequence[Sequence[int]], cache: Text | Texts, *, last: bool = False) -> Floats:
        """As in `Runner`."""
        return self.together([Pass(cache, ids=ids, last=last)])[0]

    @torch.inference_mode()
    def together(self, passes: Sequence[Pass]) -> list[Floats]:
        """As in `Runner`. If anything fails, no text has changed."""
        shares = [self.share(one) for one in passes]
        found: dict[int, Floats] = {}
        with self.on_device():
            for group in groups(shares):
                for share, logits in zip(group, self.run_what_fits(group), strict=True):
                    found[id(share)] = logits
        for share in shares:
            for text in share.texts:
                text.length += share.each
        # Logits of prompts are kept for long: not as a part of what others found in the same pass.
        return [
            found[id(share)]
            if one.embedded is not None
            else np.array(found[id(share)]).reshape(len(one.ids), -1, self.vocabulary)
            for share, one in zip(shares, passes, strict=True)
        ]

    def on_device(self) -> AbstractContextManager[object]:
        """Where there are several GPUs, the one that the weights are on is meant."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def share(self, one: Pass) -> Share:
        """What is asked, as mixtures."""
        if one.embedded is not None:
            if not isinstance(one.embedded, Asking):
                return Share(one.cache, one.embedded, 1, True)
            asking = one.embedded
            for ids, _ in asking.mixtures:
                self.check(ids)
            return Share(one.cache, asking.mixtures, 1, True, asking)
        for row in one.ids:
            self.check(row)
        mixtures = [((token,), _ONE) for row in one.ids for token in row]
        return Share(one.cache, mixtures, len(one.ids[0]), one.last)

    def run_what_fits(self, group: Sequence[Share]) -> list[Floats]:
        """One pass, or several where memory does not suffice for so many rows; that is not tried again."""
        if len(group) <= self.at_once:
            try:
                return self.run(group)
            except torch.OutOfMemoryError:
                if len(group) == 1:
                    raise
                self.at_once = len(group) // 2
                self.report(f"reads {self.at_once} requests at once: there is no memory for more")
        several = self.at_once  # which may become less on the way
        parts = [group[start : start + several] for start in range(0, len(group), several)]
        return [logits for part in parts for logits in self.run_what_fits(part)]

    def run(self, group: Sequence[Share]) -> list[Floats]:
        """One pass; the logits that each share wants, as rows: [W, V], or as in `Likeliest`."""
        with self.stage.lock:
            for share in group:
                if isinstance(share.cache, Texts):
                    share.cache.admit()
                for text in share.texts:
                    text.crop(text.length)  # what a pass that broke off has left
            recurs = self.capture is not None and _recurring(group)
            shape = self.arrange(group, recurs)
            kept = self.frames.get(shape)
            frame = kept[0] if kept else Frame(shape, self.device)
            counts = self.fill(frame, group)
            logits = kept[1]() if kept else self.first_time(frame, recurs)()
        for share in group:
            for text in share.texts:
                text.written = text.length + share.each
        rows = np.split(frame.fetch(logits)[: sum(counts)], np.cumsum(counts)[:-1])
        return [
            _trimmed(part, shape, share.asking, self.vocabulary) for part, share in zip(rows, group, strict=True)
        ]

    def arrange(self, group: Sequence[Share], recurs: bool) -> Shape:
        """Have all texts stand on the stage; the shape of a pass over them, filled up if it is to recur."""
        texts = [text for share in group for text in share.texts]
        each = max(share.each for share in group)
        mixed = max(len(ids) for share in group for ids, _ in share.mixtures)
        length = rounded(max(text.length for text in texts) + each)
        rows = len(texts)
        if recurs:
            rows = next((rows for rows in ROWS if rows >= len(texts)), -(-len(texts) // 32) * 32)
        self.make_room(rows, length)
        self.stage.admit(texts, side_by_side=recurs or len(texts) > 1)
        first = 0 if recurs or len(texts) > 1 else texts[0].row or 0
        few = _wanted_of(group, self.vocabulary)
        if recurs and each == 1:
            return Shape(rows, 1, rows, _filled(mixed, MIXED), rows, first, length, *few)
        if recurs:
            return Shape(rows, _SHORT, rows * _SHORT, mixed, rows, first, length)
        new = sum(len(share.mixtures) for share in group)
        wanted = sum(len(share.texts) if share.last else len(share.mixtures) for share in group)
        return Shape(rows, each, new, mixed, wanted, first, length, *few)

    def make_room(self, rows: int, length: int) -> None:
        """Grow the stage if need be; graphs know its old address."""
        self.stage.grow(rows, length)
        if self.moves != self.stage.moves:
            self.frames.clear()
            self.moves = self.stage.moves

    def fill(self, frame: Frame, group: Sequence[Share]) -> list[int]:
        """Write down what is read and where; how many positions' logits each share wants."""
        sheet = Sheet(frame.shape, self.stage.rows)
        counts = []
        for share in group:
            before = len(sheet.wanted)
            for number, text in enumerate(share.texts):
                sheet.add(text, share.mixtures[number * share.each :][: share.each], share.last)
            counts.append(len(sheet.wanted) - before)
        wanted = np.zeros(frame.shape.wanted, np.int64)
        wanted[: len(sheet.wanted)] = sheet.wanted
        asked, taus = questions(group, frame.shape, self.vocabulary)
        frame.fill(sheet.weights, taus, **sheet.numbers, wanted=wanted, asked=asked)
        return counts

    def first_time(self, frame: Frame, recurs: bool) -> Work:
        """A pass of a shape that no graph is there for, and a graph of it if it is to recur."""
        keys, values = self.stage.held
        shape = frame.shape
        decode = self.decode_again if recurs else self.decoder.read
        past = Past(list(keys), list(values), shape.first, shape.rows, shape.length)

        def work() -> torch.Tensor:
            with sdpa_kernel(_ATTENTION):
                return decode(frame.inputs, past, shape.count)

        if not recurs or self.capture is None:
            return work
        try:
            replay = self.capture(work)
        except RuntimeError as error:
            self.report(f"runs step by step: capturing one failed ({str(error).splitlines()[0]})")
            self.capture = None
            self.frames.clear()
            return work
        self.frames[shape] = frame, replay
        return replay


class Sheet:
    """The numbers of a pass before they go to the device. What fills a shape up stands there already."""

    def __init__(self, shape: Shape, nobody: int) -> None:
        """`nobody`: the row that nobody looks at."""
        self.shape = shape
        self.weights = np.zeros((shape.new, shape.mixed), np.float32)
        self.numbers = {
            "ids": np.zeros((shape.new, shape.mixed), np.int64),
            "positions": np.zeros(shape.new, np.int64),
            "rows": np.full(shape.new, nobody),
            "starts": np.zeros(shape.rows, np.int64),
            "spread": np.zeros(shape.rows * shape.each, np.int64),
            "gathered": np.zeros(shape.new, np.int64),
        }
        self.wanted: list[int] = []
        self.new = 0  # positions written down

    def add(self, text: Text, mixtures: Sequence[Mixture], last: bool) -> None:
        """A text's new positions; the logits after the last or after all of them are wanted."""
        assert text.row is not None
        row, count = text.row - self.shape.first, len(mixtures)
        place = row * self.shape.each  # of the row's first among B T
        begin = place if self.shape.dense else self.new
        self.new += count
        at = slice(begin, begin + count)
        for m, (ids, gamma) in enumerate(mixtures, begin):
            self.numbers["ids"][m, : len(ids)], self.weights[m, : len(ids)] = ids, gamma
        self.numbers["positions"][at] = range(text.length, text.length + count)
        self.numbers["rows"][at] = text.row
        self.numbers["starts"][row] = text.length
        self.numbers["spread"][place : place + count] = range(begin, begin + count)
        self.numbers["gathered"][at] = range(place, place + count)
        self.wanted += range(begin + count - 1 if last else begin, begin + count)


def groups(shares: Sequence[Share]) -> list[list[Share]]:
    """Which are read in one pass: short ones, by whether all logits are wanted; each long one is alone."""
    short: dict[bool, list[Share]] = {False: [], True: []}
    for share in shares:
        if share.each <= _SHORT:
            short[share.asking is not None].append(share)
    return [*([share] for share in shares if share.each > _SHORT), *(group for group in short.values() if group)]


def _recurring(group: Sequence[Share]) -> bool:
    """Whether a pass is of a kind that comes again and again: steps, or what one person has typed."""
    [share, *others] = group
    typed = not others and len(share.texts) == 1 and share.last and share.each <= _SHORT
    return typed or all(share.each == 1 for share in group)


def rounded(length: int) -> int:
    """L for texts of some length, two in each octave: 512, 1024, 1536, 2048, 3072, 4096 ..."""
    found = 512
    while found < length:
        found += max(512, 1 << (found.bit_length() - 2))
    return found


def _filled(count: int, least: int) -> int:
    """The next of `least`, twice as many, four times as many ...: shapes are to recur."""
    while least < count:
        least *= 2
    return least


def _wanted_of(group: Sequence[Share], vocabulary: int) -> tuple[int, int]:
    """A and R of a pass: what the share that asks for most wants; 0 and 0 for whole logits."""
    askings = [share.asking for share in group if share.asking]
    if not askings:
        return 0, 0
    most = max(len(ids) for asking in askings for ids in asking.asked)
    count = max(asking.count for asking in askings)
    return _filled(most, ASKED), min(_filled(count, COUNT), vocabulary)


def questions(group: Sequence[Share], shape: Shape, vocabulary: int) -> tuple[I64, list[float]]:
    """The ids that are asked for [W, A], filled up with any, and the temperatures [W], in the order of texts."""
    asked = np.zeros((shape.wanted, shape.asked), np.int64)
    askings = [asking for share in group if (asking := share.asking)]
    for row, ids in enumerate(ids for asking in askings for ids in asking.asked):
        asked[row, : len(ids)] = np.minimum(
            ids, vocabulary - 1
        )  # what is beyond is nobody's token: see `_trimmed`
    return asked, [asking.temperature for asking in askings for _ in asking.asked]


def _trimmed(rows: Floats, shape: Shape, asking: Asking | None, vocabulary: int) -> Floats:
    """What one share wanted, of the columns of a pass: see `likeliest` in `torch_decoder`."""
    if asking is None:
        return rows
    ends = 0, shape.count, 2 * shape.count
    sizes = asking.count, asking.count, len(asking.asked[0])
    parts = [rows[:, end : end + size] for end, size in zip(ends, sizes, strict=True)]
    parts[2] = np.where(np.stack(asking.asked) < vocabulary, parts[2], -np.inf)
    return np.concatenate([*parts, rows[:, -1:]], axis=1)
