"""Text to ids and back: the prompt with its fill-in-the-middle marks, and the token boundary at the cursor.

Comes in: a model's folder and text. Goes out: ids, bytes, a fingerprint. Knows no model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from weakref import proxy

from tokenizers import AddedToken, Tokenizer

from ngram_builders.arrays import Ids
from ngram_builders.errors import UserError
from ngram_builders.ngrams import TokenSpace
from ngram_builders.table.suffix_array import Rewriting
from spd_lsp.completion.fill_formats import choose_format, read_config
from spd_lsp.completion.spelling import ANY, BUT_BLANKS, Pieces, Spelling, spell
from spd_lsp.models.checkpoint.stored_vocabulary import StoredVocabulary, read_vocabulary, write_vocabulary
from spd_lsp.models.checkpoint.tokenizer_limits import count_ids, refusal
from spd_lsp.models.llama.pre_tokenizers import CUTTING_PROBE

LINES, SHORT = 65_536, 500  # lines whose size is remembered, and characters of the longest of them
_OPENERS = (":", "{", "(", "[")
_BUNDLED = {"48ad8f5b3dacba0a": "7aaf23535e2c986d"}  # the starter, by the name in the headers of its tables
_INDENTATION = re.compile(r"^(?: {2,8}|\t)(?=\S)", re.MULTILINE)
_LEVELS = 2  # of indentation, further left and further right, at which the text before the cursor is looked for
_END_OF_TEXT = (
    *("<|endoftext|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>", "<|end_of_text|>", "<|im_end|>"),
    "<[end▁of▁sentence]>",
)
_MARK = re.compile(r"▁?(?:<.+>|\[.+\])", re.DOTALL)  # other added tokens are text, such as runs of blanks
_TAG = re.compile(
    r"</?(?:table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|[bius]|sub|sup|code)>"
)  # of HTML, which is text, too: Gemma has a token for each
_ANCHOR, _LONGEST_ANCHOR = "\u263a", 6  # what Code Llama and Codestral put before a text, and tokens that it has


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads, and what drafts spell behind it."""

    ids: list[int]  # the whole prompt, marks included
    history: list[int]  # the text left of the drafts alone, as n-grams see it
    spelling: Spelling  # of what was taken back at the cursor
    copied_behind: list[int]  # what copies follow: up to the line above where only an indentation is typed
    begun: bytes  # what is typed behind that
    fill_format: str = ""  # with which the text right of the cursor is in the prompt
    levels: Sequence[Rewriting] = ()  # other levels of indentation at which it may stand elsewhere


