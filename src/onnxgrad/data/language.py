"""Language data: lines of JSON with text become tokens, padded on the right, with the next token as the target.

    {"text": "..."}                                      every token is learned
    {"prompt": "...", "completion": "..."}               the completion is learned
    {"messages": [{"role": "user", "content": "..."}]}   what the assistant says is learned

Tokens come from a `tokenizer.json` (`data/tokenizer.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxgrad.data.arrays import Batch
from onnxgrad.data.tokenizer import Tokenizer
from onnxgrad.errors import DataError, FileError
from onnxgrad.files.text import parse_json, read_text
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


def read_examples(path: str | os.PathLike[str], tokenizer: Tokenizer) -> list[Example]:
    """Return one example per line. Raises DataError that names the line."""
    examples = []
    try:
        lines = read_text(path).splitlines()
    except (OSError, FileError) as error:
        raise DataError(f"{path} cannot be read as text: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = parse_json(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not JSON ({error})") from error
        example = _example(record, tokenizer, f"{path}, line {number}")
        example.line = number
        if not any(example.learned[1:]):
            raise DataError(f"{path}, line {number}: there is nothing to learn in it")
        examples.append(example)
    if not examples:
        raise DataError(f"{path} holds no examples")
    return examples


def _example(record: Any, tokenizer: Tokenizer, where: str) -> Example:
    made = Example([], [])
    end = [] if tokenizer.end is None else [tokenizer.end]
    if isinstance(record, dict) and isinstance(record.get("text"), str):
        made.add(tokenizer.encode(record["text"]) + end, True)
    elif isinstance(record, dict) and {"prompt", "completion"} <= set(record):
        made.add(tokenizer.encode(_text(record["prompt"], where)), False)
        made.add(tokenizer.encode(_text(record["completion"], where)) + end, True)
    elif isinstance(record, dict) and isinstance(record.get("messages"), list):
        for message in record["messages"]:
            _add_message(made, message, tokenizer, where)
    else:
        raise DataError(f"{where}: expected 'text', 'prompt' and 'completion', or 'messages'")
    return made


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where}: expected text, got {type(value).__name__}")
    return value


def _add_message(made: Example, message: Any, tokenizer: Tokenizer, where: str) -> None:
    """As ChatML where the tokenizer knows it, else `role: content` on a line of its own."""
    if not isinstance(message, dict) or not {"role", "content"} <= set(message):
        raise DataError(f"{where}: a message has no 'role' and 'content'")
    role, content = (_text(message[k], where) for k in ("role", "content"))
    chat = tokenizer.has("<|im_start|>")
    head, tail = (f"<|im_start|>{role}\n", "<|im_end|>\n") if chat else (f"{role}: ", "\n")
    learned = role == "assistant"
    made.add(tokenizer.encode(head), False)
    made.add(tokenizer.encode(content + tail), learned)
    if learned and not chat and tokenizer.end is not None:
        made.add([tokenizer.end], True)


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
        self.rows = self._packed() if self.pack else self._cut()

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
                f"{len(cut) - len(kept)} examples are left out: what is learned lies behind the cut"
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
        return -(-len(self.rows) // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch; the order depends on seed and epoch."""
        order = np.arange(len(self.rows))
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.rows))
        for number in range(start, len(self)):
            rows = order[number * self.batch_size : (number + 1) * self.batch_size]
            yield Batch(self.arrays([self.rows[i] for i in rows]), number, rows, self._line)

    def _line(self, row: int) -> str:
        return f"line {self.rows[row].line}" if self.rows[row].line else f"row {row}"

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
    """Continue a prompt, each time by the likeliest token; for the eye, without a cache of keys and values.

    `logits` runs the model: arrays by name -> [1, length, vocabulary].
    """
    ids = tokenizer.encode(prompt)
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
