"""Language data: lines of JSON with text become tokens, padded on the right, with the next token as the target.

    {"text": "..."}                                      every token is learned
    {"prompt": "...", "completion": "..."}               the completion is learned
    {"messages": [{"role": "user", "content": "..."}]}   what the assistant says is learned

Tokens come from a `tokenizer.json` (`data/tokenizer.py`).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxgrad.data.arrays import Batch
from onnxgrad.data.chat import Chat
from onnxgrad.data.digest import digest
from onnxgrad.data.tokenizer import Tokenizer
from onnxgrad.errors import DataError, FileError
from onnxgrad.files.text import json_lines, parse_record
from onnxgrad.notes import Note

IGNORED = -100  # a target that no loss counts
_STEP = 8  # lengths of batches are multiples: a run then sees few different shapes


@dataclass
class Example:
    """Tokens, and for each whether it is learned."""

    tokens: list[int]
    learned: list[bool]
    line: int = 0

    def add(self, tokens: list[int], learned: bool) -> None:
        self.tokens += tokens
        self.learned += [learned] * len(tokens)


def records(path: str | os.PathLike[str]) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a JSONL file with their numbers. Raises DataError that names the line."""
    try:
        lines = list(json_lines(path))
    except (OSError, FileError) as error:
        raise DataError(f"{path} cannot be read as text: {error}") from error
    for number, line in lines:
        try:
            yield number, parse_record(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not JSON ({error})") from error


def read_examples(path: str | os.PathLike[str], tokenizer: Tokenizer) -> list[Example]:
    """Return one example per line. Raises DataError that names the line."""
    examples, chat = [], Chat(tokenizer)
    for number, record in records(path):
        example = _example(record, tokenizer, chat, f"{path}, line {number}")
        example.line = number
        if not any(example.learned[1:]):
            raise DataError(f"{path}, line {number}: there is nothing to learn in it")
        examples.append(example)
    if not examples:
        raise DataError(f"{path} holds no examples")
    return examples


def _example(record: Any, tokenizer: Tokenizer, chat: Chat, where: str) -> Example:
    made = Example([], [])
    end = [] if tokenizer.end is None else [tokenizer.end]
    if isinstance(record, dict) and isinstance(record.get("text"), str):
        made.add(tokenizer.start + tokenizer.encode(record["text"]) + end, True)
    elif isinstance(record, dict) and {"prompt", "completion"} <= set(record):
        made.add(tokenizer.start + tokenizer.encode(_text(record["prompt"], where)), False)
        made.add(tokenizer.encode(_text(record["completion"], where)) + end, True)
    elif isinstance(record, dict) and isinstance(record.get("messages"), list):
        for text, learned in chat.parts(_messages(record["messages"], where), where):
            made.add(tokenizer.encode(text), learned)
    else:
        raise DataError(f"{where}: expected 'text', 'prompt' and 'completion', or 'messages'")
    return made


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where}: expected text, got {type(value).__name__}")
    return value


def _messages(messages: list[Any], where: str) -> list[dict[str, str]]:
    for message in messages:
        if not isinstance(message, dict) or not {"role", "content"} <= set(message):
            raise DataError(f"{where}: a message has no 'role' and 'content'")
        for key in ("role", "content"):
            _text(message[key], where)
    return messages


def is_language(record: Any) -> bool:
    """Say whether a line of JSON can only mean language data: a chat, or a prompt and its completion."""
    if not isinstance(record, dict):
        return False
    return isinstance(record.get("messages"), list) or {"prompt", "completion"} <= set(record)


def read_prompts(path: str | os.PathLike[str], tokenizer: Tokenizer) -> list[str]:
    """Return one text per line to continue: the prompt, the chat up to its last answer, or the text."""
    chat, found = Chat(tokenizer), []
    for number, record in records(path):
        where = f"{path}, line {number}"
        if isinstance(record, dict) and isinstance(record.get("messages"), list):
            messages = _messages(record["messages"], where)
            while messages and messages[-1]["role"] == "assistant":
                messages = messages[:-1]
            found.append(chat.prompt(messages, where))
        elif isinstance(record, dict) and ("prompt" in record or "text" in record):
            found.append(_text(record.get("prompt", record.get("text")), where))
        else:
            raise DataError(f"{where}: expected 'prompt', 'messages' or 'text'")
    return found