class ModelTokenizer:
    """A model's tokenizer, read from a folder that holds `tokenizer.json`."""

    def __init__(self, folder: Path, fill_format: str = "auto") -> None:
        self.tokenizer = _read_tokenizer(folder)
        # Source code that mentions <|endoftext|> means the characters, not the end of the text.
        self.tokenizer.encode_special_tokens = True
        stored = read_vocabulary(folder)
        self.vocab_size = len(stored.pieces) if stored else count_ids(self.tokenizer, folder / "tokenizer.json")
        self.fingerprint = stored.fingerprint if stored else fingerprint(self.tokenizer)
        self.specials = _separate_marks(self.tokenizer)
        if stored:
            self.pieces = stored.pieces
            self.spellings = self._spellings(stored.order)
        else:
            write_vocabulary(folder, lambda: StoredVocabulary(self.fingerprint, self.pieces, self.spellings.order))
        config = read_config(folder)
        self.end_of_text = self.find_end_of_text(config.get("eos_token_id"))
        self.known_size = lru_cache(LINES)(partial(size, self.tokenizer))  # not a method: it would hold the object
        self.fill_format = choose_format(fill_format, config, self.is_special)

    @property
    def space(self) -> TokenSpace:
        """What an n-gram table must share with it."""
        return TokenSpace(self.fingerprint, self.vocab_size, self.end_of_text)

    def is_special(self, name: str) -> bool:
        """Whether this is a special token of this vocabulary."""
        return self.tokenizer.token_to_id(name) in self.specials

    def id_of(self, name: str) -> int:
        """Return the id of a token."""
        found = self.tokenizer.token_to_id(name)
        assert found is not None, name
        return found

    def find_end_of_text(self, configured: object = None) -> int:
        """Return the id that ends a document: that of a name which means it, or the one of the configuration."""
        for name in _END_OF_TEXT:
            if self.is_special(name):
                return self.id_of(name)
        first = next(iter(configured), None) if isinstance(configured, list) else configured
        if isinstance(first, int) and first in self.specials:
            return first
        raise UserError(
            f"expected a tokenizer with an end-of-text token (one of {', '.join(_END_OF_TEXT)}), found none; "
            "name another model with --model"
        )

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens."""
        try:
            return list(self.tokenizer.encode(text, add_special_tokens=False).ids)
        except BaseException as error:
            raise refusal(error) from None

    def encode_batch(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Return the ids of many texts, encoded on all cores."""
        try:
            encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        except BaseException as error:
            raise refusal(error) from None
        for encoding in encodings:
            yield list(encoding.ids)

    def count(self, text: str) -> int:
        """Return the number of tokens of a text; cached for lines, which are counted at every keystroke."""
        return self.known_size(text) if len(text) <= SHORT else size(self.tokenizer, text)

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of ids; special tokens have none."""
        return b"".join(self.pieces[i] for i in ids if i < self.vocab_size)

    def ends(self, i: int) -> bool:
        """Whether an id ends a text: a special token, or one beyond the vocabulary."""
        return i in self.specials or i >= self.vocab_size

    def prompt(self, before: str, after: str, *, settled: int = 0) -> Prompt:
        """Lay out a prompt for the text around the cursor, ready to go on from the last whole token.

        Of `before`, so many characters are `settled`: they stay while someone types. Example: before `x = pri`
        gives history `x =`, and drafts spell ` pri`, ` print`, ` private` ...
        """
        whole = self.encode(before)
        history, spelling = spell(self.spellings, whole, BUT_BLANKS if is_indented(before) else ANY)
        behind, begun = self._whole_lines(whole, before) or (history, spelling.healed)
        filled = self.fill_format if after else None
        cut = self._tokens_before(history, len(before[settled:].encode()) - len(spelling.healed))
        texts = {"{before}": history, "{above}": history[:cut], "{recent}": history[cut:]}
        texts |= {"{after}": self.encode_inside(after)} if filled else {}
        ids = [*self.opening]
        for part in filled.parts if filled else ("{before}",):
            ids += texts[part] if part in texts else [self.id_of(part)]
        levels = self._levels(before, begun)
        name = filled.name if filled else ""
        # A model reads at least one token; the end of the text before is what stands before every text.
        return Prompt(ids or [self.end_of_text], history, spelling, behind, begun, name, levels)

    def _whole_lines(self, ids: list[int], before: str) -> tuple[list[int], bytes] | None:
        """The tokens up to the cursor's line, and the text behind them, if only an indentation stands on it."""
        line = before[before.rfind("\n") + 1 :]
        if not line.isspace():
            return None
        left = n = 0
        while left < len(line):
            n += 1
            left += len(self.pieces[ids[-n]])
        return ids[:-n], self.bytes_of(ids[-n:])

    def _tokens_before(self, ids: Sequence[int], size: int) -> int:
        """How many ids stand before the last `size` bytes. A token with both is not among them."""
        count = len(ids)
        while size > 0 and count:
            count -= 1
            size -= len(self.pieces[ids[count]])
        return count

    def _levels(self, before: str, begun: bytes) -> list[Rewriting]:
        """The levels of indentation next to that of a text."""
        step = min(_INDENTATION.findall(before), key=len, default="    ")
        changes = [change for n in range(1, _LEVELS + 1) for change in ((step * n, ""), ("", step * n))]
        # Where tokens end at a line's end, what was taken back may be all of a blank line, but not its beginning.
        line = before[before.rfind("\n") + 1 :]
        is_taken_back = line.isspace() and begun == line.encode()
        begin, code = ("\n", r"\S") if is_taken_back else ("", r"(?:\S|\Z)")

        def moved(old: str, new: str) -> Callable[[Sequence[int]], list[int]]:
            lines = re.compile(rf"\n{old}(?=[ \t]*{code})")
            return partial(self._rewritten, lambda text: lines.sub(f"\n{new}", begin + text)[len(begin) :])

        return [Rewriting(moved(here, there), moved(there, here)) for here, there in changes]

    def _rewritten(self, change: Callable[[str], str], ids: Sequence[int]) -> list[int]:
        """The ids of a text after a change."""
        written: list[int] = []
        for is_mark, part in groupby(ids, self.ends):
            run = list(part)
            text = "" if is_mark else self.bytes_of(run).decode(errors="ignore")
            written += self.encode_inside(changed) if (changed := change(text)) != text else run
        return written

    def encode_inside(self, text: str) -> list[int]:
        """Return the ids of a text that others precede: without the blank that some tokenizers put first."""
        if not self.puts_blank_first:
            return self.encode(text)
        ids = self.encode(_ANCHOR + text)
        cut = (n for n in range(1, _LONGEST_ANCHOR) if self.bytes_of(ids[:n]) == f" {_ANCHOR}".encode())
        return ids[next(cut, 0) :]

    @cached_property
    def opening(self) -> list[int]:
        """The ids that this tokenizer puts before every text, such as a begin-of-text token."""
        return list(self.tokenizer.encode("", add_special_tokens=True).ids)

    @cached_property
    def puts_blank_first(self) -> bool:
        """Whether a text begins with a blank that it does not have, as in SentencePiece vocabularies."""
        return self.bytes_of(self.encode("x")) == b" x"

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes of each id."""
        names = [self.tokenizer.id_to_token(i) or "" for i in range(self.vocab_size)]
        read = byte_level_piece if _is_byte_level(names) else _sentencepiece_piece
        pieces = [b"" if i in self.specials else read(name) for i, name in enumerate(names)]
        for i in self.tokenizer.get_added_tokens_decoder().keys() - self.specials:
            pieces[i] = _sentencepiece_piece(names[i]) if read is _sentencepiece_piece else names[i].encode()
        return pieces

    @cached_property
    def spellings(self) -> Pieces:
        """The same, by what they begin with."""
        return self._spellings(None)

    def _spellings(self, order: Ids | None) -> Pieces:
        return Pieces(self.pieces, partial(ModelTokenizer.encode_inside, proxy(self)), order)


def size(tokenizer: Tokenizer, text: str) -> int:
    """Return the number of tokens of a text."""
    try:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)
    except BaseException as error:
        raise refusal(error) from None


def is_indented(before: str) -> bool:
    """Whether the cursor stands where a line's text begins: behind blanks that a person or an editor put there.

    Not behind a line that opens a block or a bracket, if its indentation was only repeated.
    Example: `if x:\n    y()\n    ` is, `def f():\n    if x:\n    ` is not.
    """
    above, _, line = before.rpartition("\n")
    last = above.rstrip().rpartition("\n")[2]
    repeated = len(line) <= len(last) - len(last.lstrip())
    return line.isspace() and not (repeated and last.endswith(_OPENERS))


def _read_tokenizer(folder: Path) -> Tokenizer:
    """Open a folder's `tokenizer.json`."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise UserError(
            f"expected tokenizer.json in {folder}, found none; save the model with a fast tokenizer "
            "(`AutoTokenizer.from_pretrained(...).save_pretrained(...)`) and try again"
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers library raises bare Exception for every fault of the file
        raise UserError(f"{path} is not a readable tokenizer ({error}); restore it and try again") from error


