"""Chats as a model was trained on them: the template in `tokenizer_config.json`, a ChatML, or lines of `role: content`.

The only file that knows the package `jinja2`, in which templates are written. They come from strangers: they run in its
sandbox, for a number of lines that no honest one needs, multiply nothing to more than that, and get little memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxgrad.data.tokenizer import Tokenizer
from onnxgrad.errors import DataError, FileError
from onnxgrad.files.system import bounded_memory
from onnxgrad.files.text import read_json

CONFIG = "tokenizer_config.json"
MOST = (
    1_000_000  # lines that a template runs for one chat; numbers and letters of what it multiplies
)
MEMORY = 128 << 20  # bytes that a template may take, where the system can bound it
Part = tuple[str, bool]  # a text, and whether it is learned


class Chat:
    """Turns messages into text, and says which parts of it the assistant wrote."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        settings = _settings(tokenizer.path.parent / CONFIG)
        template = settings.get("chat_template")
        if isinstance(template, list):  # several by name, as some models have
            named = {t.get("name"): t.get("template") for t in template if isinstance(t, Mapping)}
            template = named.get("default")
        self._template = self._compiled(template) if isinstance(template, str) else None
        self._words = {k: _word(settings.get(k)) for k in ("bos_token", "eos_token", "pad_token")}

    @property
    def form(self) -> str:
        """How messages are written, for a note."""
        if self._template is not None:
            return f"the template of {CONFIG}"
        return "ChatML" if self._is_chatml else "lines of 'role: content'"

    @property
    def _is_chatml(self) -> bool:
        return self.tokenizer.has("<|im_start|>")

    def parts(self, messages: Sequence[Mapping[str, str]], where: str) -> list[Part]:
        """Return the text of a chat in parts."""
        if self._template is None:
            return [part for message in messages for part in self._plain(message)]
        done, found = "", []
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = self._render(messages[:i], where, add_generation_prompt=True)
            after = self._render(messages[: i + 1], where, add_generation_prompt=False)
            if not after.startswith(before) or not before.startswith(done):
                raise DataError(
                    f"{where}: the template of {CONFIG} writes earlier messages anew, so that nothing tells which "
                    "part the assistant wrote; give 'prompt' and 'completion'"
                )
            found += [(before[len(done) :], False), (after[len(before) :], True)]
            done = after
        return found

    def prompt(self, messages: Sequence[Mapping[str, str]], where: str) -> str:
        """Return the text after which the assistant speaks."""
        if self._template is not None:
            return self._render(messages, where, add_generation_prompt=True)
        text = "".join(part for message in messages for part, _ in self._plain(message))
        return text + ("<|im_start|>assistant\n" if self._is_chatml else "assistant: ")

    def _plain(self, message: Mapping[str, str]) -> list[Part]:
        role, content = message["role"], message["content"]
        learned = role == "assistant"
        if self._is_chatml:
            return [(f"<|im_start|>{role}\n", False), (f"{content}<|im_end|>\n", learned)]
        end = self.tokenizer.end
        last = "" if end is None or not learned else self.tokenizer.word(end)
        return [(f"{role}: ", False), (f"{content}\n{last}", learned)]

    def _compiled(self, template: str):
        try:
            from jinja2 import TemplateError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise DataError(
                f"the template of chats in {CONFIG} needs the package jinja2: pip install 'onnxgrad[text]'"
            ) from None

        def refuse(text: str):
            raise TemplateError(text)

        class Bounded(ImmutableSandboxedEnvironment):
            intercepted_binops = frozenset(("*", "**"))

            def call_binop(self, context, operator: str, left, right):
                if not _small(operator, left, right):
                    refuse(f"{str(left)[:40]!r} {operator} {str(right)[:40]} is too large")
                return super().call_binop(context, operator, left, right)

        # Not optimized: constants would be computed here, where nobody watches.
        environment = Bounded(trim_blocks=True, lstrip_blocks=True, optimized=False)
        environment.globals["raise_exception"] = refuse
        try:
            with bounded_memory(MEMORY):
                return environment.from_string(template)
        except (TemplateError, RecursionError, MemoryError) as error:
            raise DataError(f"the chat_template of {CONFIG} is not a template: {error}") from error

    def _render(self, messages: Sequence[Mapping[str, str]], where: str, **more: Any) -> str:
        try:
            own = [dict(m) for m in messages]
            with bounded_memory(MEMORY):
                return _watched(lambda: self._template.render(messages=own, **self._words, **more))
        except MemoryError as error:
            raise DataError(
                f"{where}: the chat_template of {CONFIG} fails: it takes more than {MEMORY >> 20} MiB of memory"
            ) from error
        except Exception as error:  # whatever a template of a stranger does
            raise DataError(f"{where}: the chat_template of {CONFIG} fails: {error}") from error


def _watched(action: Callable[[], str]) -> str:
    """Run the Python that a template became, and end it after so many lines: loops in loops end only in theory."""
    left = MOST

    def watch(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TimeoutError(f"it runs more than {MOST:,} lines")
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        return action()
    finally:
        sys.settrace(before)


def _small(operator: str, left: Any, right: Any) -> bool:
    """Whether a product or a power is one that can be computed at once."""
    if operator == "**":
        numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
        return numbers and abs(left) <= MOST and abs(right) <= 64
    pairs = ((left, right), (right, left))
    return not any(
        hasattr(many, "__len__") and isinstance(times, int) and len(many) * times > MOST
        for many, times in pairs
    )


def _settings(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = read_json(path)
    except (OSError, ValueError, FileError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}


def _word(entry: Any) -> str:
    """A special token: a text, or a record with one."""
    text = entry.get("content") if isinstance(entry, Mapping) else entry
    return text if isinstance(text, str) else ""