@dataclass
class Language:
    """Batches of examples for a model with these inputs; `Trainer.fit` takes it as it is.

    length: rows are cut there. pack: examples one after the other in rows of `length`, so that
    nothing is padded; an example then sees the ones before it in its row.
    """

    examples: list[Example]
    inputs: tuple[str, ...]
    filler: int = 0
    target: str = "target"
    batch_size: int = 8
    length: int = 512
    pack: bool = False
    shuffle: bool = True
    seed: int = 0
    notes: list[Note] = field(default_factory=list)

    def __post_init__(self):
        known = ("input_ids", "attention_mask", "position_ids", "token_type_ids")
        strange = [n for n in self.inputs if n not in known]
        if "input_ids" not in self.inputs or strange:
            listed = ", ".join(map(repr, self.inputs))
            raise DataError(
                f"the inputs of the model are {listed}; language data gives {', '.join(known)}"
            )
        if self.length < 2:
            raise DataError(f"length is {self.length}, expected at least 2 tokens")
        self.laid = self._packed() if self.pack else self._cut()  # one example per row

    def _cut(self) -> list[Example]:
        longer = sum(len(e.tokens) > self.length for e in self.examples)
        if longer:
            text = f"{longer} of {len(self.examples)} examples are cut at {self.length} tokens"
            self.notes.append(Note("cut", "examples", text))
        cut = [
            Example(e.tokens[: self.length], e.learned[: self.length], e.line)
            for e in self.examples
        ]
        kept = [e for e in cut if any(e.learned[1:])]
        if len(kept) < len(cut):
            text = (
                f"{len(cut) - len(kept)} examples are left out: what is learned lies beyond the cut"
            )
            self.notes.append(Note("left out", "examples", text))
        if not kept:
            raise DataError(f"no example has something to learn in its first {self.length} tokens")
        return kept

    def _packed(self) -> list[Example]:
        whole = Example([], [])
        for example in self.examples:
            # The first token of an example does not follow from the one before it.
            whole.tokens += example.tokens
            whole.learned += [False, *example.learned[1:]]
        starts = range(0, len(whole.tokens), self.length)
        rows = [
            Example(whole.tokens[s : s + self.length], whole.learned[s : s + self.length])
            for s in starts
        ]
        text = f"{len(self.examples)} examples are packed into {len(rows)} rows"
        self.notes.append(Note("packed", "examples", text))
        return [r for r in rows if any(r.learned[1:])]

    def __len__(self) -> int:
        return -(-len(self.laid) // self.batch_size)

    @property
    def rows(self) -> int:
        """How many rows there are, of examples or of packed ones."""
        return len(self.laid)

    def digest(self) -> str:
        """Return a hash of the data."""
        return digest(batch.arrays for batch in self.in_order())

    def in_order(self) -> Iterator[Batch]:
        """Yield the batches as the rows lie."""
        same = copy.copy(self)
        same.shuffle = False
        return same.epoch(0)

    @property
    def learned(self) -> int:
        """How many tokens of an epoch are learned."""
        return sum(sum(row.learned[1:]) for row in self.laid)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch; the order depends on seed and epoch."""
        order = np.arange(len(self.laid))
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.laid))
        for number in range(start, len(self)):
            rows = order[number * self.batch_size : (number + 1) * self.batch_size]
            yield Batch(self.arrays([self.laid[i] for i in rows]), number, rows, self._line)

    def _line(self, row: int) -> str:
        return f"line {self.laid[row].line}" if self.laid[row].line else f"row {row}"

    def arrays(self, rows: list[Example]) -> dict[str, np.ndarray]:
        """Return rows as arrays, as wide as the longest: target t is token t + 1, where it is learned."""
        longest = max(len(r.tokens) for r in rows)
        width = min(-(-longest // _STEP) * _STEP, max(self.length, longest))
        ids = np.full((len(rows), width), self.filler, np.int64)
        mask = np.zeros((len(rows), width), np.int64)
        target = np.full((len(rows), width), IGNORED, np.int64)
        for i, row in enumerate(rows):
            size = len(row.tokens)
            ids[i, :size], mask[i, :size] = row.tokens, 1
            following = np.where(row.learned[1:], row.tokens[1:], IGNORED)
            target[i, : size - 1] = following
        positions = np.broadcast_to(np.arange(width), ids.shape).copy()
        made = {
            "input_ids": ids, "attention_mask": mask, "position_ids": positions,
            "token_type_ids": np.zeros_like(ids),
        }  # fmt: skip
        return {**{n: made[n] for n in self.inputs}, self.target: target}


def generate(
    logits: Callable[[dict[str, np.ndarray]], np.ndarray],
    tokenizer: Tokenizer,
    prompt: str,
    inputs: tuple[str, ...] = ("input_ids",),
    tokens: int = 30,
) -> str:
    """Continue a prompt, each time by the likeliest token; for a person to read, without a cache of keys and values.

    `logits` runs the model: arrays by name -> [1, length, vocabulary].
    """
    ids = tokenizer.start + tokenizer.encode(prompt)
    if not ids:
        raise DataError("the prompt has no tokens")
    first = len(ids)
    for _ in range(tokens):
        row = Example(list(ids), [True] * len(ids))
        data = Language([Example([0, 0], [True, True])], inputs, tokenizer.filler)
        arrays = {n: a for n, a in data.arrays([row]).items() if n in inputs}
        ids.append(int(np.argmax(logits(arrays)[0, len(ids) - 1])))
        if ids[-1] == tokenizer.end:
            break
    return tokenizer.decode(ids[first:])