def _separate_marks(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids of tokens that mark something and are not text; what looks like one in source code is characters.

    Not all are declared special. Added tokens that are text: runs of blanks (GPT-NeoX), rare letters (DeepSeek),
    tags of HTML (Gemma).
    """
    added = tokenizer.get_added_tokens_decoder()
    marks = {i: token for i, token in added.items() if token.special or _looks_like_mark(token.content)}
    if undeclared := [token.content for token in marks.values() if not token.special]:
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in undeclared])
    return frozenset(marks)


def _looks_like_mark(name: str) -> bool:
    return _MARK.fullmatch(name) is not None and _TAG.fullmatch(name) is None


def fingerprint(tokenizer: Tokenizer) -> str:
    """Return 16 hex digits that identify a vocabulary and how it cuts text, in whatever format it is stored."""
    vocabulary = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=itemgetter(1))
    if not _is_byte_level([name for name, _ in vocabulary]):  # runs of blanks have either name
        vocabulary = [(name.replace(" ", "▁"), i) for name, i in vocabulary]
    cut = tokenizer.encode(CUTTING_PROBE, add_special_tokens=False).ids
    found = hashlib.blake2b(json.dumps([vocabulary, cut]).encode(), digest_size=8).hexdigest()
    return _BUNDLED.get(found, found)


def _is_byte_level(names: Sequence[str]) -> bool:
    """Whether words begin with the letter that stands for a blank's byte; others may have that letter, too."""
    return sum(name.startswith("Ġ") for name in names) > sum(name.startswith("▁") for name in names)


def _byte_level_alphabet() -> dict[str, int]:
    """The letters by which byte-level vocabularies write bytes: printable ones stand for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(b): b for b in printable}, **{chr(256 + i): b for i, b in enumerate(others)}}


_BYTE_LEVEL = _byte_level_alphabet()


def byte_level_piece(name: str) -> bytes:
    """The bytes of a byte-level token. Example: `Ġif` -> b" if"."""
    if any(letter not in _BYTE_LEVEL for letter in name):
        return name.encode()
    return bytes(_BYTE_LEVEL[letter] for letter in name)


def _sentencepiece_piece(name: str) -> bytes:
    """The bytes of a SentencePiece token. Example: `▁if` -> b" if", `<0x0A>` -> b"\\n"."""
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        return bytes([int(name[3:5], 16)])
    return name.replace("▁", " ").encode()
