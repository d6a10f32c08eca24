"""A `tokenizer.json` and the tokens it makes: of language data, of sentences to classify, of words to tag.

The only file that knows the package `tokenizers`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxgrad.errors import DataError, FileError
from onnxgrad.files.paths import printable
from onnxgrad.files.text import read_json, read_text

FILE = "tokenizer.json"
LONGEST = 1 << 20  # tokens: larger numbers in a config mean that there is no bound
_ENDS = ("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]")
_FILLERS = ("[PAD]", "<pad>", "<|pad|>")


@dataclass(frozen=True)
class Tokens:
    """One text as a model takes it: ids, which of two texts each belongs to, and the number of its word.

    `words` has None for tokens that the tokenizer adds, such as [CLS].
    """

    ids: list[int]
    types: list[int]
    words: list[int | None]


class Tokenizer:
    """A `tokenizer.json`, the token that ends a text and the one that fills rows up."""

    def __init__(self, path: str | os.PathLike[str]):
        try:
            from tokenizers import Tokenizer as Native
        except ImportError:
            raise DataError(
                "text needs the package tokenizers: pip install 'onnxgrad[text]'"
            ) from None
        path = Path(path)
        self.path = path / FILE if path.is_dir() else path
        if not self.path.exists():
            raise DataError(f"{self.path}: no such file; a tokenizer.json lies beside most models")
        try:
            self.content = read_text(self.path)
        except FileError as error:
            raise DataError(str(error)) from error
        with self._refused("is not a tokenizer.json"):
            self._native = Native.from_str(self.content)
            self._native.no_padding()  # some files pad every text to 128 tokens: batches do that
            self._native.no_truncation()
        self._length: int | None = None
        self.end = self._first(_ENDS)
        filler = self._first(_FILLERS)
        self.filler = filler if filler is not None else self.end or 0
        self.start = self._start()

    @contextlib.contextmanager
    def _refused(self, text: str = "is a tokenizer.json that fails") -> Iterator[None]:
        """Turn what the package raises into ours: bare Exceptions, and panics of Rust, which are none."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
            raise
        except BaseException as error:
            raise DataError(f"{self.path} {text}: {printable(error)}") from error

    def _first(self, words: tuple[str, ...]) -> int | None:
        ids = (self._native.token_to_id(word) for word in words)
        return next((i for i in ids if i is not None), None)

    def _start(self) -> list[int]:
        """The tokens that are put before a text, such as <s>."""
        with self._refused():
            plain, whole = self.encode("a"), self._native.encode("a").ids
        at = next((i for i in range(len(whole)) if whole[i : i + len(plain)] == plain), 0)
        return whole[:at] if plain else []

    def word(self, token: int) -> str:
        """Return a token as it stands in the vocabulary."""
        return self._native.id_to_token(token) or ""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without those that a model's template adds."""
        with self._refused():
            return self._native.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: list[int]) -> str:
        """Return the text of tokens."""
        with self._refused():
            return self._native.decode(tokens)

    def has(self, word: str) -> bool:
        """Say whether a word is one token."""
        return self._native.token_to_id(word) is not None

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return self._native.get_vocab_size()

    def whole(self, texts: Sequence, length: int | None = None) -> list[Tokens]:
        """Return texts with the tokens that the tokenizer adds, such as [CLS] and [SEP], cut at `length`.

        Each is a text, a pair of texts, or a list of words. Of a pair the longer one is cut first.
        """
        split = bool(len(texts)) and isinstance(texts[0], list)
        with self._refused():
            if length != self._length:
                self._cut(length)
            found = self._native.encode_batch(list(texts), is_pretokenized=split)
        return [Tokens(e.ids, e.type_ids, e.word_ids) for e in found]

    def _cut(self, length: int | None) -> None:
        """Have texts cut at `length` from now on."""
        if length is None:
            self._native.no_truncation()
        else:
            self._native.enable_truncation(length)
        self._length = length


def length_beside(tokenizer: Path) -> int | None:
    """The most tokens of a text, where a tokenizer_config.json beside the tokenizer says so."""
    file = tokenizer.parent / "tokenizer_config.json"
    try:
        found = read_json(file)["model_max_length"] if file.is_file() else None
        return int(found) if found is not None and 2 <= int(found) <= LONGEST else None
    except (FileError, KeyError, TypeError, ValueError, OverflowError):
        return None  # a hint, no more


def tokenizer_beside(model: str | os.PathLike[str]) -> Path | None:
    """The tokenizer.json in the folder of a model file, or above it: `onnx/model.onnx` is how hubs lay them out."""
    folder = Path(model).parent
    places = [folder / FILE, *([folder.parent / FILE] if folder.name == "onnx" else [])]
    return next((place for place in places if place.exists()), None)
